"""What an implementation of a MAC unit needs to know, worked out once from its description."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from presilicon.base.errors import FormatError
from presilicon.formats.fixed import Fixed
from presilicon.formats.format import Format
from presilicon.formats.grid import Grid, grid_of
from presilicon.formats.mac import MacUnit
from presilicon.formats.rounding import Stochastic

NEAREST_EVEN = "nearest-even"


@dataclass(frozen=True, slots=True)
class Plan:
    """A MAC unit in terms of grids: products, sums within a chunk, sums of chunks."""

    product: Grid | None
    """None: products are exact."""
    product_mode: str | Stochastic
    partial: Grid
    partial_mode: str | Stochastic
    total: Grid
    total_mode: str | Stochastic
    order: Literal["lanes", "pairwise", "aligned"]
    """`lanes` stands for sequential, chunked and systolic alike."""
    chunk: int | None
    width: int
    align_bits: int

    @property
    def source(self) -> Stochastic | None:
        """The random source, where anything is rounded stochastically."""
        return self.total_mode if isinstance(self.total_mode, Stochastic) else None

    def chunk_size(self, depth: int) -> int:
        """Products per chunk when the reduction axis has `depth` of them."""
        return max(1, min(self.chunk or depth, depth))

    def rounding_count(self, depth: int) -> int:
        """How many roundings, products and sums together, one output takes."""
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


@lru_cache(maxsize=256)
def plan_of(mac: MacUnit) -> Plan:
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
        partial, partial_mode = sum_grid("partial", mac.partial), NEAREST_EVEN
    product, product_mode = None, mode
    if mac.multiply is not None:
        product = sum_grid("multiply", mac.multiply)
    elif mac.fused is False:
        product, product_mode = partial, partial_mode
    return Plan(
        product=product,
        product_mode=product_mode,
        partial=partial,
        partial_mode=partial_mode,
        total=total,
        total_mode=mode,
        order={"pairwise": "pairwise", "aligned": "aligned"}.get(mac.order, "lanes"),  # type: ignore[arg-type]
        chunk=mac.rows if mac.order == "systolic" else mac.chunk,
        width=mac.width,
        align_bits=mac.align_bits or 0,
    )


def sum_grid(name: str, fmt: Format) -> Grid:
    """The grid of the format of products or sums; `name` is the field that holds it."""
    allowed = "allowed: floating point, and fixed point that saturates"
    if isinstance(fmt, Fixed) and fmt.overflow == "wrap":
        raise FormatError(f"{name}={fmt}: a MAC unit cannot round to a format that wraps; {allowed}")
    try:
        return grid_of(fmt)
    except FormatError:
        raise FormatError(f"{name}={fmt}: a MAC unit cannot round to this format; {allowed}") from None
