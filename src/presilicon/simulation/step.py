"""The cost of a training step on a machine: a pure function of graph, design and facts."""

from math import ceil

from msgspec import Struct

from presilicon.base.errors import unknown
from presilicon.designs import Design, Technology, curve_pj, load_technology
from presilicon.designs.numerics import Numerics
from presilicon.formats import Format, parse
from presilicon.records import Cost, Gemm, Op, OpCost, Role, StepFacts, StepGraph, TensorRef
from presilicon.records.cost import Bound
from presilicon.simulation.memory import peak_transient_bytes
from presilicon.simulation.systolic import gemm_cycles

PICO = 1e-12


def simulate(graph: StepGraph, design: Design, facts: StepFacts = StepFacts()) -> Cost:
    """Time, energy, memory and cycles of one training step of `graph` on the machine of `design`.

    Ops run one after another; each takes the longer of its compute cycles and its DRAM traffic. Every op reads its
    inputs from DRAM and writes its outputs there (no fusion between ops). `facts` changes the step: a skipped backward
    or update leaves those ops out, and a layer's format replaces the design's own. The density of a layer changes
    nothing here: a dense array does not skip zeros.

    Where weights are kept in another format than the master weights, their rounded copy is written after the update,
    and both are held in memory.

    Raises:
        ConfigError: the facts name a layer that the graph does not have.
    """
    formats = _Formats(design.numerics, facts)
    _check_layers(graph, facts)
    executed = [op for op in graph.ops if not _is_skipped(op, facts)]
    if formats.copies_weights and graph.parameters and not facts.update_skipped:
        executed.append(_copy_weights(graph))
    ops: list[OpCost] = []
    components = {"mac": 0.0, "vector": 0.0, "sram": 0.0, "dram": 0.0}
    clock_s = 1e-9 / design.machine.clock_ghz
    start_s = 0.0
    for op in executed:
        work = _array_work(op, op.gemm, design, formats) if op.gemm else _vector_work(op, design, formats)
        compute_s = work.cycles * clock_s
        memory_s = work.bytes_dram / (design.machine.dram_gb_s * 1e9)
        time_s = max(compute_s, memory_s)
        energy = work.energy_j(design)
        for component, joules in energy.items():
            components[component] += joules
        ops.append(
            OpCost(
                index=op.index,
                name=op.name,
                kind=op.kind,
                phase=op.phase,
                layer=op.layer,
                unit=work.unit,
                start_s=start_s,
                time_s=time_s,
                cycles=work.cycles,
                energy_j=sum(energy.values()),
                bytes_dram=work.bytes_dram,
                bytes_sram=work.bytes_sram,
                flops=op.flops,
                utilization=work.utilization,
                bound=_bound(compute_s, memory_s),
            )
        )
        start_s += time_s
    return Cost(
        time_s=start_s,
        energy_j=sum(components.values()),
        cycles=sum(op.cycles for op in ops),
        memory_bytes=_memory_bytes(graph, executed, formats),
        energy_by_component_j=components,
        ops=tuple(ops),
    )


class _Work(Struct, frozen=True, kw_only=True):
    """What an op asks of the machine, before time and energy are put on it."""

    unit: str
    cycles: int
    operations_j: float
    bytes_dram: float
    bytes_sram: float
    utilization: float = 0.0

    def energy_j(self, design: Design) -> dict[str, float]:
        technology = load_technology(design.machine.technology)
        sram_pj_per_byte = curve_pj(technology.sram_64bit, design.machine.sram_kib) / 8
        dram_pj_per_byte = technology.dram_64bit.pj / 8
        return {
            "mac" if self.unit == "array" else "vector": self.operations_j,
            "sram": self.bytes_sram * sram_pj_per_byte * PICO,
            "dram": self.bytes_dram * dram_pj_per_byte * PICO,
        }


class _Formats:
    """The format in force for a layer's role: the facts' own where they name one, or else the design's."""

    def __init__(self, numerics: Numerics, facts: StepFacts) -> None:
        self._numerics = numerics
        self._special = {(fact.layer, fact.role): parse(fact.format) for fact in facts.layers if fact.format}

    def of(self, role: Role, layer: str) -> Format:
        return self._special.get((layer, role)) or self._numerics.of(role).format

    def bytes_of(self, tensor: TensorRef, layer: str) -> float:
        return tensor.elements * self.of(tensor.role, layer).bits_per_element / 8

    @property
    def copies_weights(self) -> bool:
        """Whether the weights that products use are another copy than the master weights."""
        return self._numerics.weight.format != self._numerics.master.format


def _check_layers(graph: StepGraph, facts: StepFacts) -> None:
    layers = {op.layer for op in graph.ops}
    for fact in facts.layers:
        if fact.layer not in layers:
            raise unknown("layer", fact.layer, layers - {""})


def _copy_weights(graph: StepGraph) -> Op:
    """The rounding of the master weights to the copy that the next step uses."""
    master = tuple(TensorRef(tensor.id, tensor.shape, "master") for tensor in graph.parameters)
    return Op(
        index=len(graph.ops),
        name="update.round_weights",
        kind="copy",
        operator="presilicon.round",
        phase="update",
        layer="",
        inputs=master,
        outputs=graph.parameters,
        flops=graph.parameter_elements,
    )


