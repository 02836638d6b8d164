"""Which configuration of an FPGA kernel is fast, told without compiling any: the latency indicator.

    LI = work * 1024 / (work group size * Fmax in MHz * 1e6)

The factor 1024 is not in the published equation; with it, both worked examples come out to the last digit, and the
published table of MatMul yields whole MHz. Fmax hangs on the number of compute units, the SIMD width and the unrolling;
nobody but the vendor's tool knows it, so it is an input: a table, a function, or a synthetic model that is labelled as
such.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from msgspec import Struct

from presilicon.base.errors import ConfigError, unknown

CLOSE = 0.10
"""Two clocks that are nearer than this are as good as one: of such configurations, one is looked at."""


class KernelConfig(NamedTuple):
    """How a kernel is built."""

    compute_units: int
    simd: int
    work_group: int
    unroll: int


class Space(Struct, frozen=True, kw_only=True):
    """All configurations that are tried."""

    compute_units: tuple[int, ...] = (1, 2, 3, 4)
    simd: tuple[int, ...] = (1, 2, 4, 8, 16)
    work_groups: tuple[int, ...] = (32, 64, 128, 256)
    unrolls: tuple[int, ...] = tuple(range(1, 257))

    def __len__(self) -> int:
        return len(self.compute_units) * len(self.simd) * len(self.work_groups) * len(self.unrolls)

    def check(self) -> None:
        """Nothing is empty or below 1; unrolls rise."""
        for name in self.__struct_fields__:
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ConfigError(f"{name} is {list(values)[:8]}: expected numbers of at least 1")
        if list(self.unrolls) != sorted(set(self.unrolls)):
            raise ConfigError("unrolls must rise, each value once")


Fmax = Callable[[int, int, int], float | None]
"""MHz of so many compute units, such a SIMD width and so much unrolling; None where it does not fit on the FPGA."""


class Ranked(NamedTuple):
    """A configuration and how good it looks."""

    rank: int
    config: KernelConfig
    fmax_mhz: float
    indicator: float
    """The latency indicator: the smaller, the faster."""


class Exploration(Struct, frozen=True, kw_only=True):
    """What a search through a space found."""

    best: tuple[Ranked, ...]
    space: int
    queries: int
    """How often Fmax was asked for."""
    infeasible: int
    """Configurations that do not fit, known without asking for each."""
    skipped: int
    """Unrollings between those that were looked at."""
    close: int
    """Configurations left out for a neighbour with the same work group and a clock within 10%."""


def latency_indicator(work: float, work_group: int, fmax_mhz: float) -> float:
    """The published indicator, with the factor that its figures need.

    >>> round(latency_indicator(2048 * 1024 * 1024, 128, 210), 2), round(latency_indicator(2048 * 1024**2, 64, 241), 2)
    (81.81, 142.57)
    """
    if work <= 0 or work_group < 1 or fmax_mhz <= 0:
        raise ConfigError(f"work {work:g}, work group {work_group} and Fmax {fmax_mhz:g} MHz: expected numbers above 0")
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
"""Kinds, what their shape means, and one of middle size. The work is the product of the sides."""


class Input(NamedTuple):
    """An op that a kernel is for."""

    kind: str
    sides: tuple[int, ...]

    @property
    def work(self) -> int:
        """Multiply-adds, comparisons or elements."""
        return prod(self.sides)

    @property
    def longest_loop(self) -> int:
        """Of the loop that is unrolled: the reduction of a product, the window of a pooling, a row of others."""
        if self.kind == "MatMul":
            return self.sides[1]
        if self.kind.startswith("Conv2D"):
            return self.sides[1] * prod(self.sides[5:])
        return prod(self.sides[4:]) if self.kind == "MaxPool" else self.sides[-1]

    @property
    def items(self) -> int:
        """Independent results: a work group cannot be larger."""
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
        raise ConfigError(f"the shape of {kind} is {meaning}, as in {'x'.join(map(str, example))}; given {list(sides)}")
    if not sides or min(sides) < 1:
        raise ConfigError(f"the shape of {kind} is {list(sides)}: expected sides of at least 1")
    return Input(kind, tuple(sides))


def synthetic_fmax(
    *, peak_mhz: float = 480.0, capacity: int = 5011, slope: float = 0.5
) -> Callable[[int, int, int], float | None]:
    """A made-up law, for want of a tool: the clock falls evenly with what is used, until nothing fits.

    Compute units times SIMD width times unrolling is what is used, of `capacity` multipliers (those of a GX 2500). The
    published table implies the opposite for the unrolling: its clocks rise with it.
    """

    def fmax(compute_units: int, simd: int, unroll: int) -> float | None:
        used = compute_units * simd * unroll / capacity
        return None if used > 1 else peak_mhz * (1 - slope * used)

    return fmax


def table_fmax(rows: Mapping[tuple[int, int, int], float]) -> Callable[[int, int, int], float | None]:
    """Clocks by compute units, SIMD width and unrolling; what is not in the table does not fit."""

    def fmax(compute_units: int, simd: int, unroll: int) -> float | None:
        return rows.get((compute_units, simd, unroll))

    return fmax


def explore(op: Input, fmax: Fmax, space: Space | None = None, *, top: int = 5, monotone: bool = True) -> Exploration:
    """The best configurations of a kernel for an op, by their indicators.

    Two prunings. If Fmax has nothing for some unrolling, it has nothing for more of it: where the line runs is found by
    bisection (not with `monotone` off, as for a table with gaps). And of configurations with the same work group whose
    clocks are within 10%, only the one with the smallest indicator is kept.

    Raises:
        ConfigError: nothing in the space fits.
    """
    space = Space() if space is None else space
    space.check()
    asked: dict[tuple[int, int, int], float | None] = {}

    def ask(*key: int) -> float | None:
        if key not in asked:
            asked[key] = fmax(key[0], key[1], key[2])  # type: ignore[index]
        return asked[key]  # type: ignore[index]

    infeasible = skipped = close = 0
    kept: list[tuple[float, float, KernelConfig]] = []
    unrolls = [unroll for unroll in space.unrolls if unroll <= op.longest_loop] or [1]
    dropped = len(space.unrolls) - len(unrolls)
    for group in space.work_groups:
        if group > op.items:
            infeasible += len(space.compute_units) * len(space.simd) * len(space.unrolls)
            continue
        found: list[tuple[float, float, KernelConfig]] = []
        for units in space.compute_units:
            for simd in space.simd:
                fitting, limit = _fitting(ask, units, simd, unrolls, monotone)
                infeasible += len(unrolls) - limit + dropped
                skipped += limit - len(fitting)
                for unroll in fitting:
                    mhz = ask(units, simd, unroll)
                    if mhz is not None:
                        config = KernelConfig(units, simd, group, unroll)
                        found.append((latency_indicator(op.work, group, mhz), mhz, config))
        found.sort(key=lambda each: (each[0], each[2]))
        ours: list[tuple[float, float, KernelConfig]] = []
        for each in found:
            # Sorted by the indicator: a neighbour that is kept is no worse.
            if any(abs(each[1] - other[1]) < CLOSE * other[1] for other in ours):
                close += 1
            else:
                ours.append(each)
        kept += ours
    if not kept:
        raise ConfigError(f"no configuration of {op.kind} {'x'.join(map(str, op.sides))} fits on the FPGA")
    kept.sort(key=lambda each: (each[0], each[2]))
    best = tuple(Ranked(rank, config, mhz, li) for rank, (li, mhz, config) in enumerate(kept[:top], start=1))
    return Exploration(
        best=best, space=len(space), queries=len(asked), infeasible=infeasible, skipped=skipped, close=close
    )


def _fitting(
    ask: Callable[..., float | None], units: int, simd: int, unrolls: Sequence[int], monotone: bool
) -> tuple[list[int], int]:
    """Unrollings to look at, and how many fit.

    With bisection: the least, the most, and powers of two between them, for laws that do not quite fall or rise.
    """
    if not monotone:
        found = [unroll for unroll in unrolls if ask(units, simd, unroll) is not None]
        return found, len(found)
    low, high = 0, len(unrolls)
    while low < high:
        middle = (low + high) // 2
        if ask(units, simd, unrolls[middle]) is None:
            high = middle
        else:
            low = middle + 1
    chosen = {0, low - 1, *(index for index, unroll in enumerate(unrolls[:low]) if unroll & (unroll - 1) == 0)}
    return [unrolls[index] for index in sorted(chosen) if 0 <= index < low], low


def kernels_by_size(
    kind: str, sizes: Mapping[str, Sequence[int]], fmax: Fmax, space: Space | None = None, *, monotone: bool = True
) -> dict[str, Ranked]:
    """The best kernel for each of several input sizes: what is preloaded, and chosen from when an op is started.

    The indicator ranks configurations alike for every input; sizes differ in what they allow: a work group no larger
    than the independent results, no more unrolling than the loop is long.
    """
    return {
        size: explore(make_input(kind, sides), fmax, space, top=1, monotone=monotone).best[0]
        for size, sides in sizes.items()
    }
