"""The cost of a training step on a machine: a pure function of graph, design and facts."""

from collections.abc import Iterator
from functools import cache
from math import ceil

from presilicon.base.errors import unknown
from presilicon.designs import Design, SystolicMachine, curve_pj, load_technology
from presilicon.records import Cost, Gemm, Op, OpCost, StepFacts, StepGraph, TensorRef
from presilicon.records.cost import Bound
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.memory import peak_bytes
from presilicon.simulation.products import Resident, array_work, resident_after
from presilicon.simulation.systolic import Convention
from presilicon.simulation.timeline import Demand, Span, lay_out
from presilicon.simulation.work import PICO, Formats, Work


def simulate(
    graph: StepGraph, design: Design, facts: StepFacts = StepFacts(), *, convention: Convention = "exact"
) -> Cost:
    """Time, energy, memory and cycles of one training step of `graph` on the machine of `design`.

    Ops run one after another; each takes the longer of its compute cycles and its DRAM traffic, less what the machine
    prefetched. Every op reads its inputs from DRAM and writes its outputs there (no fusion between ops).

    `facts` changes the step: a skipped backward or update leaves those ops out, and a layer's format replaces the
    design's own. The density of a layer changes nothing here: a dense array does not skip zeros.

    Where weights are kept in another format than the master weights, their rounded copy is written after the update,
    and both are held in memory.

    `convention` says how the cycles of the array are counted: as its cells need them, or as SCALE-Sim counts them.

    Raises:
        ConfigError: the facts name a layer that the graph does not have, or SCALE-Sim has no count of such an array.
    """
    formats = Formats(design.numerics, facts)
    _check_layers(graph, facts)
    executed = executed_ops(graph, formats, facts)
    works = _works(graph, executed, design, formats, convention)
    spans = lay_out(_demands(executed, works, design, formats), prefetch=design.machine.prefetch)
    components = {"mac": 0.0, "vector": 0.0, "sram": 0.0, "dram": 0.0}
    ops: list[OpCost] = []
    for op, work, span in zip(executed, works, spans, strict=True):
        energy = work.energy_j(design)
        for component, joules in energy.items():
            components[component] += joules
        ops.append(_op_cost(op, work, span, sum(energy.values()), design.machine))
    return Cost(
        time_s=sum(op.time_s for op in ops),
        energy_j=sum(components.values()),
        cycles=sum(op.cycles for op in ops),
        memory_bytes=peak_bytes(graph, executed, formats),
        energy_by_component_j=components,
        ops=tuple(ops),
    )


def simulate_gemm(gemm: Gemm, design: Design, *, convention: Convention = "exact") -> OpCost:
    """What one matrix product costs as a forward product: A in the format of activations, B in that of weights.

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
    return simulate(StepGraph(name="gemm", batch_size=gemm.m, ops=(op,)), design, convention=convention).ops[0]


def _check_layers(graph: StepGraph, facts: StepFacts) -> None:
    layers = {op.layer for op in graph.ops}
    for fact in facts.layers:
        if fact.layer not in layers:
            raise unknown("layer", fact.layer, layers - {""})


def _works(
    graph: StepGraph, executed: list[Op], design: Design, formats: Formats, convention: Convention
) -> list[Work]:
    whole = {tensor.id: tensor.elements for tensor in graph.parameters}
    resident: Resident | None = None
    works: list[Work] = []
    for op in executed:
        if op.gemm:
            works.append(array_work(op, op.gemm, design, formats, resident=resident, convention=convention))
        else:
            works.append(_vector_work(op, design, formats))
        resident = resident_after(op, design, formats, whole, resident)
    return works


def _demands(executed: list[Op], works: list[Work], design: Design, formats: Formats) -> Iterator[Demand]:
    """Compute and transfer of each op; early is what the op before does not make and half of the buffer can take."""
    machine = design.machine
    bytes_s = machine.dram_gb_s * 1e9
    made: set[int] = set()
    for op, work in zip(executed, works, strict=True):
        early = 0.0
        if machine.prefetch:
            waiting = sum(formats.bytes_of(tensor, op.layer) for tensor in op.inputs if tensor.id not in made)
            early = min(waiting, machine.sram_kib * 1024 / 2)
            made = {tensor.id for tensor in op.outputs}
        yield Demand(
            compute_s=work.cycles * 1e-9 / machine.clock_ghz,
            transfer_s=work.bytes_dram / bytes_s,
            early_s=early / bytes_s,
        )


def _op_cost(op: Op, work: Work, span: Span, energy_j: float, machine: SystolicMachine) -> OpCost:
    compute_s, memory_s = work.cycles * 1e-9 / machine.clock_ghz, work.bytes_dram / (machine.dram_gb_s * 1e9)
    intensity = op.flops / work.bytes_dram if work.bytes_dram else 0.0
    reach = intensity * machine.dram_gb_s * 1e9 if work.bytes_dram else work.peak_flops_s
    return OpCost(
        index=op.index,
        name=op.name,
        kind=op.kind,
        phase=op.phase,
        layer=op.layer,
        unit=work.unit,
        start_s=span.start_s,
        time_s=span.time_s,
        cycles=work.cycles,
        energy_j=energy_j,
        bytes_dram=work.bytes_dram,
        bytes_sram=work.bytes_sram,
        flops=op.flops,
        utilization=work.utilization,
        compute_s=compute_s,
        memory_s=memory_s,
        prefetched_s=span.prefetched_s,
        intensity=intensity,
        roof_flops_s=min(work.peak_flops_s, reach),
        bound=_bound(compute_s, memory_s - span.prefetched_s),
    )


def _bound(compute_s: float, memory_s: float) -> Bound:
    if compute_s == memory_s == 0:
        return "none"
    return "compute" if compute_s >= memory_s else "memory"


def _vector_work(op: Op, design: Design, formats: Formats) -> Work:
    """Anything else, in float32 on the vector unit: one result per lane and cycle; a move takes lanes, no arithmetic.

    Its arithmetic is priced by the adder's figure, whatever it is.
    """
    traffic = sum(formats.bytes_of(tensor, op.layer) for tensor in op.inputs + op.outputs)
    return Work(
        unit="vector",
        cycles=ceil(max(op.flops, op.elements_out) / design.machine.vector_lanes),
        operations_j=op.flops * _adder_pj(design.machine.technology) * PICO,
        bytes_dram=traffic,
        bytes_sram=traffic,
        peak_flops_s=design.machine.vector_lanes * design.machine.clock_ghz * 1e9,
    )


@cache
def _adder_pj(technology: str) -> float:
    return curve_pj(load_technology(technology).float_add, 32)
