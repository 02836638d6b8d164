"""A mapping: the loops of a product from the inside out, and the part of them that each memory holds."""

from collections.abc import Iterator
from math import ceil, inf, prod

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.simulation.mapping.problem import DIMS, RELEVANT, TENSORS, Contraction, Dim, Tensor

Axis = int
"""An axis of the array of multipliers."""


class Store(Struct, frozen=True, kw_only=True):
    """A memory as a mapping sees it: all copies of one level together."""

    name: str
    holds: frozenset[Tensor]
    bits: float = inf
    """Capacity of each copy."""
    serves: frozenset[Axis] = frozenset((0, 1))
    """Axes of the array along which one copy serves all multipliers; there is a copy for each along the others."""
    read_pj: float = 0.0
    """Energy of a bit read, and of one written."""
    write_pj: float = 0.0
    read_bits: float = inf
    """Bits that a copy reads in a cycle, and writes."""
    write_bits: float = inf
    word_bits: float = 1.0
    """Bits of one access: a smaller piece takes as much energy as a whole word."""
    has_one_port: bool = False
    """Whether it either reads or writes in a cycle, `read_bits` in all."""
    is_doubled: bool = False
    """Whether half of it is filled while the other half is in use."""


class MappedArray(Struct, frozen=True, kw_only=True):
    """An array of multipliers, and the memories from those at the multipliers outward."""

    axes: tuple[int, ...]
    """Multipliers along each axis."""
    stores: tuple[Store, ...]
    mac_pj: float = 0.0
    switch_cycles: int = 0
    """Cycles in which the array is filled and emptied when what stays in it changes."""
    stays: Tensor | None = None
    """What stays in the array while the others move through; None for an array that is not systolic."""

    def chain(self, tensor: Tensor) -> list[int]:
        """The stores that hold a tensor, from the inside out."""
        return [index for index, store in enumerate(self.stores) if tensor in store.holds]


class Loop(Struct, frozen=True):
    """A loop over a part of a dimension."""

    dim: Dim
    count: int


class Mapping(Struct, frozen=True, kw_only=True):
    """A mapping of a product on a machine."""

    spatial: tuple[tuple[Loop, ...], ...]
    """The loops that run side by side, along each axis of the array."""
    loops: tuple[Loop, ...]
    """The loops that run one after another, the innermost first."""
    cuts: dict[Tensor, tuple[int, ...]]
    """For each store of a tensor, how many loops run inside of what it holds; all of them for the outermost."""


class LevelTransfer(Struct, frozen=True, kw_only=True):
    """Bits that move between two neighbours in the chain of a tensor; the lower one is None at the multipliers.

    Bits are those of one tile in one copy, in whole words; they move `times` times.
    """

    tensor: Tensor
    upper: int
    lower: int | None
    times: int
    """How often the tile changes."""
    again: int
    """How often an unfinished part of the result returns; `times` for a factor."""
    read: float
    """Read from a copy of the upper store for those below it."""
    filled: float
    """Written to a copy of the lower store."""
    written: float = 0.0
    """Of the result, written to a copy of the upper store, after the sums of copies were added up on the way."""
    drained: float = 0.0
    """Of the result, read from a copy of the lower store."""
    window: float = 1.0
    """The part of the time between two changes in which the lower store can be filled."""


class Price(Struct, frozen=True, kw_only=True):
    """Cycles, traffic and energy of a mapping."""

    cycles: float
    compute_cycles: float
    transfers: tuple[LevelTransfer, ...]
    traffic: tuple[tuple[float, float], ...]
    """Bits read from and written to each store, all copies together."""
    energy_pj: float


class Precision(Struct, frozen=True, kw_only=True):
    """Bits of an element of each factor, of a partial sum, and of a finished result."""

    bits: dict[Tensor, float]
    sum_bits: float

    def of(self, tensor: Tensor, result: Tensor, *, is_partial: bool) -> float:
        """Bits of an element of a tensor."""
        return self.sum_bits if tensor == result and is_partial else self.bits[tensor]


