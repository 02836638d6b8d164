"""Matrix products on the systolic array: cycles, traffic and energy, and what stays in the array after them."""

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from presilicon.designs import Design, MachineStep, StepFormats
from presilicon.formats import Format
from presilicon.records import Gemm, Op
from presilicon.simulation.mapping.tiles import Buffer, ElementBytes, least_traffic
from presilicon.simulation.systolic.compression import Operands
from presilicon.simulation.systolic.cycles import transposer_cycles, transposer_writes
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.mappings import (
    ArrayProduct,
    MappedProduct,
    dataflow_of,
    lanes_of,
    map_product,
)
from presilicon.simulation.systolic.work import Rates, Work

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


def array_work(
    op: Op,
    product: ArrayProduct,
    step: MachineStep,
    machine: SystolicMachine,
    rates: Rates,
    operands: Operands,
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
    tile of the same weights in the same layout (`resident`), that tile is neither fetched nor loaded.
    """
    formats, gemm = step.formats, product.gemm
    buffers = _shared(rates.buffers, share)
    mapped = map_product(product, op.phase, machine, step.convention, rates, buffers)
    a_loads, b_loads, spills = mapped.price.dram_bytes(mapped.task)
    traffic, extra_cycles, extra_sram = dict(mapped.price.traffic), 0, 0.0
    register_bits = product.register_bits(mapped.dataflow)
    bytes_sram = traffic.pop(buffers[-1].name)
    if product.transposes and machine.transpose == "transposer":
        copy_bytes = product.streamed.totals(gemm)[_RIGHT]
        writes = transposer_writes(gemm.n, gemm.k, machine.rows, machine.cols, gemm.count)
        register_bits += writes * product.b.bits_per_element
        extra_cycles += transposer_cycles(gemm.n, gemm.k, machine.rows, machine.cols, gemm.count)
        extra_sram = 2 * copy_bytes
        spills += 2 * copy_bytes if copy_bytes / gemm.count > buffers[-1].usable_bytes else 0.0
    cycles = mapped.cycles + extra_cycles
    work = Work(
        unit="array",
        cycles=cycles,
        operations_j=product.mac_j,
        register_bits=register_bits,
        loads=(a_loads, b_loads, *(formats.bytes_of(tensor, op.layer) for tensor in op.inputs[2:])),
        stores=tuple(formats.written_bytes(tensor, op.layer) for tensor in op.outputs),
        spills=spills,
        bytes_sram=bytes_sram + extra_sram,
        extra_cycles=extra_cycles,
        extra_sram=extra_sram,
        inner_bytes=traffic,
        coded_bytes=_coded_bytes(product, mapped, operands),
        peak_flops_s=2e9 * machine.rows * machine.cols * product.unit.lanes * machine.clock_ghz / product.passes,
        utilization=product.packed.macs / (max(cycles, 1) * machine.rows * machine.cols),
        tile_bytes=mapped.price.occupied(mapped.task),
        whole_rows=mapped.price.tiles[-1].n == gemm.n,
    )
    if not finds_tile(op, resident, step, machine):
        return work
    a_loads, b_loads, *rest = work.loads
    fetched = b_loads - _first_tile_bytes(product, machine) * operands.in_dram[1]
    return replace(spare_load(work, product, machine, rates, operands), loads=(a_loads, fetched, *rest))


def finds_tile(op: Op, resident: Resident | None, step: MachineStep, machine: SystolicMachine) -> bool:
    """Whether the array holds the first tile of a product's weights; SCALE-Sim's convention always loads it."""
    return (
        step.convention == "exact" and resident is not None and resident == _resident_weights(op, machine, step.formats)
    )


def spare_load(work: Work, product: ArrayProduct, machine: SystolicMachine, rates: Rates, operands: Operands) -> Work:
    """The work of a product whose first tile of weights is in the array: it is neither read nor loaded."""
    bytes_sram, inner_bytes = work.bytes_sram, dict(work.inner_bytes)
    home = next(buffer.name for buffer in rates.buffers if _RIGHT in buffer.holds)
    spared = _first_tile_bytes(product, machine) * operands.right.on_chip
    if home == rates.buffers[-1].name:
        bytes_sram -= spared
    else:
        inner_bytes[home] -= spared
    cycles = work.cycles - machine.rows
    return replace(
        work,
        cycles=cycles,
        bytes_sram=bytes_sram,
        extra_cycles=work.extra_cycles - machine.rows,
        inner_bytes=inner_bytes,
        utilization=product.packed.macs / (max(cycles, 1) * machine.rows * machine.cols),
    )


def _coded_bytes(product: ArrayProduct, mapped: MappedProduct, operands: Operands) -> float:
    """Expanded bytes of operands that lie compressed on the chip, as often as they enter the array."""
    totals, folds = product.streamed.totals(product.gemm), mapped.task.folds
    times = (folds[2] if mapped.dataflow != "input-stationary" else mapped.price.loads,
             folds[0] if mapped.dataflow != "weight-stationary" else mapped.price.loads)  # fmt: skip
    return sum(
        total / share * count
        for total, share, count in zip(totals, operands.on_chip, times, strict=False)
        if 0 < share != 1.0
    )


def bound_product(gemm: Gemm, design: Design) -> float | None:
    """DRAM bytes that no mapping of a forward product falls below, with all memory of the chip as one buffer.

    None for a machine that is not systolic.
    """
    machine, numerics = design.machine, design.numerics
    if not isinstance(machine, SystolicMachine):
        return None
    a, b = (numerics.operand(role, "forward").format.bits_per_element / 8 for role in ("activation", "weight"))
    element = ElementBytes(a, b, numerics.mac_of("forward").widest_sum.bits_per_element / 8)
    kib = sum(memory.kib * memory.copies(machine.rows, machine.cols) for memory in machine.levels)
    return least_traffic(gemm, element, machine.cores.count * kib * 1024) + gemm.count * gemm.m * gemm.n * a


@lru_cache(maxsize=256)
def _shared(buffers: tuple[Buffer, ...], share: float) -> tuple[Buffer, ...]:
    """The memories, with a share of the outermost one."""
    return (*buffers[:-1], replace(buffers[-1], usable_bytes=buffers[-1].usable_bytes * share))


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


def _first_tile_bytes(product: ArrayProduct, machine: SystolicMachine) -> float:
    """Bytes of the tile of weights that a backward pass begins with: the last one forward, what ragged folds leave."""
    on_reduction, across = lanes_of(machine, product.in_place)
    folds_k, folds_n = ceil(product.packed.k / on_reduction), ceil(product.packed.n / across)
    height = product.gemm.k - (folds_k - 1) * on_reduction * product.unit.lanes
    width = product.gemm.n - (folds_n - 1) * across
    return height * width * product.b.bits_per_element / 8
