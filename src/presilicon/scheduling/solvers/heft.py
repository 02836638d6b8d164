"""HEFT: ops by the length of what follows them, each where it ends first (Topcuoglu, Hariri and Wu, 2002)."""

from bisect import bisect_left, insort

from presilicon.base.errors import ConfigError
from presilicon.records import Mode, Problem, Schedule, Started


def heft(problem: Problem, *, cap_w: float | None = None) -> Schedule:
    """Heterogeneous earliest finish time: short steps, whatever they cost.

    Ops in the order of their upward ranks (mean time, mean move, and the longest of what follows), each in the mode in
    which it ends first, in gaps that ops before it have left too. Several units are taken where all are free. Modes
    that do not fit under a cap by themselves are left out, and ops wait until the peaks leave room.

    Raises:
        ConfigError: an op that fits under the cap on no device.
    """
    spare = None if cap_w is None else cap_w - problem.idle_w
    lanes = {pool.name: [_Lane() for _ in range(pool.units)] for pool in problem.pools}
    power = _Power(spare)
    started: dict[int, Started] = {}
    rank = upward_ranks(problem)
    for task in sorted(range(len(problem.tasks)), key=lambda each: (-rank[each], each)):
        best: Started | None = None
        for mode in problem.tasks[task].modes:
            extra = mode.peak_w - mode.units * problem.pool[mode.device].idle_w
            if spare is not None and extra > spare + 1e-9:
                continue
            ready = _ready(problem, task, mode, started)
            found = _slot(lanes[mode.device], mode, ready, power, extra)
            candidate = Started(task, mode, found[1], found[0])
            if best is None or (candidate.end_s, mode.energy_j) < (best.end_s, best.mode.energy_j):
                best = candidate
        if best is None:
            op = problem.tasks[task]
            raise ConfigError(f"a cap of {cap_w:g} W: op {op.name or task} ({op.kind} {op.size}) fits on no device")
        started[task] = best
        for unit in best.units:
            lanes[best.mode.device][unit].take(best.start_s, best.end_s)
        power.take(best.start_s, best.end_s, best.mode.peak_w - best.mode.units * problem.pool[best.mode.device].idle_w)
    return Schedule(solver="heft", started=tuple(started[task] for task in range(len(problem.tasks))))


def upward_ranks(problem: Problem) -> list[float]:
    """For each op, the mean length of the longest way from its beginning to the end of the step, moves included."""
    names = [pool.name for pool in problem.pools]
    pairs = [(one, other) for one in names for other in names]
    per_byte = sum(problem.move_s(10**9, *pair) for pair in pairs) / len(pairs) / 1e9
    found = [0.0] * len(problem.tasks)
    for task in reversed(problem.tasks):
        full = [mode.time_s for mode in task.modes if mode.clock == 1.0] or [mode.time_s for mode in task.modes]
        after = max((found[follower] for follower in problem.followers[task.id]), default=0.0)
        move = task.bytes_out * per_byte if problem.followers[task.id] else 0.0
        found[task.id] = sum(full) / len(full) + (move + after if problem.followers[task.id] else 0.0)
    return found


def _ready(problem: Problem, task: int, mode: Mode, started: dict[int, Started]) -> float:
    ready = 0.0
    for dep in problem.tasks[task].deps:
        made = started[dep]
        moved = problem.move_s(problem.tasks[dep].bytes_out, made.mode.device, mode.device)
        ready = max(ready, made.end_s + moved)
    return ready


class _Lane:
    """What one unit is busy with, in order of time; neighbours that touch are one."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []

    def take(self, begin: float, end: float) -> None:
        if end <= begin:
            return
        index = bisect_left(self.begins, begin)
        joins_before = index > 0 and self.ends[index - 1] >= begin - 1e-15
        joins_after = index < len(self.begins) and self.begins[index] <= end + 1e-15
        if joins_before and joins_after:
            self.ends[index - 1] = self.ends[index]
            del self.begins[index], self.ends[index]
        elif joins_before:
            self.ends[index - 1] = end
        elif joins_after:
            self.begins[index] = begin
        else:
            self.begins.insert(index, begin)
            self.ends.insert(index, end)

    def earliest(self, ready: float, length: float) -> float:
        """The first time from `ready` at which it is free for so long."""
        index = bisect_left(self.ends, ready + 1e-15)
        begin = ready
        while index < len(self.begins) and self.begins[index] < begin + length - 1e-15:
            begin = self.ends[index]
            index += 1
        return begin


def _slot(lanes: list[_Lane], mode: Mode, ready: float, power: "_Power", extra: float) -> tuple[float, tuple[int, ...]]:
    """When a mode can begin, and on which units."""
    begin = ready
    while True:
        times = sorted((lane.earliest(begin, mode.time_s), unit) for unit, lane in enumerate(lanes))
        at = times[mode.units - 1][0]
        if at > begin:
            begin = at
            continue
        later = power.earliest(begin, mode.time_s, extra)
        if later > begin:
            begin = later
            continue
        return begin, tuple(sorted(unit for _, unit in times[: mode.units]))


class _Power:
    """The peaks of what runs above idle, over time."""

    def __init__(self, spare_w: float | None) -> None:
        self.spare = spare_w
        self.times: list[float] = [0.0]
        self.watts: list[float] = [0.0]

    def take(self, begin: float, end: float, extra: float) -> None:
        if self.spare is None or end <= begin:
            return
        for time in (begin, end):
            index = bisect_left(self.times, time)
            if index == len(self.times) or self.times[index] != time:
                self.watts.insert(index, self.watts[index - 1])
                insort(self.times, time)
        for index in range(bisect_left(self.times, begin), bisect_left(self.times, end)):
            self.watts[index] += extra

    def earliest(self, begin: float, length: float, extra: float) -> float:
        """The first time from `begin` at which the peaks leave room for so long."""
        if self.spare is None:
            return begin
        index = max(bisect_left(self.times, begin + 1e-15) - 1, 0)
        found = begin
        while index < len(self.times) and self.times[index] < found + length - 1e-15:
            if self.watts[index] + extra > self.spare + 1e-9:
                # Wait until this piece is over.
                if index + 1 == len(self.times):
                    return found
                found = self.times[index + 1]
            index += 1
        return found