def tile_of(nest: Mapping, store: Store, loops: int) -> dict[Dim, int]:
    """Sizes of the part of each dimension that a copy of a store covers with its innermost `loops` loops."""
    tile = dict.fromkeys(DIMS, 1)
    for axis, unrolled in enumerate(nest.spatial):
        if axis in store.serves:
            for loop in unrolled:
                tile[loop.dim] *= loop.count
    for loop in nest.loops[:loops]:
        tile[loop.dim] *= loop.count
    return tile


def copies_of(nest: Mapping, store: Store) -> int:
    """Copies of a store that the mapping uses."""
    return prod(loop.count for axis, part in enumerate(nest.spatial) if axis not in store.serves for loop in part)


def changes(nest: Mapping, tensor: Tensor, loops: int) -> tuple[int, int]:
    """How often what lies inside the innermost `loops` loops changes, and how many different parts there are.

    Loops around it that do not concern the tensor leave it in place, until one that does.
    """
    outer = nest.loops[loops:]
    first = next((i for i, loop in enumerate(outer) if loop.dim in RELEVANT[tensor] and loop.count > 1), len(outer))
    different = prod(loop.count for loop in outer if loop.dim in RELEVANT[tensor])
    return prod(loop.count for loop in outer[first:]), different


def check_mapping(problem: Contraction, machine: MappedArray, nest: Mapping, precision: Precision) -> None:
    """Refuse a mapping that does not cover the product, or that does not fit.

    Raises:
        ConfigError: which dimension or store is too small.
    """
    covered = tile_of(nest, Store(name="", holds=frozenset()), len(nest.loops))
    for dim, size in zip(DIMS, problem.sizes, strict=True):
        if covered[dim] < size:
            raise ConfigError(f"the mapping covers {covered[dim]} of dimension {dim}, which has {size}")
    for axis, (unrolled, size) in enumerate(zip(nest.spatial, machine.axes, strict=True)):
        used = prod(loop.count for loop in unrolled)
        if used > size:
            raise ConfigError(f"axis {axis} of the array has {size} multipliers, but the mapping uses {used}")
    for index, store in enumerate(machine.stores):
        held = sum(bits for _, bits in _held(problem, machine, nest, precision, index))
        if held > store.bits:
            raise ConfigError(f'memory "{store.name}" has {store.bits:g} bits, but the mapping holds {held:g} in it')


def _held(
    problem: Contraction, machine: MappedArray, nest: Mapping, precision: Precision, index: int
) -> Iterator[tuple[Tensor, float]]:
    """Bits of each tensor in a copy of a store."""
    store = machine.stores[index]
    for tensor in TENSORS:
        chain = machine.chain(tensor)
        if index in chain:
            loops = nest.cuts[tensor][chain.index(index)]
            is_partial = _is_partial(problem, nest, store, loops)
            bits = precision.of(tensor, problem.result, is_partial=is_partial)
            held = problem.footprint(tensor, tile_of(nest, store, loops)) * bits
            doubles = store.is_doubled and changes(nest, tensor, loops)[1] > 1
            yield tensor, held * (2 if doubles else 1)


def _is_partial(problem: Contraction, nest: Mapping, store: Store, loops: int) -> bool:
    """Whether results inside the innermost loops are sums that later loops add to."""
    reduced = set(DIMS) - RELEVANT[problem.result]
    outside = [loop.dim for axis, part in enumerate(nest.spatial) if axis not in store.serves for loop in part]
    return any(dim in reduced for dim in (*outside, *(loop.dim for loop in nest.loops[loops:])))


