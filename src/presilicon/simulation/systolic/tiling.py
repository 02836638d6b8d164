"""Tiles of a matrix product in half of the on-chip buffer, chosen for the least DRAM traffic.

C[m, n] = A[m, k] B[k, n] is walked tile by tile in three nested loops. The buffer holds one tile of A, of B and of the
sums; a tile is fetched when the walk leaves the one before. So, with T tiles along each dimension, in an order of loops

    A is read T_n times    when a loop over m or k of more than one tile lies inside the loop over n, and once if not
    B is read T_m times    when a loop over k or n lies inside the loop over m
    sums go to DRAM and come back T_k - 1 times    when a loop over m or n lies inside the loop over k

Traffic never falls when a dimension has more tiles. The search therefore tries every number of tiles along two
dimensions and takes the largest tile that then fits along the third. The oracle in
`tests/oracles/tiling.py` tries every tiling and counts by walking the loops.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations, product
from math import ceil, floor

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.records import Gemm

DIMENSIONS = ("m", "k", "n")
ORDERS = tuple("".join(order) for order in permutations(DIMENSIONS))

_MOST_CUTS = 128
"""Tile counts tried along one dimension; a dimension with more of them (over 4096 times the array) is thinned out."""


class ElementBytes(Struct, frozen=True):
    """Bytes of one element of A, of B and of the sums, in the buffer and in DRAM.

    An operand that im2col spreads out is held and fetched as it was before, so an element takes less than its format.
    """

    a: float
    b: float
    sum: float


class Tiling(Struct, frozen=True, kw_only=True):
    """Tile sizes, the order of the loops over tiles (outermost first), and how often each matrix crosses DRAM."""

    tile_m: int
    tile_k: int
    tile_n: int
    order: str
    reads_a: int
    reads_b: int
    spills: int
    """Times that unfinished sums go to DRAM and come back."""

    def traffic(self, gemm: Gemm, element: ElementBytes) -> tuple[float, float, float]:
        """DRAM bytes of A, of B and of unfinished sums, in all products. The finished result is not counted."""
        a, b, sums = gemm.m * gemm.k * element.a, gemm.k * gemm.n * element.b, gemm.m * gemm.n * element.sum
        return gemm.count * self.reads_a * a, gemm.count * self.reads_b * b, gemm.count * 2 * self.spills * sums

    def bytes_dram(self, gemm: Gemm, element: ElementBytes) -> float:
        """The sum of `traffic`."""
        return sum(self.traffic(gemm, element))


@lru_cache(maxsize=1 << 14)
def find_tiling(gemm: Gemm, steps: tuple[int, int, int], element: ElementBytes, capacity_bytes: float) -> Tiling:
    """The tiling of each product of `gemm` with the least DRAM traffic; of equal ones, one with the fewest tiles.

    Tiles are multiples of `steps` along m, k and n (the array's side for a dimension that lies on it), or the whole
    dimension. `capacity_bytes` is what tiles of A, B and the sums may take together.

    Raises:
        ConfigError: one step along each dimension does not fit.

    >>> whole = find_tiling(Gemm(512, 512, 512), (1, 128, 128), ElementBytes(4, 4, 4), capacity_bytes=4 << 20)
    >>> whole.reads_a, whole.reads_b, whole.spills
    (1, 1, 0)
    >>> find_tiling(Gemm(512, 512, 512), (1, 128, 128), ElementBytes(4, 4, 4), capacity_bytes=1 << 20)
    Tiling(tile_m=170, tile_k=512, tile_n=256, order='nmk', reads_a=2, reads_b=1, spills=0)
    """
    sizes = (gemm.m, gemm.k, gemm.n)
    smallest = tuple(min(step, size) for step, size in zip(steps, sizes, strict=True))
    needed = _occupied(smallest, element)
    if needed > capacity_bytes:
        raise ConfigError(
            f"machine.sram_kib: half of the buffer holds {capacity_bytes / 1024:g} KiB, but one tile of A, B and the "
            f"sums ({' x '.join(map(str, smallest))} of m, k, n) takes {needed / 1024:g} KiB: give it at least "
            f"{ceil(2 * needed / 1024)} KiB, or make the array smaller"
        )
    if _occupied(sizes, element) <= capacity_bytes:
        return Tiling(tile_m=gemm.m, tile_k=gemm.k, tile_n=gemm.n, order="mnk", reads_a=1, reads_b=1, spills=0)
    totals = (gemm.m * gemm.k * element.a, gemm.k * gemm.n * element.b, gemm.m * gemm.n * element.sum)
    best: tuple[float, int] | None = None
    chosen: tuple[tuple[int, ...], str, tuple[int, int, int]] | None = None
    for tiles in _candidates(sizes, steps, element, capacity_bytes):
        trips = tuple(-(-size // tile) for size, tile in zip(sizes, tiles, strict=True))
        for order, repeats in _CHOICES[trips[0] > 1, trips[1] > 1, trips[2] > 1]:
            reads_a, reads_b = trips[2] if repeats[0] else 1, trips[0] if repeats[1] else 1
            spills = trips[1] - 1 if repeats[2] else 0
            traffic = reads_a * totals[0] + reads_b * totals[1] + 2 * spills * totals[2]
            rank = (traffic, trips[0] * trips[1] * trips[2])
            if best is None or rank < best:
                best, chosen = rank, (tiles, order, (reads_a, reads_b, spills))
    assert chosen is not None  # the smallest tiles fit
    (tile_m, tile_k, tile_n), order, (reads_a, reads_b, spills) = chosen
    return Tiling(
        tile_m=tile_m, tile_k=tile_k, tile_n=tile_n, order=order, reads_a=reads_a, reads_b=reads_b, spills=spills
    )


def _candidates(
    sizes: tuple[int, int, int], steps: tuple[int, int, int], element: ElementBytes, capacity: float
) -> Iterator[tuple[int, ...]]:
    """Tile sizes that fit: every number of tiles along two dimensions, the largest tile along the longest third."""
    units = [ceil(size / step) for size, step in zip(sizes, steps, strict=True)]
    solved = max(range(3), key=lambda axis: units[axis])
    first, second = (axis for axis in range(3) if axis != solved)
    for tile_first, tile_second in product(_cuts(sizes[first], steps[first]), _cuts(sizes[second], steps[second])):
        tiles = [0, 0, 0]
        tiles[first], tiles[second] = tile_first, tile_second
        fixed = _occupied(tiles, element)
        tiles[solved] = 1
        slope = _occupied(tiles, element) - fixed
        room = floor((capacity - fixed) / slope) if slope else sizes[solved]
        largest = min(sizes[solved], room // steps[solved] * steps[solved] if room < sizes[solved] else room)
        if largest >= min(steps[solved], sizes[solved]):
            tiles[solved] = largest
            yield tuple(tiles)


def _cuts(size: int, step: int) -> list[int]:
    """The smallest tile for each number of tiles into which `size` can be cut, largest tile first."""
    units = ceil(size / step)
    counts, count = [], 1
    while count <= units:
        tile = ceil(units / count)
        counts.append(count)
        count = max(count + 1, ceil(units / (tile - 1))) if tile > 1 else units + 1
    if len(counts) > _MOST_CUTS:
        counts = sorted({counts[round(i * (len(counts) - 1) / (_MOST_CUTS - 1))] for i in range(_MOST_CUTS)})
    return [min(size, step * ceil(units / count)) for count in counts]


def _occupied(tiles: tuple[int, ...] | list[int], element: ElementBytes) -> float:
    m, k, n = tiles
    return m * k * element.a + k * n * element.b + m * n * element.sum


def _repeats(order: str, is_cut: tuple[bool, bool, bool]) -> tuple[bool, bool, bool]:
    """Whether A, B and the sums cross DRAM again for each tile of the dimension that they do not have."""
    inside = {outer: set(order[depth + 1 :]) for depth, outer in enumerate(order)}
    cut = {name for name, several in zip(DIMENSIONS, is_cut, strict=True) if several}
    return bool(inside["n"] & cut), bool(inside["m"] & cut), bool(inside["k"] & cut)


def _choices(is_cut: tuple[bool, bool, bool]) -> list[tuple[str, tuple[bool, bool, bool]]]:
    """Orders worth trying: those of which no other repeats a part of what they repeat, each pattern once."""
    by_repeats: dict[tuple[bool, bool, bool], str] = {}
    for order in ORDERS:
        by_repeats.setdefault(_repeats(order, is_cut), order)
    return [
        (order, own)
        for own, order in by_repeats.items()
        if not any(other != own and all(o <= s for o, s in zip(other, own, strict=True)) for other in by_repeats)
    ]


_YES_NO = (False, True)
_CHOICES = {(m, k, n): _choices((m, k, n)) for m, k, n in product(_YES_NO, _YES_NO, _YES_NO)}
