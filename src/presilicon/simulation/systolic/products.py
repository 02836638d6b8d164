"""Matrix products on the systolic array: cycles, traffic and energy, and what stays in the array after them."""

from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Convention, Design, MachineStep, StepFormats
from presilicon.formats import Format
from presilicon.records import Gemm, Op, Phase
from presilicon.simulation.mapping.tiles import (
    Buffer,
    ElementBytes,
    Fabric,
    K,
    M,
    N,
    Task,
    TilePrice,
    find_tiles,
    least_traffic,
)
from presilicon.simulation.systolic.cycles import ArrayCycles, gemm_cycles, transposer_cycles, transposer_writes
from presilicon.simulation.systolic.machine import STATIONARY, Dataflow, Reduction, Stationary, SystolicMachine
from presilicon.simulation.systolic.work import Rates, Work

_OTHER: dict[Reduction, Reduction] = {"rows": "columns", "columns": "rows"}
_STREAMS: dict[Stationary, int] = {"weight-stationary": M, "input-stationary": N, "output-stationary": K}
_RIGHT = 1
"""The number of B among the operands of a mapping."""


class Resident(Struct, frozen=True, kw_only=True):
    """Weights whose last tile is still in the array after a product."""

    storage: int
    height: int
    """Rows of W, as the forward product uses it."""
    width: int
    transposed: bool
    """Whether the cells hold the layout that a transposed copy has."""
    format: Format


class Product(Struct, frozen=True, kw_only=True):
    """A matrix product with its formats and what the machine makes of it, whichever operand stays in the array."""

    gemm: Gemm
    packed: Gemm
    """Without the zero weights that the machine skips."""
    a: Format
    b: Format
    sums: Format
    held: ElementBytes
    streamed: ElementBytes
    passes: int
    transposes: bool
    """Whether it needs transposed weights."""
    in_place: bool
    mac_j: float
    register_bit_j: float
    dram_bytes: float
    """DRAM bytes of its results and of what is added to them."""

    def register_bits(self, dataflow: Stationary) -> float:
        """Bits written to registers of the cells: each multiply-add moves all but the operand that stays."""
        bits = {
            "weight-stationary": self.a.bits_per_element + self.sums.bits_per_element,
            "input-stationary": self.b.bits_per_element + self.sums.bits_per_element,
            "output-stationary": self.a.bits_per_element + self.b.bits_per_element + self.sums.bits_per_element,
        }
        return self.packed.macs * bits[dataflow]


class Mapped(NamedTuple):
    """A product with an operand that stays in the array, and its tiles."""

    dataflow: Stationary
    array: ArrayCycles
    reload_cycles: int
    """Cycles of loading all folds once more."""
    task: Task
    price: TilePrice

    @property
    def cycles(self) -> int:
        """Cycles of the array with its reloads, or of the memory on the chip that is slower."""
        own = self.array.cycles + (self.price.loads - 1) * self.reload_cycles
        return own if self.price.cycles <= own * (1 + 1e-9) else ceil(self.price.cycles)