def price_mapping(problem: Contraction, machine: MappedArray, nest: Mapping, precision: Precision) -> Price:
    """Cycles, traffic and energy of a mapping, by their definitions.

    A tile is fetched whenever it changes. Results return when their tile changes, and are fetched again if they are not
    finished. Transfers overlap with the computation as far as there is room for the next tile: a store that is full can
    be filled only while the last use of its tile runs. The first tiles on their way in, and the last results on their
    way out, overlap with nothing.
    """
    transfers = tuple(_transfers(problem, machine, nest, precision))
    compute = float(prod(loop.count for loop in nest.loops))
    if machine.stays is not None:
        compute += machine.switch_cycles * changes(nest, machine.stays, 0)[0]
    energy, stall, traffic = problem.macs * machine.mac_pj, 0.0, []
    for index, store in enumerate(machine.stores):
        reads, writes = [], []
        for transfer in transfers:
            if transfer.upper == index:
                reads.append((transfer.read, transfer.again, transfer.window))
                writes.append((transfer.written, transfer.times, transfer.window))
            if transfer.lower == index:
                writes.append((transfer.filled, transfer.again, transfer.window))
                reads.append((transfer.drained, transfer.times, transfer.window))
        copies = copies_of(nest, store)
        read, written = (copies * sum(bits * times for bits, times, _ in moves) for moves in (reads, writes))
        energy += read * store.read_pj + written * store.write_pj
        traffic.append((read, written))
        ports = (
            [(reads + writes, store.read_bits)]
            if store.has_one_port
            else [(reads, store.read_bits), (writes, store.write_bits)]
        )
        stall = max(stall, *(_stall(moves, bits, compute) for moves, bits in ports))
    first, last = dict.fromkeys(TENSORS, 0.0), 0.0
    for transfer in transfers:
        if transfer.lower is not None:
            upper, lower = machine.stores[transfer.upper], machine.stores[transfer.lower]
            share = _first_share(problem, machine, nest, transfer)
            if transfer.tensor == problem.result:
                last += share * max(transfer.drained / lower.read_bits, transfer.written / upper.write_bits)
            else:
                inward = max(transfer.read / upper.read_bits, transfer.filled / lower.write_bits)
                first[transfer.tensor] += share * inward
    return Price(
        cycles=compute + stall + max(first.values()) + last,
        compute_cycles=compute,
        transfers=transfers,
        traffic=tuple(traffic),
        energy_pj=energy,
    )


def _first_share(problem: Contraction, machine: MappedArray, nest: Mapping, transfer: LevelTransfer) -> float:
    """The part of a tile that must move before the array can begin, or after it has ended.

    A tile that is moved only once moves during the whole computation, but for what the innermost store needs first.
    """
    if transfer.times > 1:
        return 1.0
    assert transfer.lower is not None
    tensor, chain = transfer.tensor, machine.chain(transfer.tensor)
    store = machine.stores[transfer.lower]
    cuts = nest.cuts[tensor]
    tile, first = (
        problem.footprint(tensor, tile_of(nest, store, loops)) for loops in (cuts[chain.index(transfer.lower)], cuts[0])
    )
    return first / tile


def _stall(moves: list[tuple[float, int, float]], port_bits: float, compute: float) -> float:
    """Cycles that a port makes the array wait, for moves of some bits, so many times, in a part of the time each.

    A port moves one piece in a cycle, however small. A move that takes longer than its window always waits; the others
    wait if their windows are too short together.
    """
    late = busy = windows = 0.0
    is_free = False
    for bits, times, window in moves:
        if bits and times:
            need, allowed = ceil(bits / port_bits) * times, compute * window
            late += max(need - allowed, 0.0)
            busy += min(need, allowed)
            windows += allowed
            is_free = is_free or window == 1.0
    return late + max(busy - (compute if is_free else min(windows, compute)), 0.0)


