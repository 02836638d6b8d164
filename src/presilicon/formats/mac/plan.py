"""The plan of a MAC unit: its parameters for the implementations, derived once from its description."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from presilicon.base import FormatError
from presilicon.formats.format import Format
from presilicon.formats.kernels.grid import Grid, grid_of, mode_number, value_of_bits
from presilicon.formats.mac.unit import FLOAT32, MacUnit
from presilicon.formats.rounding import Mode, Stochastic

NEAREST_EVEN = "nearest-even"

ZERO_EXPONENT, SUM_FLOOR = -133, -126
SUM_LIMIT: float = 2.0**128
"""Exponent of a zero in a tensor core, that of a subnormal sum, and the magnitude from which sums are infinite."""

MOST_LEAN_BITS = 11
"""Significant bits of sums up to which a float32 sum may be rounded again: 2 x 11 + 1 = 23."""


@dataclass(frozen=True, slots=True)
class MacPlan:
    """A MAC unit in terms of grids: products, sums within a chunk, sums of chunks."""

    product: Grid | None
    """None: products are exact."""
    product_mode: Mode
    partial: Grid
    partial_mode: Mode
    total: Grid
    total_mode: Mode
    order: Literal["lanes", "pairwise", "aligned"]
    """`lanes` stands for sequential, chunked and systolic alike."""
    chunk: int | None
    width: int
    align_bits: int
    floors: tuple[int, int] | None
    """The exponents of a tensor core's subnormal operands; None for other units."""

    @property
    def source(self) -> Stochastic | None:
        """The random source, if anything is rounded stochastically."""
        return self.total_mode if isinstance(self.total_mode, Stochastic) else None

    @property
    def is_sequential(self) -> bool:
        """Whether each chunk is one running sum."""
        return self.order == "lanes" and self.width == 1

    @property
    def is_native(self) -> bool:
        """Whether sums within a chunk are float32 sums one after another, which the processor computes."""
        float32 = grid_of(FLOAT32)
        product = self.product is None or (self.product == float32 and self.product_mode == NEAREST_EVEN)
        return self.is_sequential and self.partial == float32 and self.partial_mode == NEAREST_EVEN and product

    @property
    def is_leanable(self) -> bool:
        """Whether sums rounded to nearest-even could be computed in float32, if the numbers allow it."""
        return self.is_wide_leanable and self.partial.mantissa < MOST_LEAN_BITS

    @property
    def is_wide_leanable(self) -> bool:
        """Whether sums rounded to nearest-even could be computed in float64, if the numbers allow it."""
        return self.is_nearest and self.is_sequential

    @property
    def is_leanable_tree(self) -> bool:
        """Whether a tree of sums rounded to nearest-even could be computed in float32, if the numbers allow it."""
        return self.is_nearest and self.order == "pairwise" and self.partial.mantissa < MOST_LEAN_BITS

    @property
    def is_nearest(self) -> bool:
        """Whether everything is rounded to nearest-even, on a grid with subnormals and -0, the same for all sums."""
        nearest = all(mode == NEAREST_EVEN for mode in (self.product_mode, self.partial_mode, self.total_mode))
        plain = all(grid.tiny == 0 and grid.negative_zero for grid in (self.partial, self.product or self.partial))
        return nearest and plain and self.partial.mantissa > 0 and self.partial == self.total

    @property
    def is_drawable(self) -> bool:
        """Whether sums rounded by random words could be computed in float64, if the numbers allow it."""
        grid, mode = self.partial, self.partial_mode
        drawn = (
            isinstance(mode, Stochastic) and mode.source == "counter" and mode == self.total_mode and grid == self.total
        )
        plain = grid.tiny == 0 and grid.negative_zero == 1 and 0 < grid.mantissa <= 20
        return drawn and plain and self.product is None and self.is_sequential

    @property
    def lean_limits(self) -> "LeanLimits":
        """The limits on the numbers for which lean arithmetic is exact."""
        grid, product = self.partial, self.product
        spare = 23 - grid.mantissa
        limits = LeanLimits(grid.mantissa + 1, min(_largest(grid), 2.0 ** (126 - spare)))
        if product is None:
            return limits
        last = product.low - 127 - product.mantissa
        return replace(limits, product_bits=product.mantissa + 1, product_last=last, product_largest=_largest(product))

    def chunk_size(self, depth: int) -> int:
        """Products per chunk when the reduction axis has `depth` of them."""
        return max(1, min(self.chunk or depth, depth))

    def rounding_count(self, depth: int) -> int:
        """Roundings of products and sums for one output."""
        if depth == 0:
            return 0
        size = self.chunk_size(depth)
        whole, rest = divmod(depth, size)
        return whole * self._chunk_count(size) + (self._chunk_count(rest) if rest else 0)

    def _chunk_count(self, size: int) -> int:
        products = 0 if self.product is None else size
        match self.order:
            case "lanes":
                sums = size + min(self.width, size) - 1
            case "pairwise":
                sums = max(1, size - 1)
            case "aligned":
                sums = -(-size // self.width)
        return products + sums + 1


LIFTED = 7
"""The kernels' id of nearest-even once more, in fewer operations, for grids with a mantissa."""


def kernel_mode(mode: Mode, grid: Grid) -> int:
    """The kernels' id of a rounding mode on a grid."""
    number = mode_number(mode)
    return LIFTED if number == mode_number(NEAREST_EVEN) and grid.mantissa > 0 else number


@lru_cache(maxsize=1024)
def wide_grid(grid: Grid) -> tuple[float, ...]:
    """A grid as the kernels take it: three integers, then magnitudes as float64."""
    limits = (grid.tiny, grid.max_positive, grid.max_negative, grid.over_positive, grid.over_negative, grid.nan)
    return (grid.mantissa, grid.low, grid.negative_zero, *map(value_of_bits, limits))


@dataclass(frozen=True, slots=True)
class LeanLimits:
    """Limits within which float32 arithmetic gives the bits of exact arithmetic; see `mac.numba_kernels.is_lean`."""

    bits: int
    """Significant bits of sums; products must not have more."""
    largest: float
    """Limit of four times the sum of the products' magnitudes."""
    product_bits: int = 48
    product_last: int = -400
    """Exponent of the last place of the products' own format, if they have one."""
    product_largest: float = math.inf


def _largest(grid: Grid) -> float:
    """The largest magnitude that a grid has with either sign."""
    return value_of_bits(min(grid.max_positive, grid.max_negative))


@lru_cache(maxsize=256)
def plan_of(mac: MacUnit) -> MacPlan:
    """The plan of a checked MAC unit.

    >>> from presilicon.formats import Float
    >>> plan_of(MacUnit(accumulate=Float(6, 9), order="systolic", rows=16)).chunk
    16

    Raises `FormatError` for a unit that cannot exist.
    """
    mac.check()
    mode = mac.rounding_mode
    total = sum_grid("accumulate", mac.accumulate)
    partial, partial_mode = total, mode
    if mac.partial is not None:
        partial, partial_mode = sum_grid("partial", mac.partial), mac.partial_rounding or NEAREST_EVEN
    product, product_mode = None, mode
    if mac.multiply is not None:
        product = sum_grid("multiply", mac.multiply)
    elif mac.fused is False:
        product, product_mode = partial, partial_mode
    return MacPlan(
        product=product,
        product_mode=product_mode,
        partial=partial,
        partial_mode=partial_mode,
        total=total,
        total_mode=mode,
        order={"pairwise": "pairwise", "aligned": "aligned"}.get(mac.order or "", "lanes"),  # type: ignore[arg-type]
        chunk=mac.rows if mac.order == "systolic" else mac.chunk,
        width=mac.width,
        align_bits=mac.align_bits or 0,
        floors=None if mac.left is None or mac.right is None else (_floor(mac.left), _floor(mac.right)),
    )


def _floor(fmt: Format) -> int:
    """The exponent of the smallest normal number of a float."""
    return 1 - fmt.exponent_bias


def sum_grid(name: str, fmt: Format) -> Grid:
    """The grid of the format of products or sums; `name` is the field that holds it."""
    grid = None if fmt.wraps else fmt.grid()
    if grid is None:
        raise FormatError(f"{name} must be floating point, or fixed point that saturates, not {fmt}")
    return grid
