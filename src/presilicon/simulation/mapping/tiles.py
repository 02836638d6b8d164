"""Mappings of matrix products on a systolic array: a tile for each level of memory, and the loops around it.

C[m, n] = A[m, k] B[k, n] runs as loops over tiles, level within level, down to the folds of the array. A memory holds
one tile of each operand that it has; a tile is fetched when the loops around it leave the one before. An operand lacks
one of the three dimensions. It is fetched once for each tile along that dimension, unless the loops that lie directly
around its tile run along it: those leave the tile in place.

The same rule holds for the operand that stays in the array: whenever the loops leave its fold, the array is emptied and
filled again. So cycles, traffic of every memory and energy come from one mapping.

The search tries every number of tiles along the two dimensions that lie on the array, with the largest tile along the
third, which streams, and each innermost loop. Several levels are searched from the outermost inward, the outer tiles
that could be best first, as long as one of them could still win. The oracle in `tests/oracles/tiles.py` walks the
loops of every mapping.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, inf
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.records import Gemm

Objective = Literal["time", "energy", "product"]
M, K, N = range(3)
LACKS = (N, M, K)
"""The dimension that A, B and the sums do not have."""
SUMS = 2
MOST_CUTS = 128
"""Tile counts tried along one dimension; a dimension with more of them (over 4096 times the array) is thinned out."""
MOST_OUTER = 200
"""Tiles of an outer level that are tried with the best tiles inside of each."""


class ElementBytes(Struct, frozen=True):
    """Bytes of one element of A, of B and of the sums.

    An operand that im2col spreads out is held and fetched as it was before, so an element takes less than its format.
    """

    a: float
    b: float
    sum: float

    def totals(self, gemm: Gemm) -> tuple[float, float, float]:
        """Bytes of each operand of all products."""
        m, k, n = gemm.m * gemm.count, gemm.k, gemm.n
        return m * k * self.a, gemm.count * k * n * self.b, m * n * self.sum


class Buffer(Struct, frozen=True, kw_only=True):
    """A memory as a mapping sees it, all copies together."""

    name: str
    label: str = ""
    """Where a design describes it."""
    kib: float = 0.0
    """Capacity of a copy, as a design gives it."""
    level: int
    """Position from the array outward; memories of one level hold different operands."""
    holds: tuple[int, ...]
    """A, B and sums by their numbers."""
    usable_bytes: float
    byte_j: float = 0.0
    bytes_per_cycle: float = inf
    """Read and, at the same time, written."""
    has_one_port: bool = False
    """Whether reading and writing share that rate."""
    is_doubled: bool = True
    """Whether half of it is filled while the other half is in use; if not, the array waits while it is filled."""


class Fabric(Struct, frozen=True, kw_only=True):
    """An array with its memories, and the rates of everything that a mapping decides about."""

    steps: tuple[int, int, int]
    """Sizes along m, k and n that one fold takes; one along the dimension that streams."""
    stream: int
    buffers: tuple[Buffer, ...]
    """From the array outward."""
    dram_bytes_per_cycle: float = inf
    dram_byte_j: float = 0.0
    """Of a byte between DRAM and the outermost memory."""
    cycle_j: float = 0.0
    """Leakage."""

    @property
    def levels(self) -> int:
        """Levels of memory between the array and DRAM."""
        return self.buffers[-1].level + 1

    def outermost_halved(self) -> "Fabric":
        """The same with half of the outermost memory."""
        last = self.buffers[-1]
        return replace(self, buffers=(*self.buffers[:-1], replace(last, usable_bytes=last.usable_bytes / 2)))

    @property
    def outermost(self) -> tuple[str, ...]:
        """The names of the memories that exchange A, B and sums with DRAM."""
        return tuple(
            next(buffer.name for buffer in reversed(self.buffers) if operand in buffer.holds) for operand in range(3)
        )


class MappingTask(Struct, frozen=True, kw_only=True):
    """A product with what is the same for all of its mappings."""

    gemm: Gemm
    held: ElementBytes
    """Room that elements take in memories."""
    streamed: ElementBytes
    """On the way to the array."""
    folds: tuple[int, int, int]
    """Folds along m, k and n; one along the dimension that streams."""
    cycles: float
    """Cycles of the array when each fold stays until it is done."""
    reload_cycles: float
    """Cycles of loading all folds once more."""
    fixed_j: float = 0.0
    """Energy of arithmetic and registers."""
    other_dram_bytes: float = 0.0
    """DRAM bytes of results and of what is added to them."""
    compressed: ElementBytes | None = None
    """Between memories, where operands lie compressed in them; without it, as held."""
    dram_shares: tuple[float, float] = (1.0, 1.0)
    """Bytes of A and B in DRAM over those in the outermost memory."""

    def totals(self) -> tuple[float, float, float]:
        """Bytes of both operands and of the sums between memories, each once."""
        return (self.compressed or self.held).totals(self.gemm)


class Tile(Struct, frozen=True):
    """The part of a product that a level holds, and the loop directly around it."""

    m: int
    k: int
    n: int
    innermost: int
    """The dimension along which the loop runs that is directly around the tile."""


def goal_of(objective: Objective, time: float, energy: float) -> tuple[float, float]:
    """Smaller for what is better by an objective."""
    return {"time": (time, energy), "energy": (energy, time), "product": (time * energy, time)}[objective]


class TilePrice(Struct, frozen=True, kw_only=True):
    """A mapping, from the array outward, with its cycles, traffic and energy."""

    tiles: tuple[Tile, ...]
    reads_a: int
    """Times that A crosses DRAM."""
    reads_b: int
    spills: int
    """Times that unfinished sums go to DRAM and come back."""
    loads: int
    """Times that each fold is loaded into the array."""
    cycles: float
    """Of the array, and of waiting for memories on the chip."""
    dram_cycles: float
    time_cycles: float
    """Of the whole product: the longer of both, or their sum where the outermost memory is not doubled."""
    traffic: dict[str, float]
    """Bytes that each memory reads and writes, without those on their way from and to DRAM."""
    energy_j: float

    def goal(self, objective: Objective) -> tuple[float, float]:
        """Smaller for a better mapping."""
        return goal_of(objective, self.time_cycles, self.energy_j)

    def occupied(self, task: MappingTask) -> float:
        """Bytes of the outermost tile of all three operands."""
        tile = self.tiles[-1]
        return float(tile.m * tile.k * task.held.a + tile.k * tile.n * task.held.b + tile.m * tile.n * task.held.sum)

    def dram_bytes(self, task: MappingTask) -> tuple[float, float, float]:
        """DRAM bytes of A, of B and of unfinished sums; finished results are not counted."""
        (a, b, sums), (a_share, b_share) = task.totals(), task.dram_shares
        return self.reads_a * a * a_share, self.reads_b * b * b_share, 2 * self.spills * sums


class _Prices(NamedTuple):
    """Prices of many candidates at once; each is an array, or a number that they share."""

    crossings: list[Any]
    """How often A, B and the sums cross DRAM."""
    loads: Any
    cycles: Any
    dram_cycles: Any
    time: Any
    traffic: dict[str, Any]
    energy_j: Any


@lru_cache(maxsize=1 << 14)
def find_tiles(
    task: MappingTask, fabric: Fabric, objective: Objective = "time", most_cuts: int = MOST_CUTS
) -> TilePrice:
    """The mapping with the least time, energy or product of both; of equally fast ones, that with the least energy.

    Along a dimension with more than about `most_cuts`^2 / 4 folds, not every number of tiles is tried.

    Raises:
        ConfigError: a memory cannot hold one fold.

    >>> fold = {"steps": (1, 128, 128), "stream": M}
    >>> product = Gemm(512, 512, 512)
    >>> floats, folds = ElementBytes(4, 4, 4), (1, 4, 4)
    >>> task = MappingTask(gemm=product, held=floats, streamed=floats, folds=folds, cycles=1, reload_cycles=1)
    >>> sram = Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=1 << 20)
    >>> found = find_tiles(task, Fabric(buffers=(sram,), dram_bytes_per_cycle=1.0, **fold))
    >>> found.tiles, found.reads_a, found.reads_b, found.spills
    ((Tile(m=170, k=512, n=256, innermost=0),), 2, 1, 0)
    """
    sizes = _sizes(task)
    smallest = tuple(min(step, size) for step, size in zip(fabric.steps, sizes, strict=True))
    for buffer in fabric.buffers:
        needed = _occupied(smallest, task.held, buffer)
        if needed > buffer.usable_bytes:
            raise ConfigError(_too_small(buffer, smallest, needed))
    tiles = _search(task, fabric, fabric.levels - 1, sizes, (), objective, most_cuts, None)
    assert tiles is not None
    found = _settled_price(task, fabric, tiles)
    if fabric.levels == 1:
        return found
    # Tiles that fill a large memory can leave more over for those inside of it than ones that fill a part of it do.
    half = fabric.outermost_halved()
    if any(_occupied(smallest, task.held, buffer) > buffer.usable_bytes for buffer in half.buffers):
        return found
    other = find_tiles(task, half, objective, most_cuts)
    return other if _is_better(other, found, objective) else found


def _search(
    task: MappingTask,
    fabric: Fabric,
    level: int,
    bounds: Sequence[int],
    outer: tuple[Tile, ...],
    objective: Objective,
    most_cuts: int,
    best: TilePrice | None,
) -> tuple[Tile, ...] | None:
    """The tiles of a level and of those inside it with the best price; None if none is better than `best`.

    A tile of an outer level is priced as if whatever is inside never fetched anything twice while it stays, which no
    inner tile can better. Those with the best such price come first, until none is left that could win.
    """
    candidates = _candidates(bounds, task, fabric, level, most_cuts)
    prices = [_price(task, fabric, level, candidates, innermost, outer) for innermost in range(3)]
    order, goals = _ranked(prices, len(candidates[0]), objective)
    found: tuple[Tile, ...] | None = None
    for number, position in enumerate(order[: 1 if level == 0 else MOST_OUTER]):
        limit = None if best is None else best.goal(objective)[0]
        if limit is not None and number and goals.flat[position] > limit * (1 + 1e-12):
            break
        innermost, index = divmod(int(position), len(candidates[0]))
        m, k, n = (int(sides[index]) for sides in candidates)
        tiles: tuple[Tile, ...] | None = (Tile(m, k, n, innermost), *outer)
        if level:
            assert tiles is not None
            tiles = _search(task, fabric, level - 1, (m, k, n), tiles, objective, most_cuts, best)
        if tiles is None:
            continue
        own = _settled_price(task, fabric, tiles)
        if best is None or _is_better(own, best, objective):
            best, found = own, tiles
    return found


def _is_better(price: TilePrice, other: TilePrice, objective: Objective) -> bool:
    """Whether a price is better than another one; equal ones are told apart by the second part of the goal."""
    (first, second), (other_first, other_second) = price.goal(objective), other.goal(objective)
    if abs(first - other_first) <= 1e-12 * other_first:
        return second < other_second * (1 - 1e-12)
    return first < other_first


def _ranked(prices: Sequence[_Prices], count: int, objective: Objective) -> tuple[Any, Any]:
    """Candidates by innermost loop and number, the best first, and the goal of each; energy decides between times."""
    energy = np.array([np.broadcast_to(price.energy_j, count) for price in prices])
    time = np.array([np.broadcast_to(price.time, count) for price in prices])
    goal = {"time": time, "energy": energy, "product": energy * time}[objective]
    near = np.round(goal / max(float(np.min(goal, initial=inf)), 1e-300), 12)
    return np.lexsort(((energy if objective == "time" else time).ravel(), near.ravel())), goal


def _settled_price(task: MappingTask, fabric: Fabric, tiles: tuple[Tile, ...]) -> TilePrice:
    """The price of settled tiles."""
    inner = tiles[0]
    sides = [np.array([side]) for side in (inner.m, inner.k, inner.n)]
    return _settled(_price(task, fabric, 0, sides, inner.innermost, tiles[1:]), tiles)


def _settled(price: _Prices, tiles: tuple[Tile, ...]) -> TilePrice:
    """The price of the only candidate."""
    reads_a, reads_b, passes, loads = (int(np.ravel(times)[0]) for times in (*price.crossings, price.loads))
    cycles, dram_cycles, time, energy_j = (
        float(np.ravel(v)[0]) for v in (price.cycles, price.dram_cycles, price.time, price.energy_j)
    )
    return TilePrice(
        tiles=tiles,
        reads_a=reads_a,
        reads_b=reads_b,
        spills=passes - 1,
        loads=loads,
        cycles=cycles,
        dram_cycles=dram_cycles,
        time_cycles=time,
        traffic={name: float(np.ravel(moved)[0]) for name, moved in price.traffic.items()},
        energy_j=energy_j,
    )


def least_traffic(gemm: Gemm, element: ElementBytes, capacity_bytes: float) -> float:
    """Bytes of operands and unfinished sums that at least cross the border of a memory, whatever the order and tiles.

    The bound of Orojenesis (Huang et al., ISCA 2024): the best of all tilings, down to single elements, with all of the
    memory in use. The finished result comes on top, once. A memory that cannot hold three elements is as one that can.

    >>> one = ElementBytes(1, 1, 1)
    >>> least_traffic(Gemm(64, 64, 64), one, 3 * 64 * 64), least_traffic(Gemm(64, 64, 64), one, 1000)
    (8192.0, 20480.0)
    """
    room = max(capacity_bytes, element.a + element.b + element.sum)
    buffer = Buffer(name="", level=0, holds=(0, 1, 2), usable_bytes=room)
    task = MappingTask(gemm=gemm, held=element, streamed=element, folds=(1, 1, 1), cycles=0.0, reload_cycles=0.0)
    longest = max(range(3), key=_sizes(task).__getitem__)
    fabric = Fabric(steps=(1, 1, 1), stream=longest, buffers=(buffer,), dram_bytes_per_cycle=1.0)
    return sum(find_tiles(task, fabric, most_cuts=512).dram_bytes(task))


def _sizes(task: MappingTask) -> tuple[int, int, int]:
    return task.gemm.m, task.gemm.k, task.gemm.n


def _too_small(buffer: Buffer, smallest: tuple[int, ...], needed: float) -> str:
    return (
        f"{buffer.label}: {buffer.usable_bytes / 1024:g} KiB of it hold data in use, but one tile "
        f"({' x '.join(map(str, smallest))} of m, k, n) takes {needed / 1024:g} KiB: give it at least "
        f"{ceil(buffer.kib * needed / buffer.usable_bytes)} KiB, or make the array smaller"
    )


def _occupied(tile: Sequence[Any], held: ElementBytes, buffer: Buffer) -> Any:
    """Bytes of a tile's operands in a memory."""
    m, k, n = tile
    sizes = m * k * held.a, k * n * held.b, m * n * held.sum
    return sum(sizes[operand] for operand in buffer.holds)


