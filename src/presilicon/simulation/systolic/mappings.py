"""Matrix products as a systolic machine maps them: formats, folds, the operand that stays, and the tiles."""

from math import ceil
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from presilicon.designs import Convention, MachineStep, StepFormats
from presilicon.formats import Format, MacUnit
from presilicon.records import Gemm, Op, Phase
from presilicon.simulation.mapping.tiles import (
    Buffer,
    ElementBytes,
    Fabric,
    K,
    M,
    MappingTask,
    N,
    TilePrice,
    find_tiles,
)
from presilicon.simulation.systolic.compression import Operands
from presilicon.simulation.systolic.cycles import ArrayCycles, gemm_cycles
from presilicon.simulation.systolic.machine import STATIONARY, Dataflow, Reduction, Stationary, SystolicMachine
from presilicon.simulation.systolic.work import Rates

_OTHER: dict[Reduction, Reduction] = {"rows": "columns", "columns": "rows"}
_STREAMS: dict[Stationary, int] = {"weight-stationary": M, "input-stationary": N, "output-stationary": K}


class ArrayProduct(Struct, frozen=True, kw_only=True):
    """A matrix product with its formats and what the machine makes of it, whichever operand stays in the array."""

    gemm: Gemm
    packed: Gemm
    """Without the zeros that the machine skips, and with as many products at once along k as a cell has lanes."""
    multiplied: float
    """Share of the multiplications of `packed` that are not gated."""
    a: Format
    b: Format
    sums: Format
    held: ElementBytes
    streamed: ElementBytes
    compressed: ElementBytes | None
    """Between memories, where operands lie compressed in them."""
    dram_shares: tuple[float, float]
    passes: int
    unit: MacUnit
    transposes: bool
    """Whether it needs transposed weights."""
    in_place: bool
    mac_j: float
    register_bit_j: float
    dram_bytes: float
    """DRAM bytes of its results and of what is added to them."""

    def register_bits(self, dataflow: Stationary) -> float:
        """Bits written to registers of the cells: each multiply-add moves all but the operand that stays."""
        a, b = (self.unit.lanes * operand.bits_per_element for operand in (self.a, self.b))
        sums = self.sums.bits_per_element
        bits = {"weight-stationary": a + sums, "input-stationary": b + sums, "output-stationary": a + b + sums}
        return self.packed.macs * bits[dataflow]


class MappedProduct(NamedTuple):
    """A product with an operand that stays in the array, and its tiles."""

    dataflow: Stationary
    array: ArrayCycles
    reload_cycles: int
    """Cycles of loading all folds once more."""
    task: MappingTask
    price: TilePrice

    @property
    def cycles(self) -> int:
        """Cycles of the array with its reloads, or of the memory on the chip that is slower."""
        own = self.array.cycles + (self.price.loads - 1) * self.reload_cycles
        return own if self.price.cycles <= own * (1 + 1e-9) else ceil(self.price.cycles)


def describe_product(
    op: Op, gemm: Gemm, step: MachineStep, machine: SystolicMachine, rates: Rates, operands: Operands
) -> ArrayProduct:
    """The formats and sizes of a product whose operands are stored like that."""
    formats, zeros = step.formats, machine.sparsity.zeros
    mac = formats.numerics_of(op.layer).mac_of(op.phase)
    # A product's inputs begin with its two factors; then comes what is added to it.
    (a, b), rest = op.inputs[:2], op.inputs[2:]
    a_format, b_format = (formats.format_of(tensor.role, op.layer, op.phase) for tensor in (a, b))
    transposes = op.phase == "input_grad" and b.role == "weight"
    held = _element_bytes(op, gemm, operands.copies, a_format, b_format, mac.widest_sum)
    # An element that im2col spreads out, or that several products of a batch share, enters the array for each of them.
    streamed = ElementBytes(
        a_format.bits_per_element / 8, b_format.bits_per_element / 8, mac.widest_sum.bits_per_element / 8
    )
    packed, on_chip = gemm, operands.on_chip
    if zeros == "weights":
        density = _weight_density(op, formats)
        packed = _pack(gemm, op.phase, density)
        if op.phase == "weight_grad":  # gradients of skipped weights are not computed
            held, streamed = (replace(element, sum=element.sum * density) for element in (held, streamed))
    simulated = formats.product_share(op.layer, op.phase, zeros)
    if simulated is not None and zeros != "gated":
        packed = replace(gemm, k=ceil(gemm.k * simulated))
    multiplied = gated_share(op, formats) if zeros == "gated" else 1.0
    energy_j = rates.mac_j(a_format, b_format, mac) * multiplied
    for inputs, fmt in zip(machine.sparsity.selected_inputs, (a_format, b_format), strict=True):
        energy_j += (inputs - 1) * fmt.bits_per_element * rates.mux_bit_j
    return ArrayProduct(
        gemm=gemm,
        packed=replace(packed, k=ceil(packed.k / mac.lanes)),
        multiplied=multiplied,
        a=a_format,
        b=b_format,
        sums=mac.widest_sum,
        held=held,
        streamed=_scale(streamed, on_chip),
        compressed=None if on_chip == (1.0, 1.0) else _scale(held, on_chip),
        dram_shares=(_ratio(operands.in_dram[0], on_chip[0]), _ratio(operands.in_dram[1], on_chip[1])),
        passes=mac.unit.interval if mac.unit else mac.passes(a_format.significand_bits, b_format.significand_bits),
        unit=mac,
        transposes=transposes,
        in_place=transposes and machine.transpose == "in-place",
        mac_j=packed.macs * energy_j,
        register_bit_j=rates.register_bit_j,
        dram_bytes=sum(formats.bytes_of(tensor, op.layer) for tensor in rest)
        + sum(formats.written_bytes(tensor, op.layer) for tensor in op.outputs),
    )


