"""Products that run slice by slice inside of a group of ops: what they hold, and their work."""

from math import ceil, prod

from msgspec.structs import replace

from presilicon.designs import MachineStep, StepFormats
from presilicon.records import Convolution, Gemm, Op
from presilicon.simulation.fusion.parts import ProductPart
from presilicon.simulation.systolic.compression import Operands
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.mappings import ArrayProduct, map_product
from presilicon.simulation.systolic.work import Rates, Work


def part_of_product(
    op: Op, gemm: Gemm, work: Work, step: MachineStep, machine: SystolicMachine, operands: Operands
) -> ProductPart:
    """A product as groups see it.

    Slices cut the rows of a product of activations or errors by weights, which are held; the samples of a batch of
    products; and the reduction of a weight gradient, whose sums are held.
    """
    formats = step.formats
    sum_bytes = formats.numerics_of(op.layer).mac_of(op.phase).widest_sum.bits_per_element / 8
    own_a, own_b = _read_bytes(op, gemm, formats, operands.copies)
    a, b = own_a * operands.copies[0], own_b * operands.copies[1]
    results = operands.copies[2] * sum(tensor.elements for tensor in op.outputs) * sum_bytes
    sums_slices, is_batch = op.phase == "weight_grad", _is_batch(op, gemm)
    return ProductPart(
        tile_bytes=tile_space(work, machine),
        whole_rows=work.whole_rows,
        streaming=(True, sums_slices or is_batch),
        sums_slices=sums_slices,
        held_bytes=results if sums_slices else 0.0 if is_batch else b,
        slice_bytes=(a, b if sums_slices or is_batch else 0.0, 0.0 if sums_slices else results),
        lines=_lines(op, gemm, step.graph.samples_per_pass),
        halo_bytes=_halo_bytes(op, op.convolution, formats, sum_bytes) if op.convolution else 0.0,
        refill_cycles=0.0 if is_batch else _refill_cycles(op, gemm, machine),
        read_bytes=(
            min(own_a * operands.left.in_dram, work.loads[0]),
            min(own_b * operands.right.in_dram, work.loads[1]),
        ),
    )


def tile_space(work: Work, machine: SystolicMachine) -> float:
    """Bytes of the tiles of a product in use, and of those that are being filled meanwhile."""
    return work.tile_bytes * (2 if machine.buffer.doubled else 1)


def slice_work(
    op: Op, product: ArrayProduct, work: Work, slices: int, step: MachineStep, machine: SystolicMachine, rates: Rates
) -> Work:
    """The work of a product in slices, each mapped on its own: the array is filled and drained in each.

    Sums that slices add to come from the buffer for each of them; the cells that hold them are loaded with them.
    """
    gemm = product.gemm
    if slices == 1 or _is_batch(op, gemm):
        return replace(work, spills=0.0)
    sums_slices = op.phase == "weight_grad"
    side = "k" if sums_slices else "m"
    cut, packed = (
        replace(whole, **{side: ceil(getattr(whole, side) / slices)}) for whole in (product.gemm, product.packed)
    )
    one = replace(product, gemm=cut, packed=packed)
    mapped = map_product(one, op.phase, machine, step.convention, rates, rates.buffers)
    cycles = slices * mapped.cycles + work.extra_cycles
    traffic = {name: slices * moved for name, moved in mapped.price.traffic.items()}
    bytes_sram = traffic.pop(rates.buffers[-1].name) + work.extra_sram
    if sums_slices:
        bytes_sram += (slices - 1) * product.streamed.totals(gemm)[2]
        cycles += (slices - 1) * mapped.array.folds * machine.rows * (mapped.dataflow == "output-stationary")
    return replace(
        work,
        cycles=cycles,
        spills=0.0,
        bytes_sram=bytes_sram,
        inner_bytes=traffic,
        utilization=product.packed.macs / (max(cycles, 1) * machine.rows * machine.cols),
    )


def used_shares(op: Op, gemm: Gemm, copies: tuple[int, int, int]) -> tuple[float, float]:
    """Shares of the elements of both operands that a product uses; strides skip some."""
    first, second = (max(count * tensor.elements, 1) for count, tensor in zip(copies, op.inputs[:2], strict=False))
    return min(1.0, gemm.count * gemm.m * gemm.k / first), min(1.0, gemm.count * gemm.k * gemm.n / second)


def _is_batch(op: Op, gemm: Gemm) -> bool:
    """Whether it is a batch of products of samples, as in attention, which is cut between products."""
    return gemm.count > 1 and op.convolution is None and op.phase != "weight_grad"


def _lines(op: Op, gemm: Gemm, batch_size: int) -> int:
    if _is_batch(op, gemm):
        return 1
    if op.convolution is not None:
        return min(op.convolution.input_size[0], op.convolution.output_size[0])
    return max((gemm.k if op.phase == "weight_grad" else gemm.m) // batch_size, 1)


def _read_bytes(op: Op, gemm: Gemm, formats: StepFormats, copies: tuple[int, int, int]) -> tuple[float, float]:
    """Bytes of both operands that a core owns, each used element once."""
    first, second = used_shares(op, gemm, copies)
    a, b = (formats.bytes_of(tensor, op.layer, op.phase) for tensor in op.inputs[:2])
    return first * a, second * b


def _halo_bytes(op: Op, convolution: Convolution, formats: StepFormats, sum_bytes: float) -> float:
    """Lines of inputs (or of the sums of an input gradient) that two slices of a sample share."""
    lines = max(convolution.dilation[0] * (convolution.kernel[0] - 1) + 1 - convolution.stride[0], 0)
    line = convolution.in_channels * prod(convolution.input_size[1:])
    if op.phase == "input_grad":
        return lines * line * sum_bytes
    first = op.inputs[0]
    return lines * line * formats.bytes_of(first, op.layer, op.phase) / max(first.elements, 1)


def _refill_cycles(op: Op, gemm: Gemm, machine: SystolicMachine) -> float:
    """Cycles of filling and draining the array for all folds of what is held: about what a further slice costs."""
    sides = (gemm.m, gemm.n) if op.phase == "weight_grad" else (gemm.k, gemm.n)
    folds = gemm.count * ceil(sides[0] / machine.rows) * ceil(sides[1] / machine.cols)
    return folds * (2 * machine.rows + machine.cols)
