"""Whether a schedule in whole ticks is possible, tick by tick: who works, what is moved, what is where.

It uses nothing of the package but the fields of problems and schedules. Every time must be a whole number of ticks.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from presilicon.records import Problem, Schedule

Move = tuple[int, str, str, bool]
"""Task or input, pool, direction, whether it comes from the host."""


def objections(
    problem: Problem, schedule: Schedule, tick_s: Fraction, *, cap_w: float | None = None, limit_s: float | None = None
) -> list[str]:
    """The kinds of mistakes of a schedule."""
    return sorted(set(_objections(problem, schedule, tick_s, cap_w, limit_s)))


def peak_bytes(problem: Problem, schedule: Schedule, tick_s: Fraction) -> dict[str, int]:
    """The most bytes that are in each pool at any tick."""
    return {name: max(used, default=0) for name, used in _occupied(problem, schedule, tick_s).items()}


def peak_w(problem: Problem, schedule: Schedule, tick_s: Fraction) -> Fraction:
    """The largest sum of peaks at any tick."""
    return max(_powers(problem, schedule, tick_s))


def _objections(
    problem: Problem, schedule: Schedule, tick_s: Fraction, cap_w: float | None, limit_s: float | None
) -> Iterator[str]:
    if [slot.task for slot in schedule.started] != [task.id for task in problem.tasks]:
        yield "tasks"
        return
    pools = {pool.name: pool for pool in problem.pools}
    begin, end = _op_ticks(schedule, tick_s)
    moves = _moves(schedule, tick_s)
    for task, slot in zip(problem.tasks, schedule.started, strict=True):
        pool = pools[slot.mode.device]
        if slot.mode not in task.modes:
            yield "mode"
        if len(slot.units) != slot.mode.units or len(set(slot.units)) != len(slot.units):
            yield "units"
        if any(unit not in range(pool.units) for unit in slot.units):
            yield "units"
        if pool.kernels is not None and task.kind not in pool.kernels:
            yield "kernels"
        if begin[task.id] < 0:
            yield "before the step"
    length = max([*end, *(stop for _, stop in moves.values())])
    for tick in range(length):
        at_work = Counter(
            (slot.mode.device, unit)
            for task, slot in enumerate(schedule.started)
            for unit in slot.units
            if begin[task] <= tick < end[task]
        )
        if any(count > 1 for count in at_work.values()):
            yield "overlap"
        carried = Counter((key[1], key[2]) for key, (start, stop) in moves.items() if start <= tick < stop)
        if problem.links_queue and any(count > pools[device].units for (device, _), count in carried.items()):
            yield "link"
    for task in problem.tasks:
        home = schedule.started[task.id].mode.device
        readers = [other.id for other in problem.tasks if task.id in other.deps]
        away = {schedule.started[reader].mode.device for reader in (*readers, *task.next_readers)} - {home}
        arrival = {home: end[task.id]}
        at_host: int | None = end[task.id]
        if away:
            at_host, fault = _carried(
                moves, (task.id, home, "out", False), end[task.id], _hop(problem, task.bytes_out, home, tick_s)
            )
            yield from fault
        for device in sorted(away) if at_host is not None else ():
            there, fault = _carried(
                moves, (task.id, device, "in", False), at_host, _hop(problem, task.bytes_out, device, tick_s)
            )
            yield from fault
            if there is not None:
                arrival[device] = there
        for reader in readers:
            if begin[reader] < arrival.get(schedule.started[reader].mode.device, 0):
                yield "too early"
    for number, data in enumerate(problem.inputs):
        for device in {schedule.started[reader].mode.device for reader in data.readers}:
            hop = _hop(problem, data.bytes, device, tick_s)
            yield from _carried(moves, (number, device, "in", True), 0, hop)[1]
    for name, used in _occupied(problem, schedule, tick_s).items():
        limit = pools[name].memory_bytes
        if limit is not None and any(size > limit * pools[name].units for size in used):
            yield "memory"
    if cap_w is not None and peak_w(problem, schedule, tick_s) > Fraction(cap_w):
        yield "cap"
    if limit_s is not None and length * tick_s > Fraction(limit_s):
        yield "limit"


def _carried(moves: dict[Move, tuple[int, int]], key: Move, ready: int, hop: int) -> tuple[int | None, list[str]]:
    """The tick at which a tensor is at the other end of a link, and what is wrong with its move."""
    if not hop:
        return ready, []
    if key not in moves:
        return None, ["not moved"]
    start, stop = moves[key]
    return (stop, []) if start >= ready and stop - start >= hop else (None, ["moved wrongly"])


def _hop(problem: Problem, size: int, device: str, tick_s: Fraction) -> int:
    """The ticks of a tensor on the link of a pool; 0 if it is free."""
    rate = next(pool.bytes_per_s for pool in problem.pools if pool.name == device)
    return 0 if rate is None or not size else _ticks(Fraction(size) / Fraction(rate), tick_s)


def _occupied(problem: Problem, schedule: Schedule, tick_s: Fraction) -> dict[str, list[int]]:
    """The bytes in each pool at each tick, as the checker's rules have it."""
    begin, end = _op_ticks(schedule, tick_s)
    moves = _moves(schedule, tick_s)
    length = max([*end, *(stop for _, stop in moves.values())])
    used = {}
    for pool in problem.pools:
        sizes = [0] * length
        here = {slot.task for slot in schedule.started if slot.mode.device == pool.name}
        for tick in range(length):
            for task in problem.tasks:
                mine = task.id in here
                if mine:
                    sizes[tick] += task.held_bytes
                move = moves.get((task.id, pool.name, "out" if mine else "in", False))
                if not mine and move is None:
                    continue
                came = begin[task.id] if mine else move[0]  # type: ignore[index]
                uses = [end[other.id] for other in problem.tasks if task.id in other.deps and other.id in here]
                gone = max([end[task.id], *uses, *([move[1]] if move else [])])
                next_uses = [end[reader] for reader in task.next_readers if reader in here]
                copies = int(came <= tick < (length if next_uses else gone)) + int(tick < max(next_uses, default=0))
                sizes[tick] += copies * task.bytes_out
            for number, data in enumerate(problem.inputs):
                uses = [end[reader] for reader in data.readers if reader in here]
                if uses and pool.bytes_per_s is not None:
                    move = moves.get((number, pool.name, "in", True))
                    copies = int(tick < max(uses)) + int(move is not None and move[0] <= tick)
                    sizes[tick] += copies * data.bytes
        used[pool.name] = sizes
    return used


