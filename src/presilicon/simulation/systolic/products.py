"""Matrix products on the systolic array: cycles, traffic and energy, and what stays in the array after them."""

from collections.abc import Mapping
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from presilicon.designs import MachineStep, StepFormats
from presilicon.formats import Format
from presilicon.records import Gemm, Op, Phase
from presilicon.simulation.systolic.cycles import ArrayCycles, gemm_cycles, transposer_cycles, transposer_writes
from presilicon.simulation.systolic.machine import Dataflow, Reduction, SystolicMachine
from presilicon.simulation.systolic.tiling import ElementBytes, find_tiling
from presilicon.simulation.systolic.work import Rates, Work

_OTHER: dict[Reduction, Reduction] = {"rows": "columns", "columns": "rows"}


class Resident(Struct, frozen=True, kw_only=True):
    """Weights whose last tile is still in the array after a product."""

    storage: int
    height: int
    """Rows of W, as the forward product uses it."""
    width: int
    transposed: bool
    """Whether the cells hold the layout that a transposed copy has."""
    format: Format


def array_work(
    op: Op,
    gemm: Gemm,
    step: MachineStep,
    machine: SystolicMachine,
    rates: Rates,
    *,
    resident: Resident | None = None,
) -> Work:
    """A matrix product on the array.

    Between the buffer and the array, an operand crosses once in each fold that uses it, and partial sums once and back
    in each fold along the reduction. Between DRAM and the buffer, the tiling with the least traffic decides; half of
    the buffer holds the tiles in use. The cycles are those of whole streams, however the tiles cut them.

    Each multiply-add writes the registers of what moves through its cell, and of its sum; loading and draining the
    cells are not charged to registers.

    The input gradient uses transposed weights. In place, it reads them in the layout of the forward product, with the
    reduction in the other direction of the array. With a transposer, the copy costs its cycles, and one read and one
    write of the weights in the buffer, in DRAM too when the buffer cannot hold them. Where the array holds the last
    tile of the same weights in the same layout (`resident`), that tile is neither fetched nor loaded; SCALE-Sim's
    convention always loads it.
    """
    formats, convention = step.formats, step.convention
    dataflow = dataflow_of(machine, op.phase)
    mac = formats.numerics_of(op.layer).mac_of(op.phase)
    half_buffer = machine.buffer.usable_bits / 8

    # A product's inputs begin with its two factors; then comes what is added to it.
    (a, b), rest = op.inputs[:2], op.inputs[2:]
    b_bytes = formats.bytes_of(b, op.layer, op.phase)
    a_format = formats.format_of(a.role, op.layer, op.phase)
    b_format = formats.format_of(b.role, op.layer, op.phase)
    transposes = op.phase == "input_grad" and b.role == "weight"
    in_place = transposes and machine.transpose == "in-place"
    reuses_tile = convention == "exact" and resident is not None and resident == _resident_weights(op, machine, formats)
    density = _weight_density(op, formats) if machine.skips_zero_weights else 1.0
    packed = _pack(gemm, op.phase, density)
    passes = mac.passes(a_format.significand_bits, b_format.significand_bits)
    array = gemm_cycles(
        packed,
        machine.rows,
        machine.cols,
        dataflow,
        convention,
        passes=passes,
        reduction=_OTHER[machine.reduction] if in_place else machine.reduction,
        fold_overlap=machine.fold_overlap,
        resident=reuses_tile,
    )
    # im2col reads an input element once for each kernel position, so the buffer sees m * k of them.
    a_streamed = gemm.count * gemm.m * gemm.k * a_format.bits_per_element / 8
    sums = gemm.count * gemm.m * gemm.n * mac.accumulate.bits_per_element / 8
    element = _element_bytes(op, gemm, a_format, b_format, mac.accumulate)
    if density < 1:
        element, b_bytes, sums = _compress(op.phase, density, element, b_bytes, sums, b.elements)
    bytes_sram = a_streamed * array.fold_n + b_bytes * array.fold_m + sums * (2 * array.fold_k - 1)
    lanes = _lanes(machine, in_place)
    tiling = find_tiling(gemm, _steps(dataflow, *lanes), element, half_buffer)
    a_loads, b_loads, spills = tiling.traffic(gemm, element)
    cycles = array.cycles
    if reuses_tile:
        saved = _last_tile(gemm, array, *lanes) * b_format.bits_per_element / 8
        bytes_sram -= saved
        b_loads -= saved
    register_bits = packed.macs * _moved_bits(dataflow, a_format, b_format, mac.accumulate)
    if transposes and machine.transpose == "transposer":
        writes = transposer_writes(gemm.n, gemm.k, machine.rows, machine.cols, gemm.count)
        register_bits += writes * b_format.bits_per_element
        cycles += transposer_cycles(gemm.n, gemm.k, machine.rows, machine.cols, gemm.count)
        bytes_sram += 2 * b_bytes
        spills += 2 * b_bytes if b_bytes / gemm.count > half_buffer else 0.0
    return Work(
        unit="array",
        cycles=cycles,
        operations_j=packed.macs * rates.mac_j(a_format, b_format, mac.accumulate),
        register_bits=register_bits,
        loads=(a_loads, b_loads, *(formats.bytes_of(tensor, op.layer) for tensor in rest)),
        stores=tuple(formats.written_bytes(tensor, op.layer) for tensor in op.outputs),
        spills=spills,
        bytes_sram=bytes_sram,
        peak_flops_s=2e9 * machine.rows * machine.cols * machine.clock_ghz / passes,
        utilization=packed.macs / (max(cycles, 1) * machine.rows * machine.cols),
    )