def _candidates(bounds: Sequence[int], task: MappingTask, fabric: Fabric, level: int, most_cuts: int) -> list[Any]:
    """Tiles of a level that fit: every number of tiles along two dimensions, the largest along that which streams.

    Those of outer levels are as even as that allows, so that tiles inside of them leave little over.
    """
    stream = fabric.stream
    first, second = (dim for dim in range(3) if dim != stream)
    grid = np.meshgrid(*(_cuts(bounds[dim], fabric.steps[dim], most_cuts) for dim in (first, second)), indexing="ij")
    tiles: list[Any] = [None] * 3
    tiles[first], tiles[second] = grid[0].ravel(), grid[1].ravel()
    largest = np.full(len(tiles[first]), bounds[stream], float)
    for buffer in fabric.buffers:
        if buffer.level == level:
            tiles[stream] = 0
            fixed = _occupied(tiles, task.held, buffer)
            tiles[stream] = 1
            slope = _occupied(tiles, task.held, buffer) - fixed
            room = np.floor((buffer.usable_bytes - fixed) / np.maximum(slope, 1e-300) * (1 + 1e-12))
            largest = np.minimum(largest, np.where((slope == 0) & (fixed <= buffer.usable_bytes), inf, room))
    fits = largest >= 1
    tiles[stream] = np.maximum(largest, 1).astype(np.int64)
    if level:
        tiles[stream] = -(-bounds[stream] // -(-bounds[stream] // tiles[stream]))
    return [sides[fits] for sides in tiles]


def _cuts(size: int, step: int, most: int) -> list[int]:
    """The smallest tile for each number of tiles into which `size` can be cut, largest tile first."""
    units = ceil(size / step)
    counts, count = [], 1
    while count <= units:
        tile = ceil(units / count)
        counts.append(count)
        count = max(count + 1, ceil(units / (tile - 1))) if tile > 1 else units + 1
    if len(counts) > most:
        counts = sorted({counts[round(i * (len(counts) - 1) / (most - 1))] for i in range(most)})
    return [min(size, step * ceil(units / count)) for count in counts]


def _price(
    task: MappingTask, fabric: Fabric, level: int, sides: list[Any], innermost: int, outer: tuple[Tile, ...]
) -> _Prices:
    """Cycles, traffic and energy of candidates for a level, whose outer levels are settled.

    Levels inside it fetch as little as any tiles of theirs could: no more often than this level itself.
    """
    sizes = _sizes(task)
    tiles: list[tuple[list[Any], int]] = [(sides, innermost), *(([t.m, t.k, t.n], t.innermost) for t in outer)]
    totals, moved = task.totals(), list(task.streamed.totals(task.gemm))
    loads = _times(LACKS.index(fabric.stream), tiles, sizes, fold=fabric.steps if level == 0 else None)
    # Whatever moves through the array crosses its border once for each fold along the dimension that it lacks.
    crossings: list[Any] = [task.folds[dim] if dim != fabric.stream else loads for dim in LACKS]
    traffic: dict[str, Any] = {}
    cycles: Any = task.cycles + (loads - 1) * task.reload_cycles
    waits: Any = 0.0
    energy: Any = task.fixed_j
    outermost = fabric.outermost
    for buffer in fabric.buffers:
        read = written = outside = filled = 0.0
        for operand in buffer.holds:
            times = _times(operand, tiles[max(buffer.level - level, 0) :], sizes)
            inner, own = moved[operand] * crossings[operand], totals[operand] * times
            if operand == SUMS:  # written and read again by the array, and leave, to return if they are unfinished
                returns, refills = inner - moved[operand], own - totals[operand]
                read, written = read + returns + own, written + inner + refills
                own = own + refills
            else:  # come from outside, and are read
                read, written = read + inner, written + own
            if outermost[operand] == buffer.name:
                outside = outside + own
            else:
                filled = filled + own
            moved[operand], crossings[operand] = totals[operand], times
        traffic[buffer.name] = read + written - outside
        energy = energy + traffic[buffer.name] * buffer.byte_j
        port = read + written if buffer.has_one_port else np.maximum(read, written)
        cycles = np.maximum(cycles, port / buffer.bytes_per_cycle)
        if not buffer.is_doubled:
            waits = waits + filled / _filling_rate(buffer, fabric)
    cycles = cycles + waits
    a, b, sums = (total * times for total, times in zip(totals, crossings, strict=True))
    a_share, b_share = task.dram_shares
    dram = a * a_share + b * b_share + 2 * (sums - totals[SUMS]) + task.other_dram_bytes
    dram_cycles = dram / fabric.dram_bytes_per_cycle
    expanded_j = (a * (1 - a_share) + b * (1 - b_share)) * fabric.buffers[-1].byte_j
    time = np.maximum(cycles, dram_cycles) if fabric.buffers[-1].is_doubled else cycles + dram_cycles
    energy = energy + dram * fabric.dram_byte_j + expanded_j + fabric.cycle_j * time
    return _Prices(crossings, loads, cycles, dram_cycles, time, traffic, energy)


def _filling_rate(buffer: Buffer, fabric: Fabric) -> float:
    """Bytes per cycle at which a memory is filled from those around it."""
    around = [other.bytes_per_cycle for other in fabric.buffers if other.level > buffer.level]
    return min([buffer.bytes_per_cycle, *around])


def _times(
    operand: int, tiles: list[tuple[list[Any], int]], sizes: Sequence[int], fold: Sequence[int] | None = None
) -> Any:
    """How often an operand's tile of the first level is fetched, over its whole size; with `fold`, its fold.

    From the tile outward, loops along the dimension that the operand lacks leave it in place, up to the first loop
    along one that it has.
    """
    lacks = LACKS[operand]
    has = [dim for dim in range(3) if dim != lacks]
    covered, leaves = tiles[0][0][lacks], False
    if fold is not None:
        leaves = (tiles[0][0][has[0]] > fold[has[0]]) | (tiles[0][0][has[1]] > fold[has[1]])
    for (inner, innermost), (outer, _) in zip(tiles, [*tiles[1:], (list(sizes), 0)], strict=True):
        moves = (inner[has[0]] < outer[has[0]]) | (inner[has[1]] < outer[has[1]])
        if innermost == lacks:  # the tiles along it come first, and the tile stays
            covered = np.where(leaves, covered, outer[lacks])
            leaves = leaves | moves
        else:
            leaves = leaves | moves
            covered = np.where(leaves, covered, outer[lacks])
    # A loop inside of a larger tile begins anew in each of those, also in a ragged last one.
    around = [np.maximum(np.asarray(sides[lacks]), covered) for sides, _ in reversed(tiles[1:])]
    return _pieces(np.asarray(sizes[lacks]), [*around, np.asarray(covered)])


def _pieces(length: Any, sides: Sequence[Any]) -> Any:
    """Pieces of a length that is cut into sides, each of these into the next ones, and so on."""
    first, *inner = sides
    if not inner:
        return -(-length // first)
    whole, left = length // first, length % first
    return whole * _pieces(first, inner) + _pieces(left, inner)