def gated_share(op: Op, formats: StepFormats) -> float:
    """Share of a product's pairs without a zero: as measured, or the density of the operand with more zeros."""
    measured = formats.product_share(op.layer, op.phase, "gated")
    if measured is not None:
        return measured
    return min(formats.density_of(tensor.role, op.layer) for tensor in op.inputs[:2])


def map_product(
    product: ArrayProduct,
    phase: Phase,
    machine: SystolicMachine,
    convention: Convention,
    rates: Rates,
    buffers: tuple[Buffer, ...],
) -> MappedProduct:
    """The best mapping of a product, of all operands that can stay in the array if the machine may choose."""
    dataflow = dataflow_of(machine, phase)
    assert dataflow != "row-stationary"
    flows = STATIONARY if dataflow == "best" else (dataflow,)
    return min(
        (_map(product, flow, machine, convention, rates, buffers) for flow in flows),
        key=lambda mapped: mapped.price.goal(machine.objective),
    )


def _map(
    product: ArrayProduct,
    dataflow: Stationary,
    machine: SystolicMachine,
    convention: Convention,
    rates: Rates,
    buffers: tuple[Buffer, ...],
) -> MappedProduct:
    reduction = _OTHER[machine.reduction] if product.in_place else machine.reduction
    once, twice = (
        gemm_cycles(
            product.packed,
            machine.rows,
            machine.cols,
            dataflow,
            convention,
            passes=product.passes,
            reduction=reduction,
            fold_overlap=machine.fold_overlap,
            loads=loads,
            depth=product.unit.unit.depth if product.unit.unit else 1,
        )
        for loads in (1, 2)
    )
    task = MappingTask(
        gemm=product.gemm,
        held=product.held,
        streamed=product.streamed,
        folds=(once.fold_m, once.fold_k, once.fold_n),
        cycles=float(once.cycles),
        reload_cycles=float(twice.cycles - once.cycles),
        fixed_j=product.mac_j + product.register_bits(dataflow) * product.register_bit_j,
        other_dram_bytes=product.dram_bytes,
        compressed=product.compressed,
        dram_shares=product.dram_shares,
    )
    static_w = rates.leakage_w or 0.0
    fabric = Fabric(
        steps=_steps(dataflow, *lanes_of(machine, product.in_place), product.unit.lanes),
        stream=_STREAMS[dataflow],
        buffers=buffers,
        dram_bytes_per_cycle=machine.dram_gb_s / machine.clock_ghz,
        dram_byte_j=rates.dram_byte_j + rates.sram_byte_j,
        cycle_j=static_w / (machine.clock_ghz * 1e9),
    )
    return MappedProduct(dataflow, once, twice.cycles - once.cycles, task, find_tiles(task, fabric, machine.objective))


def _weight_density(op: Op, formats: StepFormats) -> float:
    """Density of the weights that a product multiplies by, or whose gradient it computes."""
    is_product_of_weights = op.phase == "weight_grad" or op.inputs[1].role == "weight"
    return formats.density_of("weight", op.layer) if is_product_of_weights else 1.0


def _pack(gemm: Gemm, phase: Phase, density: float) -> Gemm:
    """The product without its zero weights: a shorter reduction, or fewer gradients of weights."""
    side = "n" if phase == "weight_grad" else "k"
    return replace(gemm, **{side: ceil(getattr(gemm, side) * density)})


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _scale(element: ElementBytes, shares: tuple[float, float]) -> ElementBytes:
    """Bytes of compressed operands."""
    return ElementBytes(element.a * shares[0], element.b * shares[1], element.sum)


def _element_bytes(
    op: Op, gemm: Gemm, copies: tuple[int, int, int], a: Format, b: Format, sums: Format
) -> ElementBytes:
    """Bytes of an element of the product in the buffer.

    A tensor that im2col spreads out over more elements is held once, and what a stride skips is not fetched; results
    that are added into fewer elements (the input gradient of a convolution) are added in the buffer. A core among
    several owns a part of what it needs: see `Operands.copies`.
    """

    def share(elements: int, spread: int) -> float:
        return min(1.0, elements / (gemm.count * spread))

    outputs = sum(tensor.elements for tensor in op.outputs)
    return ElementBytes(
        a.bits_per_element / 8 * share(copies[0] * op.inputs[0].elements, gemm.m * gemm.k),
        b.bits_per_element / 8 * share(copies[1] * op.inputs[1].elements, gemm.k * gemm.n),
        sums.bits_per_element / 8 * share(copies[2] * outputs, gemm.m * gemm.n),
    )


def dataflow_of(machine: SystolicMachine, phase: Phase) -> Dataflow:
    """The dataflow of a product; products that are not gradients, also those of an update, run as forward products."""
    if phase == "input_grad":
        return machine.dataflow.input_grad
    return machine.dataflow.weight_grad if phase == "weight_grad" else machine.dataflow.forward


def lanes_of(machine: SystolicMachine, in_place: bool) -> tuple[int, int]:
    """Cells along the reduction of a product, and across it."""
    on_rows = (machine.reduction == "rows") != in_place
    return (machine.rows, machine.cols) if on_rows else (machine.cols, machine.rows)


def _steps(dataflow: Stationary, on_reduction: int, across: int, lanes: int) -> tuple[int, int, int]:
    """The sizes along m, k and n that one fold takes; a dimension that streams can be cut anywhere."""
    if dataflow == "weight-stationary":
        return 1, on_reduction * lanes, across
    return (across, on_reduction * lanes, 1) if dataflow == "input-stationary" else (on_reduction, lanes, across)
