"""Matrix products on CATERPILLAR's cores: their distribution over the ring, cycles, and traffic in bits.

    forward         Y = X W       the outputs are spread over the cores, panels of X go around
    input gradient  E W^T         the weights lie as before, buckets of sums go around
    weight gradient X^T E         each core makes those of its own weights, panels of X go around

That is for `batch_over = "outputs"`. Over `samples`, the rows of the batch are spread over the cores and the weights go
around: panels of them forward and backward, buckets of their gradients at last. These are the same three forms,
transposed, with the last two exchanged.

With one row, the first two are products of a matrix and a vector, with each weight used once: either the vector's
chunks go around, or it is gathered first (or the sums are scattered last), whichever is faster. The third is then a
rank-1 update, which can be made in the weights themselves, from a vector that is there already.
"""

from math import ceil
from typing import NamedTuple

from presilicon.base import ConfigError
from presilicon.records import Gemm, Phase
from presilicon.simulation.caterpillar.cycles import (
    all_gather_cycles,
    circulate_cycles,
    core_gemm_cycles,
    core_gemv_cycles,
    core_update_cycles,
)
from presilicon.simulation.caterpillar.machine import CaterpillarMachine


class Bits(NamedTuple):
    """Widths of the two factors and of the sums. On buses and ring, a number of any width is one word."""

    left: float
    right: float
    sums: float


class Moves(NamedTuple):
    """Cycles of a product, and the bits that it moves in each memory and link, for all cores together."""

    cycles: int
    mem_a: float
    """Bits read from and written to the one-port memories: weights and their gradients."""
    mem_b: float
    """Bits read from and written to the two-port memories: activations, errors, sums."""
    bus: float
    """Bits put on row and column buses, or handed to the next PE."""
    ring: float
    """Bits handed from one core to the next."""
    slices: int = 1
    """Times that panels go around, because MEM B does not hold all rows of a panel."""

    def times(self, count: int) -> "Moves":
        """The same product `count` times in sequence."""
        a, b, bus, ring = self.mem_a * count, self.mem_b * count, self.bus * count, self.ring * count
        return Moves(self.cycles * count, a, b, bus, ring, self.slices)


def product_moves(gemm: Gemm, phase: Phase, bits: Bits, cores: int, machine: CaterpillarMachine) -> Moves:
    """Cycles and traffic of `gemm` on `cores` cores of the machine; products of an update run as forward products.

    Independent products are dealt to the cores when there are as many as cores, and else take the whole ring in turn.

    Raises:
        ConfigError: MEM B does not hold one row of two panels.
    """
    nr, stages = machine.nr, machine.mac_stages
    m, k, n = gemm.m, gemm.k, gemm.n
    if gemm.count >= cores > 1:
        cycles = ceil(gemm.count / cores) * core_gemm_cycles(m, k, n, nr, stages)
        return _gemm_moves(gemm, phase, bits, nr, parts=(1, 1, 1))._replace(cycles=cycles)
    if phase != "weight_grad" and m == 1:
        moves = _gemv_moves(k, n, phase, bits, cores, machine)
    elif machine.schedule == "minibatch" and machine.batch_over == "samples":
        moves = _spread_by_samples(m, k, n, phase, bits, cores, machine)
    else:
        moves = _sliced_gemm(m, k, n, phase, bits, cores, machine)
    return moves.times(gemm.count)


def update_moves(inputs: int, outputs: int, bits: Bits, cores: int, machine: CaterpillarMachine) -> Moves:
    """W += e x^T in the weights themselves, of `bits.sums` each; x is still there from the forward product."""
    mine = ceil(outputs / cores)
    cycles = core_update_cycles(mine, inputs, machine.nr, machine.mac_stages, machine.port_words)
    operands = inputs * ceil(mine / machine.nr) * cores * bits.left + outputs * bits.right
    return Moves(cycles, 2 * inputs * outputs * bits.sums, operands, operands, 0.0)


def _gemv_moves(k: int, n: int, phase: Phase, bits: Bits, cores: int, machine: CaterpillarMachine) -> Moves:
    nr, stages, link = machine.nr, machine.mac_stages, (machine.ring_words, machine.hop_cycles)
    if phase == "input_grad":  # k is spread over the cores; sums of n go around
        mine, chunk, moving, width = ceil(k / cores), ceil(n / cores), n, bits.sums
        around = circulate_cycles(core_gemv_cycles(chunk, mine, nr, stages), chunk, cores, *link)
        apart = core_gemv_cycles(n, mine, nr, stages) + all_gather_cycles(n, cores, *link)
        operands = {True: k * cores * ceil(chunk / nr), False: k * ceil(n / nr)}
    else:
        mine, chunk, moving, width = ceil(n / cores), ceil(k / cores), k, bits.left
        around = circulate_cycles(core_gemv_cycles(mine, chunk, nr, stages), chunk, cores, *link)
        apart = all_gather_cycles(k, cores, *link) + core_gemv_cycles(mine, k, nr, stages)
        operands = dict.fromkeys((True, False), k * cores * ceil(mine / nr))
    circulates = around < apart
    sums_moved = n * (cores if circulates or phase == "input_grad" else 1)
    on_bus = operands[circulates] * bits.left
    ring = moving * (cores - 1) * width
    return Moves(
        cycles=min(around, apart),
        mem_a=k * n * bits.right,
        mem_b=on_bus + 2 * sums_moved * bits.sums + 2 * ring,
        bus=on_bus + sums_moved * (nr - 1) * bits.sums,
        ring=ring,
    )


