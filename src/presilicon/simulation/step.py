"""The cost of a training step on a machine: a pure function of graph, design and facts."""

from math import inf

from msgspec.structs import replace

from presilicon.base import ConfigError, unknown
from presilicon.designs import (
    MACHINES,
    Convention,
    Design,
    MachineStep,
    Numerics,
    StepFormats,
    StepPrice,
    Technology,
)
from presilicon.ops import is_unknown
from presilicon.records import Cost, Ends, Gemm, Op, OpCost, StepFacts, StepGraph, TensorRef
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.instrument import instrument_step_j
from presilicon.simulation.memory import course_of, peak_bytes
from presilicon.simulation.operators import with_arithmetic


def simulate(
    graph: StepGraph,
    design: Design,
    facts: StepFacts = StepFacts(),
    *,
    convention: Convention = "exact",
    technology: Technology | None = None,
) -> Cost:
    """Time, energy, memory and cycles of one training step of `graph` on the machine of `design`.

    With several chips `graph` is the share of each of them, so that its batch times the chips is that of the step.

    How ops share the machine depends on its kind; see `Machine.price`.

    `facts` changes the step: a skipped backward or update leaves those ops out, and a layer's format replaces the
    design's own. The density of a layer has an effect where the machine skips zeros; `Machine.remarks` says so.

    Where weights have another format than the master weights, their rounded copy is written after the update, and both
    are held in memory.

    `convention` says how the cycles of a systolic array are counted: as its cells need them, or as SCALE-Sim counts
    them. `technology` replaces the energy table that the machine names.

    Raises:
        ConfigError: the facts name a layer that the graph does not have, a pattern of the numerics matches none of its
            layers, or SCALE-Sim has no count of such an array.
    """
    formats = StepFormats(design.numerics, facts, graph)
    _check_layers(graph, facts, design.numerics)
    executed = executed_ops(graph, formats, facts)
    if (steps := design.machine.function_steps) is not None:
        executed = with_arithmetic(executed, design.numerics, steps)
    step = MachineStep(
        graph=graph,
        executed=executed,
        design=design,
        formats=formats,
        technology=technology or design.technology,
        convention=convention,
    )
    with MACHINES.errors_of(design.machine.kind):
        price = design.machine.price(step)
        _check_price(step, price)
    components = price.energy_by_component_j
    if design.instrument is not None and step.technology is not None:
        kind = design.machine.dram_kind
        watching_j = instrument_step_j(design.instrument, graph, price.time_s, step.technology, kind)
        components = components | {"instrument": watching_j}
    rule = design.machine.update_rule
    return Cost(
        time_s=price.time_s,
        energy_j=sum(components.values()),
        cycles=sum(op.cycles for op in price.ops),
        memory_bytes=peak_bytes(graph, course_of(executed, price.ops), formats),
        energy_by_component_j=components,
        ops=price.ops,
        dram_bounds=price.dram_bounds,
        cores=price.cores,
        measured=price.measured,
        unknown_operators=tuple(sorted({op.operator for op in executed if is_unknown(op)})),
        chips=rule.chips,
        batch_per_chip=graph.batch_size,
        samples_per_update=rule.samples_per_update(rule.chips * graph.batch_size),
        link_gb_s=price.link_gb_s,
        host_s=price.host_s,
    )


def simulate_gemm(gemm: Gemm, design: Design, *, convention: Convention = "exact") -> OpCost:
    """The cost of one matrix product as a forward product: A in the format of activations, B in that of weights.

    It belongs to a layer that is neither the first nor the last, and runs on one chip.

    >>> from presilicon.designs import load_design
    >>> cost = simulate_gemm(Gemm(m=512, k=256, n=128), load_design("bf16-systolic"))
    >>> cost.cycles, cost.bytes_dram
    (1788, 458752.0)
    """
    a, b = (
        TensorRef(0, (gemm.count, gemm.m, gemm.k), "activation"),
        TensorRef(1, (gemm.count, gemm.k, gemm.n), "weight"),
    )
    op = Op(
        index=0,
        name="gemm",
        kind="gemm",
        operator="presilicon.gemm",
        phase="forward",
        layer="",
        inputs=(a, b),
        outputs=(TensorRef(2, (gemm.count, gemm.m, gemm.n), "activation"),),
        flops=gemm.flops,
        gemm=gemm,
    )
    # Master weights in the format of the weights: a single product has no copy of the weights to make.
    numerics = replace(design.numerics, master=design.numerics.weight)
    plain = replace(design, numerics=numerics, machine=design.machine.for_product())
    graph = StepGraph(name="gemm", batch_size=gemm.m, ops=(op,), ends=Ends(first="another", last="another"))
    return simulate(graph, plain, convention=convention).ops[0]


def _check_price(step: MachineStep, price: StepPrice) -> None:
    """Refuse a price that would pass as a plausible number: a machine kind of a user's may return anything."""
    kind = step.design.machine.kind
    if not isinstance(price, StepPrice):
        raise ConfigError(f"machine kind {kind}: price must return a StepPrice, not {price!r}")
    if [op.index for op in price.ops] != [op.index for op in step.executed]:
        raise ConfigError(f"machine kind {kind}: price must give a cost for each executed op of the step, in order")
    totals = [("the step", price.time_s, energy_j) for energy_j in price.energy_by_component_j.values()]
    for name, time_s, energy_j in [*totals, *((op.name, op.time_s, op.energy_j) for op in price.ops)]:
        if not (0 <= time_s < inf and 0 <= energy_j < inf):
            raise ConfigError(
                f"machine kind {kind}: time and energy of {name} must be finite and at least 0, not {time_s:g} s and "
                f"{energy_j:g} J"
            )


def _check_layers(graph: StepGraph, facts: StepFacts, numerics: Numerics) -> None:
    layers = {op.layer for op in graph.ops}
    if graph.parameters:
        numerics.check_layers(layers, graph.ends)
    for layer in (*(fact.layer for fact in facts.layers), *(fact.layer for fact in facts.products)):
        if layer not in layers:
            raise unknown("layer", layer, layers - {""})
