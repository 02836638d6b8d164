"""Slow references of fused steps: a plan replayed with an explicit buffer and DRAM, the least traffic of small steps.

They know ops, tensors and bytes, and nothing of how groups are formed or what is chosen to stay on chip.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np
from scipy.optimize import linprog

from presilicon.records import Op, TensorRef

SLACK = 1e-9


class ReplayError(Exception):
    """The plan reads data that is not there, or holds more than fits."""


def replay(ops: Sequence[Op], plan, values, bytes_of, capacity_bytes: float, *, is_sum, live_out) -> float:
    """Traffic of a plan, run group by group. `is_sum` tells ops whose result is there only when all input has passed.

    Data is a number of bytes per storage and writing. Of each, a first part is on chip, the rest in DRAM. A group can
    read what is on chip, what it loads, and what its own ops compute before. It ends with everything dropped that
    is not needed to explain why a later group loads less than all of it.

    Raises:
        ReplayError: an op reads what is neither on chip nor loaded nor computed in time, or the buffer overflows.
    """
    version: dict[int, int] = {}
    reads, writes, overwritten = [], [], []
    for op in ops:
        reads.append([(tensor.id, version.setdefault(tensor.id, 0)) for tensor in op.inputs])
        overwritten.append([(tensor.id, version[tensor.id]) for tensor in op.outputs if tensor.id in version])
        for tensor in op.outputs:
            version[tensor.id] = version.get(tensor.id, -1) + 1
        writes.append([(tensor.id, version[tensor.id]) for tensor in op.outputs])
    names = {}
    for position in range(len(ops)):
        for key, value in zip(reads[position], values.reads[position], strict=True):
            names[value] = key
        for key, value in zip(writes[position], values.writes[position], strict=True):
            names[value] = key
    size = {}
    for position, op in enumerate(ops):
        for key, tensor in zip(reads[position] + writes[position], op.inputs + op.outputs, strict=True):
            size[key] = max(size.get(key, 0.0), bytes_of(op, tensor))
    slot_of = {position: slot for slot, group in enumerate(plan.groups) for position in group.members}
    if sorted(slot_of) != list(range(len(ops))):
        raise ReplayError("each op must run once")
    writer = {key: position for position in range(len(ops)) for key in writes[position]}
    for position in range(len(ops)):
        for key in overwritten[position]:
            for other in range(position):
                if key in reads[other] and slot_of[other] > slot_of[position]:
                    raise ReplayError(f"{ops[position].name} overwrites what {ops[other].name} reads later")
    loaded: dict[tuple[int, tuple[int, int]], float] = {}
    stored: dict[tuple[int, int], float] = {}
    traffic = 0.0
    for load in plan.transfers.loads:
        key = (load.slot, names[load.value])
        loaded[key] = loaded.get(key, 0.0) + load.size_bytes
        traffic += load.size_bytes
    for store in plan.transfers.stores:
        stored[names[store.value]] = store.size_bytes
        traffic += store.size_bytes
    wanted = _wanted(ops, plan, reads, writes, bytes_of)
    in_dram = {key: size[key] for key in size if key not in writer}
    since: dict[tuple[int, int], int] = {}
    stays: list[tuple[int, int, tuple[int, int], float]] = []
    for slot, group in enumerate(plan.groups):
        own = {key for position in group.members for key in writes[position]}
        at_end: dict[tuple[int, int], bool] = {}
        for position in sorted((*group.members, *group.statistics)):
            op = ops[position]
            inside = {at_end[key] for key in reads[position] if key in at_end}
            if len(inside) > 1:
                raise ReplayError(f"{op.name} needs pieces that have passed when the sums are complete")
            if position in group.members and (inside or is_sum(op)):
                at_end |= dict.fromkeys(writes[position], is_sum(op) or inside == {True})
            for key, tensor in zip(reads[position], op.inputs, strict=True):
                if key in own:
                    if writer[key] >= position:
                        raise ReplayError(f"{op.name} reads what {ops[writer[key]].name} writes later")
                    continue
                if key in writer and slot_of[writer[key]] > slot:
                    raise ReplayError(f"{op.name} reads what a later group writes")
                needed, here = bytes_of(op, tensor), loaded.get((slot, key), 0.0)
                share = min(1.0, here / wanted[slot, key]) if needed else 1.0
                if share < 1 - SLACK:
                    if key not in since:
                        raise ReplayError(f"{op.name} takes from the buffer what was never there")
                    stays.append((since[key], slot, key, (1 - share) * size[key]))
                if needed and in_dram.get(key, 0.0) / size[key] < share - SLACK:
                    raise ReplayError(f"{op.name} loads bytes that were not stored")
        for position in (*group.members, *group.statistics):
            for key in reads[position]:
                since[key] = slot
        for position in group.statistics:
            if any(key in own for key in writes[position]):
                raise ReplayError(f"{ops[position].name} has its result where its sums are gathered")
        for key in own:
            since[key] = slot
            in_dram[key] = stored.get(key, 0.0)
    for key, last in version.items():
        end = (key, last)
        outlives = key in live_out or not any(end in inputs for inputs in reads)
        if end in writer and outlives and in_dram.get(end, 0.0) < size[end] * (1 - SLACK):
            raise ReplayError(f"storage {key} is not in DRAM at the end")
    _check_room(stays, plan.groups, capacity_bytes)
    return traffic


def _wanted(ops, plan, reads, writes, bytes_of) -> dict[tuple[int, tuple[int, int]], float]:
    """Bytes that each group would load if nothing stayed: for a tiled product as its tiles do, for the others once."""
    wanted: dict[tuple[int, tuple[int, int]], float] = {}
    for slot, group in enumerate(plan.groups):
        own = {key for position in group.members for key in writes[position]}
        once: dict[tuple[int, int], float] = {}
        for position in {*group.members, *group.statistics} - {group.tiled}:
            for key, tensor in zip(reads[position], ops[position].inputs, strict=True):
                if key not in own:
                    once[key] = max(once.get(key, 0.0), bytes_of(ops[position], tensor))
        for key, size_bytes in once.items():
            wanted[slot, key] = size_bytes
        if group.tiled in group.members:
            for key, size_bytes in zip(reads[group.tiled], plan.works[group.tiled].loads, strict=True):
                wanted[slot, key] = wanted.get((slot, key), 0.0) + size_bytes
    return wanted


def _check_room(stays, groups, capacity_bytes: float) -> None:
    for slot, group in enumerate(groups):
        held: dict[tuple[int, int], float] = {}
        for first, last, key, size_bytes in stays:
            if first <= slot <= last:
                held[key] = max(held.get(key, 0.0), size_bytes)
        if sum(held.values()) + group.reserved_bytes > capacity_bytes * (1 + 1e-6):
            raise ReplayError(
                f"group {slot} holds {sum(held.values()) + group.reserved_bytes} of {capacity_bytes} bytes"
            )


def walk_slices(held: Sequence[float], streams: Sequence[tuple[float, int]], slices: int) -> float:
    """The most bytes in the buffer while slices pass: what is held, the slice in use and the one that is being moved.

    A stream has bytes and rows; slices cut the rows as evenly as they can.
    """
    most = 0.0
    for number in range(slices):
        now = sum(held)
        for size_bytes, rows in streams:
            cuts = [rows * at // slices for at in range(slices + 2)]
            pieces = [later - earlier for earlier, later in pairwise(cuts)]
            now += size_bytes / rows * (pieces[number] + (pieces[number + 1] if number + 1 < slices else 0))
        most = max(most, now)
    return most


def walk_pipeline(stages: Sequence[tuple[float, float]], slices: int) -> float:
    """The end of the last slice, if array and vector unit take what is ready first; of two rules, the better one.

    The array does a slice of a product when the vector unit is done with that slice of the stage before; the vector
    unit follows the array and ends after it.
    """
    ends = []
    for deepest_first in (False, True):
        stage_of, done, free_array, free_vector = [0] * slices, [0.0] * slices, 0.0, 0.0
        for _ in range(slices * len(stages)):
            waiting = [number for number in range(slices) if stage_of[number] < len(stages)]
            number = min(waiting, key=lambda at: (max(free_array, done[at]), -stage_of[at] if deepest_first else at))
            array, vector = (whole / slices for whole in stages[stage_of[number]])
            start = max(free_array, done[number])
            free_array = start + array
            free_vector = max(max(free_vector, start) + vector, free_array)
            done[number] = free_vector
            stage_of[number] += 1
        ends.append(max(done))
    return min(ends)


def best_stays(
    reserved: Sequence[float], uses: Sequence[tuple[float, float, bool, Sequence[tuple[int, float]]]], capacity: float
) -> float:
    """The most bytes that staying on chip can save, by linear programming over shares of each stay.

    `uses` has, for each value: its size, the bytes of its store, whether the store is needed anyway, and the slots
    at which it is used with the bytes that are loaded there (the first is where it is made or first loaded).
    """
    columns: list[tuple[float, int, int, float]] = []
    chains = []
    for size, store, needed, slots in uses:
        chain = []
        for (first, _), (last, load) in pairwise(slots):
            chain.append(len(columns))
            columns.append((size, first, last, load))
        chains.append((chain, 0.0 if needed else store, [slot for slot, _ in slots], size))
    if not columns:
        return 0.0
    # Shares of stays, the share of a value whose store is saved, and what a value occupies at each of its uses.
    occupied = [(number, slot) for number, (_, _, slots, _) in enumerate(chains) for slot in slots]
    count, extra = len(columns), len(chains)
    gain = np.zeros(count + extra + len(occupied))
    rows, limits = [], []
    for column, (_, _, _, load) in enumerate(columns):
        gain[column] = load
    for number, (chain, store, _, _) in enumerate(chains):
        gain[count + number] = store if chain else 0.0
        for column in chain:
            row = np.zeros_like(gain)
            row[count + number], row[column] = 1, -1
            rows.append(row)
            limits.append(0.0)
            for slot in (columns[column][1], columns[column][2]):
                row = np.zeros_like(gain)
                row[column], row[count + extra + occupied.index((number, slot))] = 1, -1
                rows.append(row)
                limits.append(0.0)
    for slot, taken in enumerate(reserved):
        row = np.zeros_like(gain)
        for column, (size, first, last, _) in enumerate(columns):
            if first < slot < last:
                row[column] += size
        for place, (number, at) in enumerate(occupied):
            if at == slot:
                row[count + extra + place] += chains[number][3]
        rows.append(row)
        limits.append(max(capacity - taken, 0.0))
    solved = linprog(-gain, A_ub=np.array(rows), b_ub=np.array(limits), bounds=(0, 1))
    return -solved.fun


def least_traffic(ops: Sequence[Op], bytes_of, capacity_bytes: float, live_out: set[int]) -> float:
    """The least traffic of a small step, by trying every order of its ops and every choice of what to keep.

    Ops run one by one; each needs its inputs and outputs in the buffer. No storage may be written twice.
    """
    return min(_least_of_order(order, bytes_of, capacity_bytes, live_out) for order in _orders((), list(ops)))


def _orders(done: tuple[Op, ...], left: list[Op]) -> Iterator[tuple[Op, ...]]:
    """Every order in which ops come after those that write their inputs."""
    if not left:
        yield done
    unwritten = {tensor.id for op in left for tensor in op.outputs}
    for op in left:
        if not any(tensor.id in unwritten for tensor in op.inputs):
            yield from _orders((*done, op), [other for other in left if other is not op])


def _least_of_order(order: Sequence[Op], bytes_of, capacity_bytes: float, live_out: set[int]) -> float:
    """States are the storages on chip and those in DRAM; the least traffic of each is carried from op to op."""
    size: dict[int, float] = {}
    for op in order:
        for tensor in op.inputs + op.outputs:
            size[tensor.id] = bytes_of(op, tensor)
    written = {tensor.id for op in order for tensor in op.outputs}
    states = {(frozenset(), frozenset(set(size) - written)): 0.0}
    for number, op in enumerate(order):
        later = {tensor.id for other in order[number + 1 :] for tensor in other.inputs}
        following: dict[tuple[frozenset[int], frozenset[int]], float] = {}
        for (on_chip, in_dram), traffic in states.items():
            inputs, outputs = _ids(op.inputs), _ids(op.outputs)
            missing = inputs - on_chip
            if not missing <= in_dram:
                continue
            moved = traffic + sum(size[storage] for storage in missing)
            for kept in _subsets((on_chip | inputs | outputs) & later):
                if sum(size[storage] for storage in (kept - inputs - outputs) | inputs | outputs) > capacity_bytes:
                    continue
                for stored in _subsets(outputs & (later | live_out)):
                    lost = (outputs & later) - kept - stored
                    if lost or not outputs & live_out <= stored:
                        continue
                    state = (kept, in_dram | stored)
                    total = moved + sum(size[storage] for storage in stored)
                    if total < following.get(state, float("inf")):
                        following[state] = total
        states = following
    return min(states.values(), default=float("inf"))


def _ids(tensors: Sequence[TensorRef]) -> frozenset[int]:
    return frozenset(tensor.id for tensor in tensors)


def _subsets(items: frozenset[int]) -> Iterator[frozenset[int]]:
    for count in range(len(items) + 1):
        yield from map(frozenset, combinations(sorted(items), count))