def _transfers(
    problem: Contraction, machine: MappedArray, nest: Mapping, precision: Precision
) -> Iterator[LevelTransfer]:
    used = [
        sum(bits for _, bits in _held(problem, machine, nest, precision, index)) for index in range(len(machine.stores))
    ]
    for tensor in TENSORS:
        chain = machine.chain(tensor)
        for position, index in enumerate(chain):
            upper = machine.stores[index]
            loops = nest.cuts[tensor][position - 1] if position else 0
            lower_index = chain[position - 1] if position else None
            lower = _MULTIPLIERS if lower_index is None else machine.stores[lower_index]
            times, different = changes(nest, tensor, loops)
            # What all copies below a copy of the upper store need together, and what each of them needs.
            wanted = _fetched(problem, nest, tensor, upper, loops)
            needed = _fetched(problem, nest, tensor, lower, loops)
            bits = precision.bits[tensor]
            window = 1.0
            if lower_index is not None:
                free = lower.bits - used[lower_index]
                window = _window_of(problem, nest, precision, tensor, lower, loops, free)
            if tensor != problem.result:
                yield LevelTransfer(
                    tensor=tensor, upper=index, lower=lower_index, times=times, again=times, window=window,
                    read=_words(wanted * bits, upper), filled=_words(needed * bits, lower),
                )  # fmt: skip
                continue
            again, sums = times - different, precision.sum_bits
            finished = precision.of(tensor, tensor, is_partial=_is_partial(problem, nest, upper, len(nest.loops)))
            # Each part leaves once when it is finished, and before that whenever the tile changes.
            mean = (again * sums + different * finished) / times
            yield LevelTransfer(
                tensor=tensor, upper=index, lower=lower_index, times=times, again=again, window=window,
                read=_words(wanted * sums, upper), filled=_words(needed * sums, lower),
                written=_words(wanted * mean, upper), drained=_words(needed * mean, lower),
            )  # fmt: skip


def _fetched(problem: Contraction, nest: Mapping, tensor: Tensor, store: Store, loops: int) -> float:
    """Elements of a tile that are new when it changes, on average.

    Inputs of a window that moves on are fetched once while it slides, until another loop takes it away.
    """
    tile, share = tile_of(nest, store, loops), filled_share(problem, nest.spatial, tensor)
    if tensor != "X" or problem.result == "X":
        return share * problem.footprint(tensor, tile)
    outer = nest.loops[loops:]
    slides = next((loop for loop in outer if loop.dim in RELEVANT["X"] and loop.count > 1), Loop("b", 1))
    tile[slides.dim] *= slides.count
    return share * problem.footprint("X", tile) / slides.count


def filled_share(problem: Contraction, spatial: tuple[tuple[Loop, ...], ...], tensor: Tensor) -> float:
    """The part of a tensor's tiles that exists, where a dimension does not divide by what lies side by side."""
    sides = dict.fromkeys(DIMS, 1)
    for axis in spatial:
        for loop in axis:
            sides[loop.dim] *= loop.count
    padded = {dim: sides[dim] * ceil(size / sides[dim]) for dim, size in zip(DIMS, problem.sizes, strict=True)}
    return problem.elements(tensor) / problem.footprint(tensor, padded)


_MULTIPLIERS = Store(name="", holds=frozenset(), serves=frozenset())


def _words(bits: float, store: Store) -> float:
    """Bits of whole words."""
    return ceil(bits / store.word_bits) * store.word_bits


def _window_of(
    problem: Contraction, nest: Mapping, precision: Precision, tensor: Tensor, store: Store, loops: int, free: float
) -> float:
    """The part of the time in which the next tile can be filled: all of it if there is room for its first piece.

    A tile is used in pieces, by its outermost loops that concern it; in a full store, a piece makes room for the next
    one after its last use.
    """
    inside = list(reversed(nest.loops[:loops]))
    passive = next((i for i, loop in enumerate(inside) if loop.dim in RELEVANT[tensor]), len(inside))
    active = next((i for i, loop in enumerate(inside) if loop.dim not in RELEVANT[tensor]), len(inside))
    is_partial = _is_partial(problem, nest, store, loops)
    bits = precision.of(tensor, problem.result, is_partial=is_partial)
    held = problem.footprint(tensor, tile_of(nest, store, loops)) * bits
    piece = held / prod(loop.count for loop in inside[:active])
    if store.is_doubled or piece <= free:
        return 1.0
    return 1.0 / prod(loop.count for loop in inside[:passive])
