"""Output of `presilicon simulate`: text or JSON on stdout, and files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import UNSET

from presilicon.base import ConfigError, write_file
from presilicon.cli.simulate import StepOptions
from presilicon.designs import Convention, Design
from presilicon.records import Cost, Gemm, StepFacts, StepGraph
from presilicon.report import (
    Checkpointing,
    product_document,
    render_checkpointing,
    render_cost,
    render_coverage,
    render_memory,
    render_product,
    save_memory_plot,
    save_roofline_plot,
    save_trace,
    simulate_to_json,
    step_document,
)
from presilicon.simulation import (
    bound_product,
    chain_of,
    even_segments,
    match_times,
    memory_timeline,
    put_times,
    read_times,
    simulate,
    simulate_gemm,
    write_chakra,
    write_topology,
)
from presilicon.simulation import checkpoint as with_checkpoints


def print_products(
    sides: tuple[int, ...], designs: Sequence[Design], convention: Convention, frames: Path | None, as_json: bool
) -> None:
    """Price one matrix product on each design; with `frames`, play it cell by cell on the only one."""
    gemm = Gemm(*sides)
    designs = [msgspec.structs.replace(design, machine=design.machine.for_product()) for design in designs]
    if frames is not None:
        write_file(frames, msgspec.json.encode(designs[0].machine.play_product(gemm)) + b"\n")
    texts: list[str] = []
    documents, talk, prices = [], [], []
    for design in designs:
        settings = design.machine.describe_product()
        cost = simulate_gemm(gemm, design, convention=convention)
        prices.append((cost.time_s, cost.energy_j, cost.bytes_dram))
        least_bytes = bound_product(gemm, design)
        given: dict[str, Any] = {"design": design.name, "gemm": gemm, "least_bytes": least_bytes}
        documents.append(product_document(cost, settings=settings, convention=convention, **given))
        texts.append(render_product(cost, settings=settings | {"convention": convention}, **given))
        remarks = (*design.machine.numerics_remarks(design.numerics), *design.machine.remarks(StepFacts()))
        talk += [f"{design.name}: {remark}" for remark in remarks]
    talk += _print(documents if as_json else texts, designs, prices)
    if frames is not None:
        talk.append(f"frames: {frames}")
    if talk:
        click.echo("\n".join(talk), err=as_json)


def _print(
    outputs: Sequence[str | dict[str, Any]], designs: Sequence[Design], prices: Sequence[tuple[float, ...]]
) -> tuple[str, ...]:
    """Print one text after the other, or plain data as one JSON document. Returns remarks on all designs together."""
    from presilicon.study import idle_in_prices

    remarks = idle_in_prices(designs, prices)
    texts = [output for output in outputs if isinstance(output, str)]
    documents = [output for output in outputs if not isinstance(output, str)]
    click.echo(simulate_to_json(documents, remarks) if documents else "\n".join(texts), nl=False)
    return remarks


def print_steps(
    name: str, designs: Sequence[Design], convention: Convention, options: StepOptions, as_json: bool
) -> None:
    """Price one step on each design, with checkpoints and times of another simulator where given; print and write."""
    from presilicon.study import StepGraphs, StepPrices
    from presilicon.workloads import load_workload

    workload = load_workload(name)
    batch, accumulate = options.batch or workload.batch_size, options.accumulate or workload.accumulate
    if (batch, accumulate) != (workload.batch_size, workload.accumulate):
        workload = replace(workload, batch_size=batch, accumulate=accumulate)
    plain = StepGraphs(workload)
    outputs, talk, prices = [], [], []
    if any(design.methods for design in designs):
        talk.append("Methods act in training; this is a step before they have acted.")
    if any(change.from_step for design in designs for change in design.numerics.schedule):
        talk.append("Numerics change at later steps; this is a step before they have changed.")
    for design in designs:
        graphs = plain.for_design(design)
        graph = StepPrices(graphs, design).graph(StepFacts(samples=options.batch))
        output, files, cost = _step_output(graph, design, convention, options, as_json)
        outputs.append(output)
        prices.append((cost.time_s, cost.energy_j, cost.memory_bytes))
        talk += files
    talk += _print(outputs, designs, prices)
    if talk:
        click.echo("\n" + "\n".join(talk), err=as_json)


def _step_output(
    graph: StepGraph, design: Design, convention: Convention, options: StepOptions, as_json: bool
) -> tuple[str | dict[str, Any], list[str], Cost]:
    """The price of a step as text or plain data; lines about written files and what it leaves out; and itself."""
    from presilicon.study import check_step_taps, price_remarks

    check_step_taps(design, graph)
    cost = simulate(graph, design, convention=convention)
    plain, segments = None, 0
    if options.checkpoint is not None:
        cut = _segments(graph, options.checkpoint)
        # Dropping the last segment gains nothing: its backward pass follows at once.
        plain, segments, graph = cost, len(cut), with_checkpoints(graph, cut[:-1])
        cost = simulate(graph, design, convention=convention)
    coverage = None
    if options.times is not None:
        clock_ghz = design.machine.clock_ghz if options.clock_ghz is None else options.clock_ghz
        cost, coverage = put_times(cost, match_times(graph, cost, read_times(options.times, clock_ghz)))
    talk = _write_files(options, graph, design, cost)
    remarks = (*price_remarks(design, cost, cost.memory_bytes), *design.machine.remarks(StepFacts()))
    talk += [f"{design.name}: {remark}" for remark in remarks]
    if as_json:
        compared = None if plain is None else _checkpointing(plain, cost, segments, is_ours=coverage is None)
        document = step_document(
            cost, design=design.name, graph=graph, remarks=remarks, checkpointing=compared, times=coverage
        )
        return document, talk, cost
    parts = [render_cost(cost, design=design.name, graph=graph, ops=options.ops)]
    if plain is not None:
        parts.append(render_checkpointing(plain, cost, segments, times=options.times is None))
    if coverage is not None:
        parts.append(render_coverage(coverage))
    return "\n".join(parts), talk, cost


def _segments(graph: StepGraph, segments: str) -> tuple[tuple[str, ...], ...]:
    """The blocks of the step in as many segments as `--checkpoint` says."""
    chain = chain_of(graph)
    if len(chain) < 2:
        blocks = f"one block, {chain[0]}" if chain else "no blocks that follow one another"
        raise ConfigError(f"--checkpoint {segments}: {graph.name} has {blocks}: there is nothing to cut into segments")
    if segments != "sqrt" and int(segments) > len(chain):
        raise ConfigError(
            f"--checkpoint {segments}: {len(chain)} layers cannot be cut into {segments} segments; "
            f"give 2 to {len(chain)}, or sqrt"
        )
    return even_segments(chain, None if segments == "sqrt" else int(segments))


def _checkpointing(plain: Cost, cost: Cost, segments: int, *, is_ours: bool) -> Checkpointing:
    """The step without checkpoints beside the one with them; times from elsewhere cannot be compared with ours."""
    return Checkpointing(
        segments=segments,
        memory_bytes_without=plain.memory_bytes,
        flops_without=sum(op.flops for op in plain.ops),
        saves_memory=cost.memory_bytes < plain.memory_bytes,
        time_s_without=plain.time_s if is_ours else UNSET,
        energy_j_without=plain.energy_j if is_ours else UNSET,
    )


def _write_files(options: StepOptions, graph: StepGraph, design: Design, cost: Cost) -> list[str]:
    """Write the requested files; returns a line about each."""
    talk: list[str] = []
    title = f"{graph.name}, {cost.batch_text}, on {design.name}"
    timeline = memory_timeline(graph, design, cost)
    if options.chakra is not None:
        write_chakra(options.chakra, graph, design, cost)
    if options.topology is not None:
        write_topology(options.topology, graph)
        talk.append(f"topology: {options.topology} (run SCALE-Sim on it, then give --times COMPUTE_REPORT.csv)")
    if options.trace is not None:
        save_trace(options.trace, cost, timeline, design=design.name, graph=graph, repeat=options.repeat or 1)
        talk.append(f"trace: {options.trace} (open it at https://ui.perfetto.dev)")
    if options.roofline_plot is not None:
        save_roofline_plot(cost, options.roofline_plot, title=title)
        talk.append(f"roofline plot: {options.roofline_plot}")
    if options.memory_plot is not None:
        save_memory_plot(timeline, options.memory_plot, title=title)
        talk.append(f"{render_memory(timeline)}memory plot: {options.memory_plot}")
    return talk