def _weight_density(op: Op, formats: StepFormats) -> float:
    """Density of the weights that a product multiplies by, or whose gradient it computes."""
    is_product_of_weights = op.phase == "weight_grad" or op.inputs[1].role == "weight"
    return formats.density_of("weight", op.layer) if is_product_of_weights else 1.0


def _pack(gemm: Gemm, phase: Phase, density: float) -> Gemm:
    """The product without its zero weights: a shorter reduction, or fewer gradients of weights."""
    side = "n" if phase == "weight_grad" else "k"
    return replace(gemm, **{side: ceil(getattr(gemm, side) * density)})


def _compress(
    phase: Phase, density: float, element: ElementBytes, b_bytes: float, sums: float, elements: int
) -> tuple[ElementBytes, float, float]:
    """Bytes of packed weights, with one bit of mask for each element, and of the gradients that are computed."""
    if phase == "weight_grad":
        return replace(element, sum=element.sum * density), b_bytes, sums * density
    return replace(element, b=element.b * density + 1 / 8), b_bytes * density + elements / 8, sums


def resident_after(
    op: Op, machine: SystolicMachine, formats: StepFormats, whole: Mapping[int, int], before: Resident | None
) -> Resident | None:
    """Weights in the array after `op`, unless another product or an update of the weights has replaced them.

    `whole` gives the elements of each parameter: a part of one (the three projections of attention share a storage)
    is not confused with another part of it.
    """
    if op.gemm is None:
        changed = before is not None and any(tensor.id == before.storage for tensor in op.outputs)
        return None if changed else before
    weight = op.inputs[1]
    return _resident_weights(op, machine, formats) if whole.get(weight.id) == weight.elements else None


def dataflow_of(machine: SystolicMachine, phase: Phase) -> Dataflow:
    """The dataflow of a product; products that are not gradients, also those of an update, run as forward products."""
    if phase == "input_grad":
        return machine.dataflow.input_grad
    return machine.dataflow.weight_grad if phase == "weight_grad" else machine.dataflow.forward


def _resident_weights(op: Op, machine: SystolicMachine, formats: StepFormats) -> Resident | None:
    """The weights whose tile a product keeps in the array; None when it keeps no weights there."""
    weight, gemm = op.inputs[1], op.gemm
    stays = dataflow_of(machine, op.phase) == "weight-stationary" and weight.role == "weight"
    if gemm is None or gemm.count != 1 or not stays:
        return None
    backward = op.phase == "input_grad"
    return Resident(
        storage=weight.id,
        height=gemm.n if backward else gemm.k,
        width=gemm.k if backward else gemm.n,
        transposed=backward and machine.transpose != "in-place",
        format=formats.format_of(weight.role, op.layer, op.phase),
    )


def _element_bytes(op: Op, gemm: Gemm, a: Format, b: Format, sums: Format) -> ElementBytes:
    """Bytes of an element of the product in the buffer.

    A tensor that im2col spreads out over more elements is held once, and what a stride skips is not fetched; results
    that are added into fewer elements (the input gradient of a convolution) are added in the buffer.
    """

    def share(elements: int, spread: int) -> float:
        return min(1.0, elements / (gemm.count * spread))

    outputs = sum(tensor.elements for tensor in op.outputs)
    return ElementBytes(
        a.bits_per_element / 8 * share(op.inputs[0].elements, gemm.m * gemm.k),
        b.bits_per_element / 8 * share(op.inputs[1].elements, gemm.k * gemm.n),
        sums.bits_per_element / 8 * share(outputs, gemm.m * gemm.n),
    )


def _moved_bits(dataflow: Dataflow, a: Format, b: Format, sums: Format) -> float:
    """Bits that one multiply-add writes to registers: all but the operand that stays."""
    everything = a.bits_per_element + b.bits_per_element + sums.bits_per_element
    stays = {"weight-stationary": b.bits_per_element, "input-stationary": a.bits_per_element, "output-stationary": 0.0}
    return everything - stays[dataflow]


def _lanes(machine: SystolicMachine, in_place: bool) -> tuple[int, int]:
    """Cells along the reduction of a product, and across it."""
    on_rows = (machine.reduction == "rows") != in_place
    return (machine.rows, machine.cols) if on_rows else (machine.cols, machine.rows)


def _steps(dataflow: Dataflow, on_reduction: int, across: int) -> tuple[int, int, int]:
    """The sizes along m, k and n that one fold takes; a dimension that streams can be cut anywhere."""
    if dataflow == "weight-stationary":
        return 1, on_reduction, across
    return (across, on_reduction, 1) if dataflow == "input-stationary" else (on_reduction, 1, across)


def _last_tile(gemm: Gemm, array: ArrayCycles, on_reduction: int, across: int) -> int:
    """Elements of the last tile of the weights: what is left over in a ragged fold."""
    return (gemm.k - (array.fold_k - 1) * on_reduction) * (gemm.n - (array.fold_n - 1) * across)