def _powers(problem: Problem, schedule: Schedule, tick_s: Fraction) -> list[Fraction]:
    begin, end = _op_ticks(schedule, tick_s)
    idle = {pool.name: Fraction(pool.idle_w) for pool in problem.pools}
    still = Fraction(problem.base_w) + sum(pool.units * idle[pool.name] for pool in problem.pools)
    powers = [still]
    for tick in range(max(end)):
        running = [slot.mode for slot in schedule.started if begin[slot.task] <= tick < end[slot.task]]
        powers.append(still + sum(Fraction(mode.peak_w) - mode.units * idle[mode.device] for mode in running))
    return powers


def _op_ticks(schedule: Schedule, tick_s: Fraction) -> tuple[list[int], list[int]]:
    starts = [_ticks(Fraction(slot.start_s), tick_s) for slot in schedule.started]
    return starts, [
        start + _ticks(Fraction(slot.mode.time_s), tick_s) for start, slot in zip(starts, schedule.started, strict=True)
    ]


def _moves(schedule: Schedule, tick_s: Fraction) -> dict[Move, tuple[int, int]]:
    return {
        (move.task, move.device, move.direction, move.from_host): (
            _ticks(Fraction(move.start_s), tick_s), _ticks(Fraction(move.end_s), tick_s)
        )
        for move in schedule.moves
    }  # fmt: skip


def _ticks(time_s: Fraction, tick_s: Fraction) -> int:
    return round(time_s / tick_s)
