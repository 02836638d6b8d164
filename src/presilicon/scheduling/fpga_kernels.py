"""Ranking of FPGA kernel configurations without compiling them, by their latency indicator (LI).

    LI = work * 1024 / (work group size * Fmax in MHz * 1e6)

The factor 1024 is not in the published equation; with it, both worked examples come out to the last digit, and the
published table of MatMul yields whole MHz. Fmax depends on the number of compute units, the SIMD width and the
unrolling. Only the vendor's tool knows it, so it is an input: a table, a function, or a synthetic model that is
labelled as such.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from msgspec import Struct

from presilicon.base import ConfigError, unknown

CLOSE = 0.10
"""Relative difference below which two clocks count as the same; only the better configuration is kept."""


class KernelConfig(NamedTuple):
    """Build parameters of a kernel."""

    compute_units: int
    simd: int
    work_group: int
    unroll: int


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
    """A configuration with its rank and indicator."""

    rank: int
    config: KernelConfig
    fmax_mhz: float
    indicator: float
    """Latency indicator; smaller is faster."""


class Exploration(Struct, frozen=True, kw_only=True):
    """Result of searching a space."""

    best: tuple[Ranked, ...]
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


SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "MatMul": ("MxKxN", (2048, 1024, 1024)),
    "Conv2D": ("BATCHxCHANNELSxHEIGHTxWIDTHxFILTERSxRxS of the output", (32, 64, 56, 56, 64, 3, 3)),
    "Conv2DBackpropFilter": ("as for Conv2D", (32, 64, 56, 56, 64, 3, 3)),
    "Conv2DBackpropInput": ("as for Conv2D", (32, 64, 56, 56, 64, 3, 3)),
    "MaxPool": ("BATCHxCHANNELSxHEIGHTxWIDTHxRxS of the output", (32, 64, 56, 56, 3, 3)),
    "BiasAddGrad": ("ROWSxCOLUMNS", (2048, 2048)),
    "Mul": ("any", (2048, 2048)),
    "Transpose": ("any", (2048, 2048)),
}
"""Op kinds: meaning of their shape, and an example of medium size. The work is the product of the sides."""


class Input(NamedTuple):
    """Kind and shape of the op that a kernel computes."""

    kind: str
    sides: tuple[int, ...]

    @property
    def work(self) -> int:
        """Multiply-adds, comparisons or elements."""
        return prod(self.sides)

    @property
    def longest_loop(self) -> int:
        """Length of the unrolled loop: the reduction of a product, the window of a pooling, or a row."""
        if self.kind == "MatMul":
            return self.sides[1]
        if self.kind.startswith("Conv2D"):
            return self.sides[1] * prod(self.sides[5:])
        return prod(self.sides[4:]) if self.kind == "MaxPool" else self.sides[-1]

    @property
    def items(self) -> int:
        """Number of independent results; a work group cannot be larger."""
        return max(1, self.work // max(1, self.longest_loop))


def make_input(kind: str, sides: Sequence[int]) -> Input:
    """An op of a kind and a shape.

    Raises:
        ConfigError: the kind is not known, or the shape has too few or too many sides.
    """
    if kind not in SHAPES:
        raise unknown("kind", kind, SHAPES)
    meaning, example = SHAPES[kind]
    if meaning != "any" and len(sides) != len(example):
        raise ConfigError(f"the shape of {kind} is {meaning}, as in {'x'.join(map(str, example))}, not {list(sides)}")
    if not sides or min(sides) < 1:
        raise ConfigError(f"the sides of {kind} must be at least 1, not {list(sides)}")
    return Input(kind, tuple(sides))


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


def explore(op: Input, fmax: Fmax, space: Space | None = None, *, top: int = 5, monotone: bool = True) -> Exploration:
    """The best configurations of a kernel for an op, by latency indicator.

    The space is pruned in two ways. If an unrolling does not fit, larger ones do not fit either: bisection finds the
    limit (unless `monotone` is off, as for a table with gaps). And of configurations with the same work group whose
    clocks are within 10%, only the one with the smallest indicator is kept.

    Raises:
        ConfigError: nothing in the space fits.
    """
    space = Space() if space is None else space
    space.check()
    known_fmax: dict[tuple[int, int, int], float | None] = {}

    def ask(*key: int) -> float | None:
        if key not in known_fmax:
            known_fmax[key] = fmax(key[0], key[1], key[2])  # type: ignore[index]
        return known_fmax[key]  # type: ignore[index]

    infeasible = skipped = close = 0
    ranked: list[tuple[float, float, KernelConfig]] = []
    unrolls = [unroll for unroll in space.unrolls if unroll <= op.longest_loop] or [1]
    dropped = len(space.unrolls) - len(unrolls)
    for group in space.work_groups:
        if group > op.items:
            infeasible += len(space.compute_units) * len(space.simd) * len(space.unrolls)
            continue
        rated: list[tuple[float, float, KernelConfig]] = []
        for units in space.compute_units:
            for simd in space.simd:
                fitting, limit = _fitting(ask, units, simd, unrolls, monotone)
                infeasible += len(unrolls) - limit + dropped
                skipped += limit - len(fitting)
                for unroll in fitting:
                    mhz = ask(units, simd, unroll)
                    if mhz is not None:
                        config = KernelConfig(units, simd, group, unroll)
                        rated.append((latency_indicator(op.work, group, mhz), mhz, config))
        rated.sort(key=lambda rating: (rating[0], rating[2]))
        distinct: list[tuple[float, float, KernelConfig]] = []
        for rating in rated:
            # Sorted by the indicator: those already in the list are no worse.
            if any(abs(rating[1] - other[1]) < CLOSE * other[1] for other in distinct):
                close += 1
            else:
                distinct.append(rating)
        ranked += distinct
    if not ranked:
        raise ConfigError(f"no configuration of {op.kind} {'x'.join(map(str, op.sides))} fits on the FPGA")
    ranked.sort(key=lambda rating: (rating[0], rating[2]))
    best = tuple(Ranked(rank, config, mhz, li) for rank, (li, mhz, config) in enumerate(ranked[:top], start=1))
    return Exploration(
        best=best, space=len(space), queries=len(known_fmax), infeasible=infeasible, skipped=skipped, close=close
    )


def _fitting(
    ask: Callable[..., float | None], units: int, simd: int, unrolls: Sequence[int], monotone: bool
) -> tuple[list[int], int]:
    """Unrollings to evaluate, and how many fit.

    With bisection: the smallest, the largest, and powers of two between them, in case Fmax is not quite monotone.
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
    indices = {0, low - 1, *(index for index, unroll in enumerate(unrolls[:low]) if unroll & (unroll - 1) == 0)}
    return [unrolls[index] for index in sorted(indices) if 0 <= index < low], low
