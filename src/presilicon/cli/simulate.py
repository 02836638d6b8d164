"""`presilicon simulate`: what one training step, or one matrix product, costs on a design."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import click
from click.core import ParameterSource

from presilicon.base.errors import ConfigError
from presilicon.cli.options import json_option, numerics_option, set_option
from presilicon.designs.systolic import Dataflow

if TYPE_CHECKING:
    from presilicon.designs import Design
    from presilicon.records import Cost, StepGraph
    from presilicon.simulation.systolic import Convention

_LARGEST_SIDE = 1 << 30
_LARGEST_ARRAY = 1 << 20


@click.command("simulate")
@click.argument("design")
@click.option("--workload", metavar="NAME", help="See `presilicon list workloads`.")
@click.option("--gemm", metavar="MxKxN", help="In place of a workload: one product C[M,N] = A[M,K] B[K,N].")
@click.option("--batch", type=click.IntRange(min=1), help="Batch size, in place of the workload's own.")
@click.option("--ops", type=click.IntRange(min=0), default=12, show_default=True, help="How many ops to list.")
@click.option("--chakra", type=click.Path(dir_okay=False), help="Write the step as a Chakra execution trace, as well.")
@click.option("--memory-plot", type=click.Path(dir_okay=False), help="Draw what the step holds over time (.png, .svg).")
@click.option("--array", metavar="ROWSxCOLUMNS", help="Size of the systolic array, in place of the design's.")
@click.option("--dataflow", type=click.Choice(get_args(Dataflow)), help="Of every product, in place of the design's.")
@click.option("--fold-overlap/--no-fold-overlap", default=None, help="Whether loads hide behind streaming.")
@click.option(
    "--convention",
    type=click.Choice(["exact", "scale-sim"]),
    default="exact",
    show_default=True,
    help="Count the array's cycles as its cells need them, or as SCALE-Sim does.",
)
@numerics_option
@set_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    design: str,
    workload: str | None,
    gemm: str | None,
    batch: int | None,
    ops: int,
    chakra: str | None,
    memory_plot: str | None,
    array: str | None,
    dataflow: str | None,
    fold_overlap: bool | None,
    convention: str,
    numerics: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Price one training step of a workload, or one matrix product, on DESIGN: time, energy and traffic.

    \b
    Examples:
      presilicon simulate bf16-systolic --workload digits-cnn --batch 256
      presilicon simulate bf16-systolic --gemm 512x256x128 --array 32x32 --dataflow output-stationary
    """
    if (workload is None) == (gemm is None):
        raise ConfigError("give either --workload NAME or --gemm MxKxN, as in --gemm 512x256x128")
    sides = None if gemm is None else _sizes("--gemm", gemm, "MxKxN", 3, _LARGEST_SIDE)
    overrides = list(settings)
    if array is not None:
        rows, cols = _sizes("--array", array, "ROWSxCOLUMNS", 2, _LARGEST_ARRAY)
        overrides += [f"machine.rows={rows}", f"machine.cols={cols}"]
    if dataflow is not None:
        overrides += [f"machine.dataflow.{phase}={dataflow}" for phase in ("forward", "input_grad", "weight_grad")]
    if fold_overlap is not None:
        overrides.append(f"machine.fold_overlap={str(fold_overlap).lower()}")
    if sides is not None:
        for option in ("batch", "ops", "chakra", "memory_plot"):
            if context.get_parameter_source(option) is not ParameterSource.DEFAULT:
                given = option.replace("_", "-")
                raise ConfigError(f"--{given} is for --workload; a single product has no batch and no ops to list")
        overrides.append("machine.transpose=free")  # a single product uses nothing transposed

    from presilicon.designs import load_design

    loaded = load_design(design, overrides, numerics=numerics)
    counted = cast("Convention", convention)
    if sides is not None:
        _print_product(sides, loaded, counted, as_json)
    else:
        _print_step(str(workload), loaded, counted, batch, ops, as_json, chakra, memory_plot)


def _print_product(sides: tuple[int, ...], design: "Design", convention: "Convention", as_json: bool) -> None:
    from presilicon.records import Gemm
    from presilicon.report.steps import product_to_json, render_product
    from presilicon.simulation import simulate_gemm

    gemm, machine = Gemm(*sides), design.machine
    cost = simulate_gemm(gemm, design, convention=convention)
    priced = {
        "array": f"{machine.rows}x{machine.cols}",
        "dataflow": machine.dataflow.forward,
        "reduction": machine.reduction,
        "fold_overlap": machine.fold_overlap,
        "convention": convention,
    }
    write = product_to_json if as_json else render_product
    click.echo(write(cost, design=design.name, gemm=gemm, settings=priced), nl=False)


def _print_step(
    name: str,
    design: "Design",
    convention: "Convention",
    batch: int | None,
    ops: int,
    as_json: bool,
    chakra: str | None,
    memory_plot: str | None,
) -> None:
    from presilicon.workloads import load_workload

    workload = load_workload(name)

    from presilicon.report import cost_to_json, print_cost
    from presilicon.simulation import simulate, write_chakra
    from presilicon.workloads.capture import capture_workload

    graph = capture_workload(workload, batch_size=batch)
    cost = simulate(graph, design, convention=convention)
    if chakra is not None:
        write_chakra(chakra, graph, design, cost)
    if as_json:
        click.echo(cost_to_json(cost, design=design.name, graph=graph), nl=False)
    else:
        print_cost(cost, design=design.name, graph=graph, ops=ops)
    if memory_plot is not None:
        _draw_memory(Path(memory_plot), graph, design, cost, as_json)


def _draw_memory(path: Path, graph: "StepGraph", design: "Design", cost: "Cost", as_json: bool) -> None:
    from presilicon.report import render_memory, save_memory_plot
    from presilicon.simulation import memory_timeline

    timeline = memory_timeline(graph, design, cost)
    save_memory_plot(timeline, path, title=f"{graph.name}, batch {graph.batch_size}, on {design.name}")
    click.echo(f"\n{render_memory(timeline)}memory plot: {path}", err=as_json)


def _sizes(option: str, text: str, form: str, count: int, largest: int) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if len(parts) != count or not all(re.fullmatch("[0-9]{1,100}", part) for part in parts):
        raise ConfigError(f"{option} {text[:60]!r}: write {count} whole numbers as {form}, as in {_EXAMPLES[option]}")
    sizes = tuple(int(part) for part in parts)
    for size in sizes:
        if not 1 <= size <= largest:
            raise ConfigError(f"{option} {text[:60]!r}: {size} is not between 1 and {largest}")
    return sizes


_EXAMPLES = {"--gemm": "512x256x128", "--array": "32x32"}