def array_work(
    op: Op,
    gemm: Gemm,
    step: MachineStep,
    machine: SystolicMachine,
    rates: Rates,
    *,
    resident: Resident | None = None,
    share: float = 1.0,
) -> Work:
    """A matrix product on the array, by the mapping with the best time, energy or product of both.

    Cycles, and the traffic of every memory, come from that mapping: see `mapping.tiles`. Tiles take a `share` of the
    outermost memory. With the dataflow `best`, the operand that stays is chosen with the mapping.

    Each multiply-add writes the registers of what moves through its cell, and of its sum; loading and draining the
    cells are not charged to registers.

    The input gradient uses transposed weights. In place, it reads them in the layout of the forward product, with the
    reduction in the other direction of the array. With a transposer, the copy costs its cycles, and one read and one
    write of the weights in the buffer, in DRAM too when the buffer cannot hold them. Where the array holds the last
    tile of the same weights in the same layout (`resident`), that tile is neither fetched nor loaded; SCALE-Sim's
    convention always loads it.
    """
    formats = step.formats
    if dataflow_of(machine, op.phase) == "row-stationary":
        if step.convention != "exact":
            raise ConfigError('SCALE-Sim does not model row-stationary arrays: use the convention "exact"')
        from presilicon.simulation.systolic.rows import row_work  # needs Numba

        return row_work(op, step, machine, rates, share=share)
    product = describe_product(op, gemm, step, machine, rates)
    buffers = _shared(rates.buffers, share)
    mapped = map_product(product, op.phase, machine, step.convention, rates, buffers)
    a_loads, b_loads, spills = mapped.price.dram_bytes(mapped.task)
    cycles, traffic = mapped.cycles, dict(mapped.price.traffic)
    if step.convention == "exact" and resident is not None and resident == _resident_weights(op, machine, formats):
        saved = _last_tile(gemm, mapped.array, *_lanes(machine, product.in_place)) * product.b.bits_per_element / 8
        cycles -= machine.rows
        b_loads -= saved
        traffic[next(buffer.name for buffer in buffers if _RIGHT in buffer.holds)] -= saved
    register_bits = product.register_bits(mapped.dataflow)
    bytes_sram = traffic.pop(buffers[-1].name)
    if product.transposes and machine.transpose == "transposer":
        copy_bytes = product.streamed.totals(gemm)[_RIGHT]
        writes = transposer_writes(gemm.n, gemm.k, machine.rows, machine.cols, gemm.count)
        register_bits += writes * product.b.bits_per_element
        cycles += transposer_cycles(gemm.n, gemm.k, machine.rows, machine.cols, gemm.count)
        bytes_sram += 2 * copy_bytes
        spills += 2 * copy_bytes if copy_bytes / gemm.count > buffers[-1].usable_bytes else 0.0
    return Work(
        unit="array",
        cycles=cycles,
        operations_j=product.mac_j,
        register_bits=register_bits,
        loads=(a_loads, b_loads, *(formats.bytes_of(tensor, op.layer) for tensor in op.inputs[2:])),
        stores=tuple(formats.written_bytes(tensor, op.layer) for tensor in op.outputs),
        spills=spills,
        bytes_sram=bytes_sram,
        inner_bytes=traffic,
        peak_flops_s=2e9 * machine.rows * machine.cols * machine.clock_ghz / product.passes,
        utilization=product.packed.macs / (max(cycles, 1) * machine.rows * machine.cols),
        tile_bytes=mapped.price.occupied(mapped.task),
        whole_rows=mapped.price.tiles[-1].n == gemm.n,
    )


def bound_product(gemm: Gemm, design: Design) -> float | None:
    """DRAM bytes that no mapping of a forward product falls below, with all memory of the chip as one buffer.

    None for a machine that is not systolic.
    """
    machine, numerics = design.machine, design.numerics
    if not isinstance(machine, SystolicMachine):
        return None
    a, b = (numerics.operand(role, "forward").format.bits_per_element / 8 for role in ("activation", "weight"))
    element = ElementBytes(a, b, numerics.mac_of("forward").accumulate.bits_per_element / 8)
    kib = sum(memory.kib * memory.copies(machine.rows, machine.cols) for memory in machine.levels)
    return least_traffic(gemm, element, kib * 1024) + gemm.count * gemm.m * gemm.n * a


def describe_product(op: Op, gemm: Gemm, step: MachineStep, machine: SystolicMachine, rates: Rates) -> Product:
    """The formats and sizes of a product."""
    formats = step.formats
    mac = formats.numerics_of(op.layer).mac_of(op.phase)
    # A product's inputs begin with its two factors; then comes what is added to it.
    (a, b), rest = op.inputs[:2], op.inputs[2:]
    a_format, b_format = (formats.format_of(tensor.role, op.layer, op.phase) for tensor in (a, b))
    transposes = op.phase == "input_grad" and b.role == "weight"
    density = _weight_density(op, formats) if machine.skips_zero_weights else 1.0
    held = _element_bytes(op, gemm, a_format, b_format, mac.accumulate)
    # im2col reads an input element once for each kernel position, so the array sees m * k of them.
    streamed = ElementBytes(
        a_format.bits_per_element / 8,
        formats.bytes_of(b, op.layer, op.phase) / max(gemm.count * gemm.k * gemm.n, 1),
        mac.accumulate.bits_per_element / 8,
    )
    if density < 1:
        held, streamed = (_compress(op.phase, density, element) for element in (held, streamed))
    packed = _pack(gemm, op.phase, density)
    if machine.skips_zero_pairs:
        packed = replace(gemm, k=ceil(gemm.k * formats.cycles_share(op.layer, op.phase)))
    return Product(
        gemm=gemm,
        packed=packed,
        a=a_format,
        b=b_format,
        sums=mac.accumulate,
        held=held,
        streamed=streamed,
        passes=mac.passes(a_format.significand_bits, b_format.significand_bits),
        transposes=transposes,
        in_place=transposes and machine.transpose == "in-place",
        mac_j=packed.macs * rates.mac_j(a_format, b_format, mac),
        register_bit_j=rates.register_bit_j,
        dram_bytes=sum(formats.bytes_of(tensor, op.layer) for tensor in rest)
        + sum(formats.written_bytes(tensor, op.layer) for tensor in op.outputs),
    )


