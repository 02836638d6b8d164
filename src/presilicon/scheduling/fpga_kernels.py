"""Search for FPGA kernel configurations without compiling them: by least time, beside the published indicator.

    LI = work * 1024 / (work group size * Fmax in MHz * 1e6)

is the published latency indicator. The factor 1024 is not in the published equation; with it, both worked examples
come out to the last digit, and the published table of MatMul yields whole MHz. It sees parallelism only as far as this
changes Fmax, and so prefers the kernel with the highest clock, which is the least parallel one; configurations are
therefore ranked by an estimate of their time (`kernel_estimates`).

Fmax depends on the number of compute units, the SIMD width and the unrolling. Only the vendor's tool knows it, so it is
an input: a table, a function, or a synthetic model that is labelled as such.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.scheduling.kernel_estimates import Estimate, FpgaBoard, estimate
from presilicon.scheduling.kernel_ops import Input, KernelConfig

CLOSE = 0.10
"""Relative difference below which two clocks count as the same; only the better configuration is kept."""


class Space(Struct, frozen=True, kw_only=True):
    """The configurations to search."""

    compute_units: tuple[int, ...] = (1, 2, 3, 4)
    simd: tuple[int, ...] = (1, 2, 4, 8, 16)
    work_groups: tuple[int, ...] = (32, 64, 128, 256)
    unrolls: tuple[int, ...] = tuple(range(1, 257))

    def __len__(self) -> int:
        return len(self.compute_units) * len(self.simd) * len(self.work_groups) * len(self.unrolls)

    def check(self) -> None:
        """Refuse empty axes, values below 1 and unrolls that do not increase."""
        for name in self.__struct_fields__:
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ConfigError(f"{name} must be a list of numbers of at least 1, not {list(values)[:8]}")
        if list(self.unrolls) != sorted(set(self.unrolls)):
            raise ConfigError("unrolls must increase, with no value twice")


Fmax = Callable[[int, int, int], float | None]
"""MHz for a number of compute units, a SIMD width and an unrolling; None if that does not fit on the FPGA."""


class Ranked(NamedTuple):
    """A configuration with its ranks, its estimate and its indicator."""

    rank: int
    """Among those that are kept, by estimated time."""
    config: KernelConfig
    fmax_mhz: float
    estimate: Estimate
    indicator: float
    """Published latency indicator; smaller should be faster."""
    indicator_rank: int
    """Among all that were evaluated and fit."""


class Exploration(Struct, frozen=True, kw_only=True):
    """Result of searching a space."""

    best: tuple[Ranked, ...]
    preferred: Ranked
    """The configuration with the smallest indicator; its rank is among all that were evaluated and fit."""
    space: int
    queries: int
    """Number of evaluations of Fmax."""
    infeasible: int
    """Number of configurations that do not fit; most follow from others without an evaluation."""
    skipped: int
    """Number of unrollings between the evaluated ones."""
    close: int
    """Number of configurations left out for a better one with the same work group and a clock within 10%."""


def latency_indicator(work: float, work_group: int, fmax_mhz: float) -> float:
    """The published indicator, with the factor of 1024 that its worked examples imply.

    >>> round(latency_indicator(2048 * 1024 * 1024, 128, 210), 2), round(latency_indicator(2048 * 1024**2, 64, 241), 2)
    (81.81, 142.57)
    """
    if work <= 0 or work_group < 1 or fmax_mhz <= 0:
        raise ConfigError(f"work, work group and Fmax must be above 0, not {work:g}, {work_group} and {fmax_mhz:g} MHz")
    return work * 1024 / (work_group * fmax_mhz * 1e6)


def synthetic_fmax(
    *, peak_mhz: float = 480.0, capacity: int = 5011, slope: float = 0.5
) -> Callable[[int, int, int], float | None]:
    """A synthetic model for use without the vendor's tool: the clock falls linearly with the multipliers in use.

    Compute units times SIMD width times unrolling are in use, of `capacity` multipliers (those of a GX 2500); more do
    not fit. The published table implies the opposite for unrolling: its clocks rise with it.
    """

    def fmax(compute_units: int, simd: int, unroll: int) -> float | None:
        used = compute_units * simd * unroll / capacity
        return None if used > 1 else peak_mhz * (1 - slope * used)

    return fmax


def table_fmax(rows: Mapping[tuple[int, int, int], float]) -> Callable[[int, int, int], float | None]:
    """Clocks from a table by compute units, SIMD width and unrolling; entries that are missing do not fit."""

    def fmax(compute_units: int, simd: int, unroll: int) -> float | None:
        return rows.get((compute_units, simd, unroll))

    return fmax


class _Rated(NamedTuple):
    """An evaluated configuration. Of equally fast ones, the one with the fewest multipliers comes first."""

    time_s: float
    lanes: int
    indicator: float
    config: KernelConfig
    fmax_mhz: float
    estimate: Estimate


def explore(
    op: Input,
    fmax: Fmax,
    space: Space | None = None,
    *,
    board: FpgaBoard | None = None,
    top: int = 5,
    monotone: bool = True,
) -> Exploration:
    """The configurations of a kernel with the least estimated time for an op, among those that fit on a board.

    The space is pruned in two ways. If an unrolling does not fit, larger ones do not fit either: bisection finds the
    limit (unless `monotone` is off, as for a table with gaps). And of configurations with the same work group whose
    clocks are within 10%, only the fastest is kept.

    Raises:
        ConfigError: nothing in the space fits.
    """
    space = Space() if space is None else space
    board = FpgaBoard() if board is None else board
    space.check()
    board.check()
    known_fmax: dict[tuple[int, int, int], float | None] = {}

    def ask(*key: int) -> float | None:
        if key not in known_fmax:
            known_fmax[key] = fmax(key[0], key[1], key[2])  # type: ignore[index]
        return known_fmax[key]  # type: ignore[index]

    infeasible = skipped = close = 0
    every: list[_Rated] = []
    kept: list[_Rated] = []
    unrolls = [unroll for unroll in space.unrolls if unroll <= op.longest_loop] or [1]
    dropped = len(space.unrolls) - len(unrolls)
    for group in space.work_groups:
        if group > op.items:
            infeasible += len(space.compute_units) * len(space.simd) * len(space.unrolls)
            continue
        rated: list[_Rated] = []
        for units in space.compute_units:
            for simd in space.simd:
                fitting, limit = _fitting(ask, units, simd, unrolls, op.longest_loop, monotone)
                infeasible += len(unrolls) - limit + dropped
                skipped += limit - len(fitting)
                for unroll in fitting:
                    mhz = ask(units, simd, unroll)
                    config = KernelConfig(units, simd, group, unroll)
                    rating = None if mhz is None else _rate(op, config, mhz, board)
                    if rating is None:
                        infeasible += 1
                    else:
                        rated.append(rating)
        rated.sort()
        every += rated
        distinct: list[_Rated] = []
        for rating in rated:
            # Sorted by time: those already in the list are no slower.
            if any(abs(rating.fmax_mhz - other.fmax_mhz) < CLOSE * other.fmax_mhz for other in distinct):
                close += 1
            else:
                distinct.append(rating)
        kept += distinct
    if not kept:
        raise ConfigError(f"no configuration of {op.kind} {'x'.join(map(str, op.sides))} fits on the FPGA")
    by_time, by_indicator = sorted(every), sorted(every, key=lambda rating: (rating.indicator, rating.config))
    indicator_ranks = {rating.config: rank for rank, rating in enumerate(by_indicator, start=1)}

    def ranked(rank: int, rating: _Rated) -> Ranked:
        place = indicator_ranks[rating.config]
        return Ranked(rank, rating.config, rating.fmax_mhz, rating.estimate, rating.indicator, place)

    return Exploration(
        best=tuple(ranked(rank, rating) for rank, rating in enumerate(sorted(kept)[:top], start=1)),
        preferred=ranked(by_time.index(by_indicator[0]) + 1, by_indicator[0]),
        space=len(space),
        queries=len(known_fmax),
        infeasible=infeasible,
        skipped=skipped,
        close=close,
    )


def _rate(op: Input, config: KernelConfig, fmax_mhz: float, board: FpgaBoard) -> _Rated | None:
    """A configuration with its estimate and indicator; None if it does not fit on the board."""
    found = estimate(op, config, fmax_mhz, board)
    if found.excess(board) is not None:
        return None
    indicator = latency_indicator(op.work, config.work_group, fmax_mhz)
    return _Rated(found.time_s, config.lanes, indicator, config, fmax_mhz, found)


def _fitting(
    ask: Callable[..., float | None], units: int, simd: int, unrolls: Sequence[int], loop: int, monotone: bool
) -> tuple[list[int], int]:
    """Unrollings to evaluate, and how many fit.

    With bisection: the smallest, the largest, powers of two between them, and the smallest with as few iterations of
    the loop as the largest has.
    """
    if not monotone:
        fitting = [unroll for unroll in unrolls if ask(units, simd, unroll) is not None]
        return fitting, len(fitting)
    low, high = 0, len(unrolls)
    while low < high:
        middle = (low + high) // 2
        if ask(units, simd, unrolls[middle]) is None:
            high = middle
        else:
            low = middle + 1
    iterations = [-(-loop // unroll) for unroll in unrolls[:low]]
    indices = {0, low - 1, *(index for index, unroll in enumerate(unrolls[:low]) if unroll & (unroll - 1) == 0)}
    indices |= {iterations.index(iterations[-1])} if iterations else set()
    return [unrolls[index] for index in sorted(indices) if 0 <= index < low], low