def _memory_bytes(graph: StepGraph, executed: list[Op], formats: "_Formats") -> float:
    """What the step holds at its peak: master weights, their rounded copy, optimizer state, and what comes and goes."""
    resident = {tensor.id for tensor in graph.parameters + graph.state}
    held = sum(formats.bytes_of(tensor, "") for tensor in graph.state)
    for tensor in graph.parameters:
        held += formats.bytes_of(TensorRef(tensor.id, tensor.shape, "master"), "")
        held += formats.bytes_of(tensor, "") if formats.copies_weights else 0.0
    return held + peak_transient_bytes(executed, resident, formats.bytes_of)


def _is_skipped(op: Op, facts: StepFacts) -> bool:
    backward = op.phase in ("input_grad", "weight_grad")
    return (backward and facts.backward_skipped) or (op.phase == "update" and facts.update_skipped)


def _bound(compute_s: float, memory_s: float) -> Bound:
    if compute_s == memory_s == 0:
        return "none"
    return "compute" if compute_s >= memory_s else "memory"


def _array_work(op: Op, gemm: Gemm, design: Design, formats: _Formats) -> _Work:
    """A matrix product on the array.

    The stationary operand crosses DRAM and the buffer once. The streamed operand crosses the buffer once in each fold
    across the array, and DRAM as often unless it fits in half of the buffer. Partial sums of folds along the reduction
    stay in the buffer when they fit in half of it, and go to DRAM and back when not.
    """
    machine = design.machine
    dataflow = machine.dataflow.forward
    if op.phase == "input_grad":
        dataflow = machine.dataflow.input_grad
    elif op.phase == "weight_grad":
        dataflow = machine.dataflow.weight_grad
    mac = design.numerics.mac_of(op.phase)
    half_buffer = machine.sram_kib * 1024 / 2

    # A product's inputs begin with its two factors; then comes what is added to it.
    (a, b), rest = op.inputs[:2], op.inputs[2:]
    a_bytes, b_bytes = formats.bytes_of(a, op.layer), formats.bytes_of(b, op.layer)
    a_format, b_format = formats.of(a.role, op.layer), formats.of(b.role, op.layer)
    passes = mac.passes(a_format.significand_bits, b_format.significand_bits)
    array = gemm_cycles(gemm, machine.rows, machine.cols, dataflow, passes=passes)
    out_bytes = sum(formats.bytes_of(tensor, op.layer) for tensor in op.outputs)
    # im2col reads an input element once for each kernel position, so the buffer sees m * k of them.
    a_streamed = gemm.count * gemm.m * gemm.k * a_format.bits_per_element / 8
    sums = gemm.count * gemm.m * gemm.n * mac.accumulate.bits_per_element / 8

    if dataflow == "output-stationary":
        a_passes, b_passes, sum_passes = array.fold_cols, array.fold_rows, 1
    elif dataflow == "weight-stationary":
        a_passes, b_passes, sum_passes = array.fold_cols, 1, array.fold_rows
    else:
        a_passes, b_passes, sum_passes = 1, array.fold_cols, array.fold_rows
    bytes_sram = a_streamed * a_passes + b_bytes * b_passes + sums * (2 * sum_passes - 1)
    bytes_dram = (
        a_bytes * (a_passes if a_bytes / gemm.count > half_buffer else 1)
        + b_bytes * (b_passes if b_bytes / gemm.count > half_buffer else 1)
        + sum(formats.bytes_of(tensor, op.layer) for tensor in rest)
        + out_bytes
    )
    if sums / gemm.count > half_buffer:
        bytes_dram += 2 * (sum_passes - 1) * sums
    return _Work(
        unit="array",
        cycles=array.cycles,
        operations_j=gemm.macs
        * _mac_pj(a_format, b_format, mac.accumulate, load_technology(machine.technology))
        * PICO,
        bytes_dram=bytes_dram,
        bytes_sram=bytes_sram,
        utilization=gemm.macs / (array.cycles * machine.rows * machine.cols),
    )


def _mac_pj(a: Format, b: Format, accumulate: Format, technology: Technology) -> float:
    """Picojoules of one multiply-add.

    The multiplier's figure is read at the geometric mean of the two significand widths (its area is their product), the
    adder's at the width of the accumulator. Numbers without an exponent of their own are multiplied as integers.
    """
    width = (a.significand_bits * b.significand_bits) ** 0.5
    is_integer = a.exponent_bits == b.exponent_bits == 0
    multiply = curve_pj(technology.int_multiply if is_integer else technology.float_multiply, width)
    adder = technology.int_add if accumulate.exponent_bits == 0 else technology.float_add
    return multiply + curve_pj(adder, accumulate.bits_per_element)


def _vector_work(op: Op, design: Design, formats: _Formats) -> _Work:
    """Anything else, in float32 on the vector unit: one result per lane and cycle; a move takes lanes, no arithmetic.

    Its arithmetic is priced by the adder's figure, whatever it is.
    """
    traffic = sum(formats.bytes_of(tensor, op.layer) for tensor in op.inputs + op.outputs)
    technology = load_technology(design.machine.technology)
    return _Work(
        unit="vector",
        cycles=ceil(max(op.flops, op.elements_out) / design.machine.vector_lanes),
        operations_j=op.flops * curve_pj(technology.float_add, 32) * PICO,
        bytes_dram=traffic,
        bytes_sram=traffic,
    )