def _sliced_gemm(m: int, k: int, n: int, phase: Phase, bits: Bits, cores: int, machine: CaterpillarMachine) -> Moves:
    """A product whose rows (those of the batch) go around in as many slices as MEM B requires."""
    rows = k if phase == "weight_grad" else m
    rows_held = _rows_held(m, k, n, phase, bits, cores, machine)
    slices = ceil(rows / rows_held)
    cycles = 0
    for part, times in ((rows_held, rows // rows_held), (rows % rows_held, 1)):
        if part and times:
            sides = (m, part, n) if phase == "weight_grad" else (part, k, n)
            cycles += times * _circulated_cycles(*sides, phase, cores, machine)
    parts = (cores, slices, cores) if phase == "weight_grad" else (slices, cores, cores)
    moves = _gemm_moves(Gemm(m, k, n), phase, bits, machine.nr, parts)
    around = m * n * bits.sums if phase == "input_grad" else m * k * bits.left
    ring = around * (cores - 1)
    return moves._replace(cycles=cycles, mem_b=moves.mem_b + 2 * ring, ring=ring, slices=slices)


def _spread_by_samples(
    m: int, k: int, n: int, phase: Phase, bits: Bits, cores: int, machine: CaterpillarMachine
) -> Moves:
    """Weights leave MEM A once, and their gradients enter it once; other traffic is in the MEM B of the cores."""
    swapped = Bits(bits.right, bits.left, bits.sums)
    moves = _sliced_gemm(n, k, m, _TRANSPOSED.get(phase, phase), swapped, cores, machine)
    once = m * n * bits.sums if phase == "weight_grad" else k * n * bits.right
    return moves._replace(mem_a=once, mem_b=moves.mem_a + moves.mem_b, slices=1)


_TRANSPOSED: dict[Phase, Phase] = {"input_grad": "weight_grad", "weight_grad": "input_grad"}


def _circulated_cycles(m: int, k: int, n: int, phase: Phase, cores: int, machine: CaterpillarMachine) -> int:
    m, k = (ceil(m / cores), k) if phase == "weight_grad" else (m, ceil(k / cores))
    n = ceil(n / cores)
    compute = core_gemm_cycles(m, k, n, machine.nr, machine.mac_stages)
    words = m * n if phase == "input_grad" else m * k
    return circulate_cycles(compute, words, cores, machine.ring_words, machine.hop_cycles)


def _gemm_moves(gemm: Gemm, phase: Phase, bits: Bits, nr: int, parts: tuple[int, int, int]) -> Moves:
    """Bits that move inside cores, for products whose sides are cut into `parts`."""
    m, k, n = gemm.m, gemm.k, gemm.n
    left = m * k * parts[2] * ceil(ceil(n / parts[2]) / nr) * bits.left
    right = k * n * parts[0] * ceil(ceil(m / parts[0]) / nr) * bits.right
    sums = 2 * m * n * parts[1] * bits.sums
    in_a = sums if phase == "weight_grad" else right
    in_b = left + right + sums - in_a
    return Moves(0, in_a * gemm.count, in_b * gemm.count, (left + right) * gemm.count, 0.0)


def _rows_held(m: int, k: int, n: int, phase: Phase, bits: Bits, cores: int, machine: CaterpillarMachine) -> int:
    """Rows for which MEM B of a core holds two panels and the operand beside them."""
    along_n = ceil(n / cores)
    if phase == "weight_grad":
        row = 2 * ceil(m / cores) * bits.left + along_n * bits.right
    elif phase == "input_grad":
        row = 2 * along_n * bits.sums + ceil(k / cores) * bits.left
    else:
        row = 2 * ceil(k / cores) * bits.left + along_n * bits.sums
    core_bits = machine.nr**2 * machine.mem_b_kib * 8192
    if core_bits < row:
        raise ConfigError(
            f"machine.mem_b_kib is {machine.mem_b_kib:g}: a core has {core_bits / 8192:g} KiB for panels, but one row "
            f"of two panels of a {m} x {k} x {n} product takes {row / 8192:.3g} KiB: give it at least "
            f"{row / 8192 / machine.nr**2:.3g}, or more cores"
        )
    return int(core_bits // row)
