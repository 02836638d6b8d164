"""Best schedules of tiny problems by trying every mode and every order of ops and moves, in exact integers.

It uses nothing of the package but the fields of a problem. Times and powers are scaled to integers, so that no rounding
decides whether ops fit under a cap.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from math import lcm
from typing import NamedTuple

from presilicon.records import Mode, Problem


class Point(NamedTuple):
    """A schedule that is the shortest of its energy, or the one of least energy of its length."""

    makespan_s: Fraction
    energy_j: Fraction
    modes: tuple[Mode, ...]
    starts_s: tuple[Fraction, ...]
    moves: tuple[tuple[int, str, str, Fraction, Fraction, bool], ...]
    """Task, pool, direction, start, end, whether it is data from the host."""


class _Activity(NamedTuple):
    """An op or a move."""

    key: tuple[object, ...]
    resource: tuple[str, ...]
    amount: int
    length: int
    watts: int
    after: tuple[tuple[object, ...], ...]


Starts = dict[tuple[object, ...], int]


def best_schedules(problem: Problem, cap_w: Fraction | None = None) -> list[Point]:
    """Schedules that no other beats in both makespan and energy; the peaks never exceed the cap.

    Each op and each move starts as early as those before it in the order leave room. Among such schedules is a shortest
    one for every choice of modes, and for given modes the energy grows with the makespan. If memory is limited, a later
    start may need less of it: each op and move then starts at every end of another, which is enough, because between
    two ends memory is only taken.
    """
    limited = any(pool.memory_bytes is not None for pool in problem.pools)
    idle = {pool.name: Fraction(pool.idle_w) for pool in problem.pools}
    idle_w = Fraction(problem.base_w) + sum(pool.units * idle[pool.name] for pool in problem.pools)
    extra = {
        mode: Fraction(mode.peak_w) - mode.units * idle[mode.device] for task in problem.tasks for mode in task.modes
    }
    spare = sum(extra.values(), Fraction(0)) * len(problem.tasks) if cap_w is None else cap_w - idle_w
    hops = {
        (size, pool.name): Fraction(size) / Fraction(pool.bytes_per_s) if pool.bytes_per_s else Fraction(0)
        for size in [task.bytes_out for task in problem.tasks] + [data.bytes for data in problem.inputs]
        for pool in problem.pools
    }
    times = {mode: Fraction(mode.time_s) for mode in extra}
    per_second = _denominator([*times.values(), *hops.values()])
    per_watt = _denominator([*extra.values(), spare])
    room = int(spare * per_watt) if spare >= 0 else -1
    capacity = {("pool", pool.name): pool.units for pool in problem.pools}
    for pool in problem.pools:
        for way in ("out", "in"):
            capacity["link", pool.name, way] = pool.units if problem.links_queue else 10**6
    points = []
    for modes in product(*(task.modes for task in problem.tasks)):
        activities = [
            _Activity(
                ("op", task.id), ("pool", mode.device), mode.units, int(times[mode] * per_second),
                int(extra[mode] * per_watt), (),
            )
            for task, mode in zip(problem.tasks, modes, strict=True)
        ]  # fmt: skip
        activities = _with_moves(problem, modes, activities, {key: int(hop * per_second) for key, hop in hops.items()})
        above = sum(times[mode] * (Fraction(mode.average_w) - mode.units * idle[mode.device]) for mode in modes)
        for starts in _starts(activities, capacity, room) if limited else _orders(activities, capacity, room):
            if limited and not _has_room(problem, modes, starts, {a.key: a.length for a in activities}):
                continue
            by_key = {activity.key: activity for activity in activities}
            span = Fraction(max(start + by_key[key].length for key, start in starts.items()), per_second)
            begins = tuple(Fraction(starts["op", task.id], per_second) for task in problem.tasks)
            moved = tuple(
                (key[1], key[2], key[3], Fraction(start, per_second),
                 Fraction(start + by_key[key].length, per_second), key[0] == "host")
                for key, start in starts.items() if key[0] != "op"
            )  # fmt: skip
            points.append(Point(span, idle_w * span + above, modes, begins, moved))  # type: ignore[arg-type]
    return _undominated(points)


def _with_moves(
    problem: Problem, modes: tuple[Mode, ...], ops: list[_Activity], hops: dict[tuple[int, str], int]
) -> list[_Activity]:
    """Ops with what they wait for, and the moves between them."""
    after: dict[int, list[tuple[object, ...]]] = {task.id: [] for task in problem.tasks}
    moves = []
    for task in problem.tasks:
        own, size = modes[task.id].device, task.bytes_out
        followers = [other.id for other in problem.tasks if task.id in other.deps]
        targets = {modes[reader].device for reader in (*followers, *task.next_readers)} - {own}
        last: tuple[object, ...] = ("op", task.id)
        if targets and hops[size, own]:
            moves.append(_Activity(("out", task.id, own, "out"), ("link", own, "out"), 1, hops[size, own], 0, (last,)))
            last = moves[-1].key
        for target in sorted(targets):
            there = last
            if hops[size, target]:
                key = ("in", task.id, target, "in")
                moves.append(_Activity(key, ("link", target, "in"), 1, hops[size, target], 0, (last,)))
                there = key
            for follower in followers:
                if modes[follower].device == target:
                    after[follower].append(there)
        for follower in followers:
            if modes[follower].device == own:
                after[follower].append(("op", task.id))
    for number, data in enumerate(problem.inputs):
        for device in sorted({modes[reader].device for reader in data.readers}):
            if hops[data.bytes, device]:
                key = ("host", number, device, "in")
                moves.append(_Activity(key, ("link", device, "in"), 1, hops[data.bytes, device], 0, ()))
    return [op._replace(after=tuple(after[task])) for task, op in enumerate(ops)] + moves


def _orders(activities: list[_Activity], capacity: dict[tuple[str, ...], int], room: int) -> Iterator[Starts]:
    """The starts in every order; equal ones once."""
    by_key = {activity.key: activity for activity in activities}
    states: list[Starts] = [{}]
    for _ in activities:
        grown: dict[frozenset[object], Starts] = {}
        for starts in states:
            for new in activities:
                if new.key in starts or any(key not in starts for key in new.after):
                    continue
                ready = max((starts[key] + by_key[key].length for key in new.after), default=0)
                ends = {start + by_key[key].length for key, start in starts.items()}
                for start in sorted({ready, *(end for end in ends if end > ready)}):
                    if _fits(starts, by_key, new, start, capacity, room):
                        longer = {**starts, new.key: start}
                        grown[frozenset(longer.items())] = longer
                        break
        states = list(grown.values())
    yield from states


def _starts(activities: list[_Activity], capacity: dict[tuple[str, ...], int], room: int) -> Iterator[Starts]:
    """Every schedule in which each activity starts at 0 or at the end of another, in the order of the starts."""
    by_key = {activity.key: activity for activity in activities}
    states: list[Starts] = [{}]
    for _ in activities:
        grown: dict[frozenset[object], Starts] = {}
        for starts in states:
            ends = {0, *(start + by_key[key].length for key, start in starts.items())}
            for new in activities:
                if new.key in starts or any(key not in starts for key in new.after):
                    continue
                ready = max([0, *(starts[key] + by_key[key].length for key in new.after), *starts.values()])
                for start in ends:
                    if start >= ready and _fits(starts, by_key, new, start, capacity, room):
                        longer = {**starts, new.key: start}
                        grown[frozenset(longer.items())] = longer
        states = list(grown.values())
    yield from states


def _has_room(
    problem: Problem, modes: tuple[Mode, ...], starts: Starts, lengths: dict[tuple[object, ...], int]
) -> bool:
    """Whether the memory of every pool suffices at every moment."""
    over = max(start + lengths[key] for key, start in starts.items())

    def end(key: tuple[object, ...]) -> int:
        return starts[key] + lengths[key]

    for pool in problem.pools:
        if pool.memory_bytes is None:
            continue
        here = {task.id for task in problem.tasks if modes[task.id].device == pool.name}
        stays: list[tuple[int, int, int]] = []
        for task in problem.tasks:
            mine = task.id in here
            came, went = ("in", task.id, pool.name, "in"), ("out", task.id, pool.name, "out")
            if mine:
                stays.append((0, over, task.held_bytes))
            if not mine and came not in starts:
                continue
            keys = [("op", task.id)] if mine else [came]
            keys += [went] if went in starts else []
            keys += [("op", other.id) for other in problem.tasks if task.id in other.deps and other.id in here]
            later = [end(("op", reader)) for reader in task.next_readers if reader in here]
            stays.append((starts[keys[0]], over if later else max(map(end, keys)), task.bytes_out))
            stays += [(0, max(later), task.bytes_out)] if later else []
        for number, data in enumerate(problem.inputs):
            came = ("host", number, pool.name, "in")
            if came in starts:
                stays.append((0, max(end(("op", reader)) for reader in data.readers if reader in here), data.bytes))
                stays.append((starts[came], over, data.bytes))
        for moment, _, _ in stays:
            if sum(size for begin, until, size in stays if begin <= moment < until) > pool.memory_bytes * pool.units:
                return False
    return True


def _fits(
    starts: Starts, by_key: dict[tuple[object, ...], _Activity], new: _Activity, start: int,
    capacity: dict[tuple[str, ...], int], room: int,
) -> bool:  # fmt: skip
    beside = [
        (begin, by_key[key]) for key, begin in starts.items()
        if begin < start + new.length and begin + by_key[key].length > start
    ]  # fmt: skip
    for moment in {start, *(begin for begin, _ in beside if begin > start)}:
        now = [activity for begin, activity in beside if begin <= moment < begin + activity.length] + [new]
        if sum(a.amount for a in now if a.resource == new.resource) > capacity[new.resource]:
            return False
        if new.watts and sum(a.watts for a in now) > room:
            return False
    return new.watts <= room or not new.watts


def _undominated(points: Iterable[Point]) -> list[Point]:
    best: list[Point] = []
    for point in sorted(points, key=lambda point: point[:2]):
        if not best or point.energy_j < best[-1].energy_j:
            best.append(point)
    return best


def _denominator(values: Iterable[Fraction]) -> int:
    return lcm(*(value.denominator for value in values))
