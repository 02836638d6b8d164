"""Products of a row-stationary array: cells with memories of their own, each with a row of the kernel and of outputs.

As in Eyeriss (Chen et al., JSSC 2017), rows of a kernel lie along the rows of the array and rows of outputs along its
columns; what is left of the array takes further channels. Operands are sent to all cells that need them, and sums move
from cell to cell along a column. The order of the other loops, and what each memory holds, is a mapping of
`mapping.nest`; windows slide through the cells.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import ceil, inf, prod

from msgspec.structs import replace

from presilicon.designs import MachineStep
from presilicon.records import Op, Phase
from presilicon.simulation.mapping.mapper import find_mapping
from presilicon.simulation.mapping.nest import Loop, MappedArray, Precision, Price, Store, price_mapping
from presilicon.simulation.mapping.problem import DIMS, TENSORS, Contraction, Dim, Tensor
from presilicon.simulation.mapping.tiles import goal_of
from presilicon.simulation.systolic.compression import Operands
from presilicon.simulation.systolic.machine import Objective, SystolicMachine
from presilicon.simulation.systolic.mappings import gated_share
from presilicon.simulation.systolic.memories import OPERANDS
from presilicon.simulation.systolic.work import Rates, Work

ROLES: dict[Phase, tuple[Tensor, Tensor, Tensor]] = {
    "forward": ("X", "W", "Y"),
    "input_grad": ("Y", "W", "X"),
    "weight_grad": ("X", "Y", "W"),
    "update": ("X", "W", "Y"),
}
"""The tensors of a layer that are the left and the right factor of a product, and its sums."""
_SERVES = {"chip": frozenset((0, 1)), "row": frozenset((1,)), "column": frozenset((0,)), "cell": frozenset[int]()}
_TRIES = 1500
"""Orders of loops that are tried for each way to lie on the array."""
_UNROLLINGS = 3
"""Ways to lie on the array that are tried, of those that use the most cells."""


def row_work(
    op: Op, step: MachineStep, machine: SystolicMachine, rates: Rates, *, operands: Operands, share: float
) -> Work:
    """A product on a row-stationary array, by the mapping with the best time, energy or product of both."""
    assert op.gemm is not None
    formats, problem = step.formats, Contraction.of_op(op)
    mac = formats.numerics_of(op.layer).mac_of(op.phase)
    left, right = (formats.format_of(tensor.role, op.layer, op.phase) for tensor in op.inputs[:2])
    roles = _roles(op, problem)
    hardware = _hardware(machine, rates, roles, share)
    stores = tuple(formats.written_bytes(tensor, op.layer) for tensor in op.outputs)
    result_bits = 8 * sum(stores) / max(sum(tensor.elements for tensor in op.outputs), 1)
    widths = {roles[0]: left.bits_per_element, roles[1]: right.bits_per_element, roles[2]: result_bits}
    mapped = _map(
        problem,
        hardware,
        tuple(widths[tensor] for tensor in TENSORS),
        mac.widest_sum.bits_per_element,
        machine.objective,
    )
    passes = mac.passes(left.significand_bits, right.significand_bits)
    cycles = ceil(mapped.cycles + (passes - 1) * mapped.compute_cycles) + _waiting_cycles(mapped, hardware, machine)
    traffic = {store.name: sum(bits) / 8 for store, bits in zip(hardware.stores[:-1], mapped.traffic[:-1], strict=True)}
    moved = dict.fromkeys(TENSORS, 0.0)
    for transfer in mapped.transfers:
        if transfer.upper == len(hardware.stores) - 1 and transfer.lower is not None:
            moved[transfer.tensor] += (transfer.read * transfer.again + transfer.written * transfer.times) / 8
            # What comes from and goes to DRAM is charged with DRAM.
            outside = transfer.filled * transfer.again + transfer.drained * transfer.times
            traffic[hardware.stores[transfer.lower].name] -= outside / 8
    multiplied = gated_share(op, formats) if machine.sparsity.zeros == "gated" else 1.0
    return Work(
        unit="array",
        cycles=cycles,
        operations_j=op.gemm.macs * multiplied * rates.mac_j(left, right, mac),
        loads=(
            *(moved[role] * share for role, share in zip(roles, operands.in_dram, strict=False)),
            *(formats.bytes_of(tensor, op.layer) for tensor in op.inputs[2:]),
        ),
        stores=stores,
        spills=max(moved[roles[2]] - problem.elements(roles[2]) * result_bits / 8, 0.0),
        bytes_sram=traffic.pop(machine.buffer.name),
        inner_bytes=traffic,
        peak_flops_s=2e9 * machine.rows * machine.cols * machine.clock_ghz / passes,
        utilization=op.gemm.macs / (max(cycles, 1) * machine.rows * machine.cols),
        tile_bytes=share * machine.buffer.usable_bits / 8,
        whole_rows=False,
    )


def _waiting_cycles(mapped: Price, hardware: MappedArray, machine: SystolicMachine) -> int:
    """Cycles in which cells wait for an SRAM of theirs that is filled: one that is not doubled holds what is in use.

    Registers of cells take the next number while they hand on the last.
    """
    waits = {
        index
        for index, memory in enumerate(machine.levels)
        if memory.per == "cell" and memory.kind == "sram" and not memory.doubled
    }
    return sum(
        transfer.times * ceil(transfer.read / hardware.stores[transfer.upper].read_bits)
        for transfer in mapped.transfers
        if transfer.lower in waits and hardware.stores[transfer.upper].read_bits < inf
    )


def _roles(op: Op, problem: Contraction) -> tuple[Tensor, Tensor, Tensor]:
    """As in `ROLES`; a transposed convolution has its inputs and outputs exchanged."""
    roles = ROLES[op.phase]
    if roles[2] == problem.result:
        return roles
    other: dict[Tensor, Tensor] = {"X": "Y", "Y": "X", "W": "W"}
    return other[roles[0]], other[roles[1]], other[roles[2]]


def _hardware(
    machine: SystolicMachine, rates: Rates, roles: tuple[Tensor, Tensor, Tensor], share: float
) -> MappedArray:
    stores = []
    for memory, buffer in zip(machine.levels, rates.buffers, strict=True):
        bits = memory.bits_per_cycle(machine.clock_ghz)
        usable = memory.kib * 1024 * 8 * (share if memory is machine.levels[-1] else 1.0)
        stores.append(
            Store(
                name=memory.name,
                holds=frozenset(roles[OPERANDS.index(operand)] for operand in memory.holds),
                bits=usable,
                serves=_SERVES[memory.per],
                read_pj=buffer.byte_j / 8,
                write_pj=buffer.byte_j / 8,
                read_bits=bits,
                write_bits=bits,
                has_one_port=memory.ports == 1,
                is_doubled=memory.doubled,
            )
        )
    width = machine.dram_gb_s * 8 / machine.clock_ghz
    energy = rates.dram_byte_j / 8
    stores.append(
        Store(
            name="dram", holds=frozenset(TENSORS), read_pj=energy, write_pj=energy, read_bits=width, write_bits=width,
            has_one_port=True,
        )
    )  # fmt: skip
    return MappedArray(axes=(machine.rows, machine.cols), stores=tuple(stores))


@lru_cache(maxsize=1 << 12)
def _map(
    problem: Contraction, hardware: MappedArray, bits: tuple[float, ...], sum_bits: float, objective: Objective
) -> Price:
    """The price of the best mapping, with a DRAM that makes nothing wait: the timeline of the step has its time."""
    precision = Precision(bits=dict(zip(TENSORS, bits, strict=True)), sum_bits=sum_bits)
    found = [
        find_mapping(problem, hardware, precision, spatial, objective=objective, tries=_TRIES, most_loops=10)
        for spatial in unroll_rows(problem, *hardware.axes)
    ]
    best = min(found, key=lambda mapped: goal_of(objective, mapped.price.cycles, mapped.price.energy_pj))
    dram = replace(hardware.stores[-1], read_bits=inf, write_bits=inf)
    quiet = replace(hardware, stores=(*hardware.stores[:-1], dram))
    return price_mapping(problem, quiet, best.nest, precision)


def unroll_rows(problem: Contraction, rows: int, cols: int) -> list[tuple[tuple[Loop, ...], tuple[Loop, ...]]]:
    """Ways for a product to lie on the array, those that use the most cells first.

    >>> conv3 = Contraction(sizes=(1, 4, 384, 256, 13, 13, 3, 3))
    >>> [[(loop.dim, loop.count) for loop in axis] for axis in unroll_rows(conv3, 12, 14)[0]]
    [[('r', 3), ('c', 2), ('k', 2)], [('y', 13)]]
    """
    choices = set(_unrollings(problem, rows, cols))
    ranked = sorted(choices, key=lambda spatial: (_steps(problem, spatial), repr(spatial)))
    return ranked[:_UNROLLINGS]


def _unrollings(problem: Contraction, rows: int, cols: int) -> Iterator[tuple[tuple[Loop, ...], tuple[Loop, ...]]]:
    kernel = min(problem.size("r"), rows)
    lines = problem.size("y")
    wide = [min(lines, cols), ceil(lines / ceil(lines / cols))]
    deep = problem.size("z") * problem.size("t") > 1
    lanes: tuple[tuple[Dim, ...], tuple[Dim, ...]] = (
        (("c", "k", "t"), ("k", "b", "z")) if deep else (("c", "k"), ("k", "b"))
    )
    for width, first, second in product(wide, *lanes):
        free_rows, free_cols = rows // kernel, cols // width
        segments = [1, *([min(free_rows, ceil(lines / width))] if lines > width else [])]
        for segment, count in product(segments, range(1, free_rows + 1)):
            other: Dim = "c" if first == "k" else "k"
            left = free_rows // segment
            if count > left:
                continue
            across = min(problem.size(second), free_cols)
            taken = {
                "r": kernel,
                "y": segment,
                first: min(problem.size(first), count),
                other: min(problem.size(other), left // count),
            }
            yield (
                tuple(Loop(dim, size) for dim, size in taken.items() if size > 1),  # type: ignore[arg-type]
                tuple(Loop(dim, size) for dim, size in {"y": width, second: across}.items() if size > 1),
            )


def _steps(problem: Contraction, spatial: tuple[tuple[Loop, ...], ...]) -> int:
    """Cycles of computing."""
    unrolled = dict.fromkeys(DIMS, 1)
    for axis in spatial:
        for loop in axis:
            unrolled[loop.dim] *= loop.count
    return prod(ceil(size / unrolled[dim]) for dim, size in zip(DIMS, problem.sizes, strict=True))
