"""The price of a mapping in Numba, and the search over the orders of its loops.

The formulas are those of `nest.price_mapping`; `tests/unit/simulation/mapping` compares the two.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

DIMENSIONS = 10
MOST_LOOPS = 24
X, W, Y = range(3)
TIME, ENERGY, PRODUCT = range(3)
"""What is made small: cycles, energy, or their product."""


class Facts(NamedTuple):
    """A problem on a machine with a spatial mapping, as arrays."""

    relevant: Any
    """Tensors by dimensions."""
    result: int
    windows: Any
    """Stride and dilation of rows, of columns and of planes; rows, columns and planes of the inputs."""
    bits: Any
    """Of an element of each tensor, and of a sum."""
    spatial: Any
    """By store, from the multipliers outward, the part of each dimension that one copy covers side by side."""
    copies: Any
    """Of each store, the multipliers first."""
    split: Any
    """Whether copies of a store hold sums that belong together."""
    holds: Any
    """Stores by tensors."""
    last: Any
    """The outermost store of each tensor."""
    capacity: Any
    rates: Any
    """Stores by energy of a bit read and written, bits read and written in a cycle, and bits of a word."""
    one_port: Any
    doubled: Any
    share: Any
    """`nest.filled_share` of each tensor."""
    macs: float
    mac_pj: float
    stays: int
    """The tensor that stays in the array; -1 for none."""
    switch_cycles: int


@njit(cache=True)
def footprint(tensor, tile, windows):
    """`Contraction.footprint`."""
    if tensor == 1:
        return tile[0] * tile[2] * tile[3] * tile[6] * tile[7] * tile[9]
    if tensor == 2:
        return tile[0] * tile[1] * tile[2] * tile[4] * tile[5] * tile[8]
    rows = min((tile[4] - 1) * windows[0] + (tile[6] - 1) * windows[1] + 1, tile[4] * tile[6], windows[6])
    columns = min((tile[5] - 1) * windows[2] + (tile[7] - 1) * windows[3] + 1, tile[5] * tile[7], windows[7])
    planes = min((tile[8] - 1) * windows[4] + (tile[9] - 1) * windows[5] + 1, tile[8] * tile[9], windows[8])
    return tile[0] * tile[1] * tile[3] * rows * columns * planes


@njit(cache=True)
def count_changes(facts, dims, counts, often, different, partial):
    """`nest.changes` of each tensor for every number of inner loops, and whether reductions are left outside."""
    count = len(dims)
    for tensor in range(3):
        all_outer = different_outer = often_outer = 1.0
        often[tensor, count] = different[tensor, count] = 1.0
        for i in range(count - 1, -1, -1):
            all_outer *= counts[i]
            if facts.relevant[tensor, dims[i]] and counts[i] > 1:
                different_outer *= counts[i]
                often_outer = all_outer
            often[tensor, i], different[tensor, i] = often_outer, different_outer
    partial[count] = False
    for i in range(count - 1, -1, -1):
        partial[i] = partial[i + 1] or not facts.relevant[facts.result, dims[i]]


@njit(cache=True)
def _elements_at(spatial, windows, tensor, dims, counts, loops, tile):
    for dim in range(DIMENSIONS):
        tile[dim] = spatial[dim]
    for i in range(loops):
        tile[dims[i]] *= counts[i]
    return footprint(tensor, tile, windows)


@njit(cache=True)
def _fetched_at(facts, store, tensor, dims, counts, loops, tile):
    """`nest._fetched`."""
    elements = _elements_at(facts.spatial[store], facts.windows, tensor, dims, counts, loops, tile)
    if tensor == 0 and facts.result != 0:
        for i in range(loops, len(dims)):
            if facts.relevant[0, dims[i]] and counts[i] > 1:
                tile[dims[i]] *= counts[i]
                return facts.share[0] * footprint(tensor, tile, facts.windows) / counts[i]
    return facts.share[tensor] * elements


@njit(cache=True)
def fill_tables(facts, store, dims, counts, space):
    """Bits of each tensor in a copy of a store, and bits that cross its border, for every number of inner loops."""
    often, different, partial, held, above = space
    bits, result = facts.bits, facts.result
    is_split, is_doubled, windows = facts.split[store], facts.doubled[store], facts.windows
    tile, slid = facts.spatial[store].copy(), np.empty(DIMENSIONS, np.int64)
    for i in range(len(dims) + 1):
        if i:
            tile[dims[i - 1]] *= counts[i - 1]
        for tensor in range(3):
            elements = footprint(tensor, tile, windows)
            fetched = facts.share[tensor] * elements
            if tensor == 0:
                fetched = _fetched_at(facts, store, tensor, dims, counts, i, slid)
            size, moved = bits[tensor], often[tensor, i] * bits[tensor]
            if tensor == result:
                size = bits[3] if is_split or partial[i] else size
                again = often[tensor, i] - different[tensor, i]
                moved = 2 * again * bits[3] + different[tensor, i] * bits[tensor]
            held[tensor, i] = elements * size * (2 if is_doubled and different[tensor, i] > 1 else 1)
            above[tensor, i] = fetched * moved


@njit(cache=True)
def allocate(facts, dims, counts, cuts, space):
    """Fill `cuts` (stores by tensors) so that each store holds what saves the most traffic; False if nothing fits."""
    often, different, partial, held, above = space
    count, stores = len(dims), len(facts.capacity)
    count_changes(facts, dims, counts, often, different, partial)
    below = np.zeros(3, np.int64)
    holds, last, capacity = facts.holds, facts.last, facts.capacity
    for store in range(1, stores):
        used, is_last = 0.0, True
        for tensor in range(3):
            is_last = is_last and (not holds[store, tensor] or last[tensor] == store)
        if is_last and capacity[store] == np.inf:
            for tensor in range(3):
                cuts[store, tensor] = count
            continue
        fill_tables(facts, store, dims, counts, space)
        for tensor in range(3):
            if holds[store, tensor]:
                cuts[store, tensor] = count if last[tensor] == store else below[tensor]
                used += held[tensor, cuts[store, tensor]]
        if used > capacity[store]:
            return False
        while True:
            best, best_tensor, best_loops, best_used = 0.0, -1, 0, 0.0
            for tensor in range(3):
                start = cuts[store, tensor]
                if not holds[store, tensor] or last[tensor] == store or start == count:
                    continue
                for loops in range(start + 1, count + 1):
                    more = held[tensor, loops] - held[tensor, start]
                    if used + more > capacity[store]:
                        break
                    saved = above[tensor, start] - above[tensor, loops]
                    if saved <= 0:
                        continue
                    worth = saved / more if more > 0 else np.inf
                    if worth > best:
                        best, best_tensor, best_loops, best_used = worth, tensor, loops, used + more
            if best_tensor < 0:
                break
            cuts[store, best_tensor], used = best_loops, best_used
        for tensor in range(3):
            if holds[store, tensor]:
                below[tensor] = cuts[store, tensor]
    return True


@njit(cache=True)
def _words(bits, word):
    return np.ceil(bits / word) * word


@njit(cache=True)
def _window(relevant, dims, counts, loops, held, free):
    """`nest._window_of` for a store that is not doubled."""
    passive = active = 1.0
    is_passive = is_active = True
    for i in range(loops - 1, -1, -1):
        if relevant[dims[i]]:
            is_passive = False
        else:
            is_active = False
        if is_passive:
            passive *= counts[i]
        if is_active:
            active *= counts[i]
    return 1.0 if held / active <= free else 1.0 / passive


@njit(cache=True)
def _move(load, store, port, bits, times, window, compute, rate):
    """Add a move to the load of a port: cycles late and busy, its windows, and whether one is open all the time."""
    if bits > 0 and times > 0:
        need, allowed = np.ceil(bits / rate) * times, compute * window
        load[store, port, 0] += max(need - allowed, 0.0)
        load[store, port, 1] += min(need, allowed)
        load[store, port, 2] += allowed
        if window == 1.0:
            load[store, port, 3] = 1.0


@njit(cache=True)
def price(facts, dims, counts, cuts, space, traffic, load):
    """Cycles and energy after `allocate`; `traffic` gets the bits read from and written to each store."""
    often, different, partial = space[0], space[1], space[2]
    stores = len(facts.capacity)
    spatial, windows, tile, bits = facts.spatial, facts.windows, np.empty(DIMENSIONS, np.int64), facts.bits
    rates, copies, holds, result = facts.rates, facts.copies, facts.holds, facts.result
    compute = 1.0
    for i in range(len(dims)):
        compute *= counts[i]
    if facts.stays >= 0:
        compute += facts.switch_cycles * often[facts.stays, 0]
    traffic[:] = 0.0
    load[:] = 0.0
    held = np.zeros((stores, 3))
    used = np.zeros(stores)
    for store in range(1, stores):
        for tensor in range(3):
            if holds[store, tensor] and facts.capacity[store] < np.inf:
                loops = cuts[store, tensor]
                size = bits[tensor]
                if tensor == result and (facts.split[store] or partial[loops]):
                    size = bits[3]
                held[store, tensor] = _elements_at(spatial[store], windows, tensor, dims, counts, loops, tile) * size
                doubles = facts.doubled[store] and different[tensor, loops] > 1
                used[store] += held[store, tensor] * (2 if doubles else 1)
    first = last = 0.0
    for tensor in range(3):
        lower, loops, chain, inner = 0, 0, 0.0, -1
        for store in range(1, stores):
            if not holds[store, tensor]:
                continue
            if inner < 0:
                inner = cuts[store, tensor]
            times, again = often[tensor, loops], often[tensor, loops]
            wanted = _fetched_at(facts, store, tensor, dims, counts, loops, tile)
            needed = _fetched_at(facts, lower, tensor, dims, counts, loops, tile)
            down, up = bits[tensor], 0.0
            if tensor == result:
                again -= different[tensor, loops]
                down = bits[3]
                up = (again * bits[3] + different[tensor, loops] * bits[3 if facts.split[store] else tensor]) / times
            read, written = _words(wanted * down, rates[store, 4]), _words(wanted * up, rates[store, 4])
            traffic[store, 0] += copies[store] * read * again
            traffic[store, 1] += copies[store] * written * times
            window = 1.0
            write_port, write_rate = 1, rates[store, 3]
            if facts.one_port[store]:
                write_port, write_rate = 0, rates[store, 2]
            if lower > 0:
                if not facts.doubled[lower]:
                    free = facts.capacity[lower] - used[lower]
                    window = _window(facts.relevant[tensor], dims, counts, loops, held[lower, tensor], free)
                filled, drained = _words(needed * down, rates[lower, 4]), _words(needed * up, rates[lower, 4])
                traffic[lower, 1] += copies[lower] * filled * again
                traffic[lower, 0] += copies[lower] * drained * times
                fill_port, fill_rate = 1, rates[lower, 3]
                if facts.one_port[lower]:
                    fill_port, fill_rate = 0, rates[lower, 2]
                _move(load, lower, fill_port, filled, again, window, compute, fill_rate)
                _move(load, lower, 0, drained, times, window, compute, rates[lower, 2])
                share = 1.0
                if times == 1:
                    share = _elements_at(spatial[lower], windows, tensor, dims, counts, inner, tile) / _elements_at(
                        spatial[lower], windows, tensor, dims, counts, loops, tile
                    )
                if tensor == result:
                    last += share * max(drained / rates[lower, 2], written / rates[store, 3])
                else:
                    chain += share * max(read / rates[store, 2], filled / rates[lower, 3])
            _move(load, store, 0, read, again, window, compute, rates[store, 2])
            _move(load, store, write_port, written, times, window, compute, write_rate)
            lower, loops = store, cuts[store, tensor]
        first = max(first, chain)
    stall, energy = 0.0, facts.macs * facts.mac_pj
    for store in range(1, stores):
        energy += traffic[store, 0] * rates[store, 0] + traffic[store, 1] * rates[store, 1]
        for port in range(2):
            room = compute if load[store, port, 3] > 0 else min(load[store, port, 2], compute)
            stall = max(stall, load[store, port, 0] + max(load[store, port, 1] - room, 0.0))
    return compute + stall + first + last, energy


@njit(cache=True)
def make_space(count):
    """Memory for the tables of an order of `count` loops."""
    wide = count + 1
    return np.ones((3, wide)), np.ones((3, wide)), np.zeros(wide, np.bool_), np.ones((3, wide)), np.ones((3, wide))


@njit(cache=True)
def _goal(objective, cycles, energy):
    if objective == 0:
        return cycles * (1 + 1e-12 * energy)
    if objective == 1:
        return energy
    return cycles * energy


@njit(cache=True)
def _try(facts, dims, counts, objective, cuts, space, traffic, load):
    if not allocate(facts, dims, counts, cuts, space):
        return np.inf
    cycles, energy = price(facts, dims, counts, cuts, space, traffic, load)
    return _goal(objective, cycles, energy)


@njit(cache=True)
def _next_permutation(order, ranks):
    """The next order of loops in which equal loops do not change places; False after the last."""
    i = len(order) - 2
    while i >= 0 and ranks[order[i]] >= ranks[order[i + 1]]:
        i -= 1
    if i < 0:
        return False
    j = len(order) - 1
    while ranks[order[j]] <= ranks[order[i]]:
        j -= 1
    order[i], order[j] = order[j], order[i]
    low, high = i + 1, len(order) - 1
    while low < high:
        order[low], order[high] = order[high], order[low]
        low += 1
        high -= 1
    return True


@njit(cache=True)
def search(facts, dims, counts, ranks, objective, exhaustive, tries, seed):
    """The best order of loops (indices into `dims`), its goal, and the number of orders that were tried."""
    count, stores = len(dims), len(facts.capacity)
    cuts, space = np.zeros((stores, 3), np.int64), make_space(count)
    traffic, load = np.zeros((stores, 2)), np.zeros((stores, 2, 4))
    order = np.argsort(ranks)
    best_order, best, tried = order.copy(), np.inf, 0
    if exhaustive:
        while True:
            goal = _try(facts, dims[order], counts[order], objective, cuts, space, traffic, load)
            tried += 1
            if goal < best:
                best, best_order = goal, order.copy()
            if not _next_permutation(order, ranks):
                return best_order, best, tried
    state = np.uint64(seed * 2654435761 + 88172645463325252)
    rounds = 8
    for _ in range(rounds):
        for i in range(count - 1, 0, -1):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            j = int(state % np.uint64(i + 1))
            order[i], order[j] = order[j], order[i]
        now = _try(facts, dims[order], counts[order], objective, cuts, space, traffic, load)
        tried += 1
        heat, steps = 0.3, tries // rounds
        for step in range(steps):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            i, j = int(state % np.uint64(count)), int((state >> np.uint64(20)) % np.uint64(count))
            if ranks[order[i]] == ranks[order[j]]:
                continue
            before = order.copy()
            if (state >> np.uint64(40)) & np.uint64(1):
                order[i], order[j] = order[j], order[i]
            else:  # move one loop
                moved = order[i]
                if i < j:
                    for p in range(i, j):
                        order[p] = order[p + 1]
                else:
                    for p in range(i, j, -1):
                        order[p] = order[p - 1]
                order[j] = moved
            goal = _try(facts, dims[order], counts[order], objective, cuts, space, traffic, load)
            tried += 1
            chance = float(state >> np.uint64(44)) / 1048576.0
            warm = heat * (1 - step / steps)
            if goal <= now or (now < np.inf and chance < np.exp(-(goal / now - 1) / max(warm, 1e-9))):
                now = goal
                if goal < best:
                    best, best_order = goal, order.copy()
            else:
                order[:] = before
    return best_order, best, tried