def map_product(
    product: Product,
    phase: Phase,
    machine: SystolicMachine,
    convention: Convention,
    rates: Rates,
    buffers: tuple[Buffer, ...],
) -> Mapped:
    """The best mapping of a product, of all operands that can stay in the array if the machine may choose."""
    dataflow = dataflow_of(machine, phase)
    assert dataflow != "row-stationary"
    flows = STATIONARY if dataflow == "best" else (dataflow,)
    return min(
        (_map(product, flow, machine, convention, rates, buffers) for flow in flows),
        key=lambda mapped: mapped.price.goal(machine.objective),
    )


def _map(
    product: Product,
    dataflow: Stationary,
    machine: SystolicMachine,
    convention: Convention,
    rates: Rates,
    buffers: tuple[Buffer, ...],
) -> Mapped:
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
        )
        for loads in (1, 2)
    )
    task = Task(
        gemm=product.gemm,
        held=product.held,
        streamed=product.streamed,
        folds=(once.fold_m, once.fold_k, once.fold_n),
        cycles=float(once.cycles),
        reload_cycles=float(twice.cycles - once.cycles),
        fixed_j=product.mac_j + product.register_bits(dataflow) * product.register_bit_j,
        other_dram_bytes=product.dram_bytes,
    )
    static_w = (rates.leakage_w or 0.0) + rates.refresh_w
    fabric = Fabric(
        steps=_steps(dataflow, *_lanes(machine, product.in_place)),
        stream=_STREAMS[dataflow],
        buffers=buffers,
        dram_bytes_per_cycle=machine.dram_gb_s / machine.clock_ghz,
        dram_byte_j=rates.dram_byte_j + rates.sram_byte_j,
        cycle_j=static_w / (machine.clock_ghz * 1e9),
    )
    return Mapped(dataflow, once, twice.cycles - once.cycles, task, find_tiles(task, fabric, machine.objective))


@lru_cache(maxsize=256)
def _shared(buffers: tuple[Buffer, ...], share: float) -> tuple[Buffer, ...]:
    """The memories, with a share of the outermost one."""
    return (*buffers[:-1], replace(buffers[-1], usable_bytes=buffers[-1].usable_bytes * share))


def _weight_density(op: Op, formats: StepFormats) -> float:
    """Density of the weights that a product multiplies by, or whose gradient it computes."""
    is_product_of_weights = op.phase == "weight_grad" or op.inputs[1].role == "weight"
    return formats.density_of("weight", op.layer) if is_product_of_weights else 1.0


def _pack(gemm: Gemm, phase: Phase, density: float) -> Gemm:
    """The product without its zero weights: a shorter reduction, or fewer gradients of weights."""
    side = "n" if phase == "weight_grad" else "k"
    return replace(gemm, **{side: ceil(getattr(gemm, side) * density)})


def _compress(phase: Phase, density: float, element: ElementBytes) -> ElementBytes:
    """Bytes of packed weights, with one bit of mask for each element, or of the gradients that are computed."""
    if phase == "weight_grad":
        return replace(element, sum=element.sum * density)
    return replace(element, b=element.b * density + 1 / 8)


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


def _lanes(machine: SystolicMachine, in_place: bool) -> tuple[int, int]:
    """Cells along the reduction of a product, and across it."""
    on_rows = (machine.reduction == "rows") != in_place
    return (machine.rows, machine.cols) if on_rows else (machine.cols, machine.rows)


def _steps(dataflow: Stationary, on_reduction: int, across: int) -> tuple[int, int, int]:
    """The sizes along m, k and n that one fold takes; a dimension that streams can be cut anywhere."""
    if dataflow == "weight-stationary":
        return 1, on_reduction, across
    return (across, on_reduction, 1) if dataflow == "input-stationary" else (on_reduction, 1, across)


def _last_tile(gemm: Gemm, array: ArrayCycles, on_reduction: int, across: int) -> int:
    """Elements of the last tile of the weights: what is left over in a ragged fold."""
    return (gemm.k - (array.fold_k - 1) * on_reduction) * (gemm.n - (array.fold_n - 1) * across)
