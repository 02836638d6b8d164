"""HEFT list scheduling: ops by upward rank, each where it finishes first (Topcuoglu, Hariri and Wu, 2002)."""

from bisect import bisect_left, insort

from presilicon.base import ConfigError
from presilicon.records import Mode, Problem, Schedule, Started


def heft(problem: Problem, *, cap_w: float | None = None) -> Schedule:
    """Heterogeneous earliest finish time: a short makespan, whatever the energy.

    Ops are placed in the order of their upward ranks (mean time, mean transfer, and the longest path after them), each
    in the mode in which it finishes first, also in gaps between earlier ops. A mode of several units waits until all
    are free. Under a cap, modes that exceed it alone are left out, and ops wait until the peaks leave room.

    Raises:
        ConfigError: an op fits under the cap on no device.
    """
    spare = None if cap_w is None else cap_w - problem.idle_w
    lanes = {pool.name: [_Lane() for _ in range(pool.units)] for pool in problem.pools}
    power = _Power(spare)
    started: dict[int, Started] = {}
    rank = upward_ranks(problem)
    for task in sorted(range(len(problem.tasks)), key=lambda task: (-rank[task], task)):
        best: Started | None = None
        for mode in problem.tasks[task].modes:
            extra = mode.peak_w - mode.units * problem.pool[mode.device].idle_w
            if spare is not None and extra > spare + 1e-9:
                continue
            ready = _ready(problem, task, mode, started)
            slot = _slot(lanes[mode.device], mode, ready, power, extra)
            candidate = Started(task, mode, slot[1], slot[0])
            if best is None or (candidate.end_s, mode.energy_j) < (best.end_s, best.mode.energy_j):
                best = candidate
        if best is None:
            op = problem.tasks[task]
            label = f"op {op.name or task} ({op.kind} {op.size})"
            raise ConfigError(f"{label} fits under the cap of {cap_w:g} W on no device")
        started[task] = best
        for unit in best.units:
            lanes[best.mode.device][unit].take(best.start_s, best.end_s)
        power.take(best.start_s, best.end_s, best.mode.peak_w - best.mode.units * problem.pool[best.mode.device].idle_w)
    return Schedule(solver="heft", started=tuple(started[task] for task in range(len(problem.tasks))))


def upward_ranks(problem: Problem) -> list[float]:
    """Per op: mean length of the longest path from its start to the end of the step, with transfers."""
    names = [pool.name for pool in problem.pools]
    pairs = [(one, other) for one in names for other in names]
    per_byte = sum(problem.move_s(10**9, *pair) for pair in pairs) / len(pairs) / 1e9
    rank = [0.0] * len(problem.tasks)
    for task in reversed(problem.tasks):
        full = [mode.time_s for mode in task.modes if mode.clock == 1.0] or [mode.time_s for mode in task.modes]
        after = max((rank[follower] for follower in problem.followers[task.id]), default=0.0)
        move = task.bytes_out * per_byte if problem.followers[task.id] else 0.0
        rank[task.id] = sum(full) / len(full) + (move + after if problem.followers[task.id] else 0.0)
    return rank


def _ready(problem: Problem, task: int, mode: Mode, started: dict[int, Started]) -> float:
    ready = 0.0
    for dep in problem.tasks[task].deps:
        producer = started[dep]
        moved = problem.move_s(problem.tasks[dep].bytes_out, producer.mode.device, mode.device)
        ready = max(ready, producer.end_s + moved)
    return ready


class _Lane:
    """Busy intervals of one unit in order of time; intervals that touch are merged."""

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
        """The first time from `ready` at which the unit is free for `length`."""
        index = bisect_left(self.ends, ready + 1e-15)
        begin = ready
        while index < len(self.begins) and self.begins[index] < begin + length - 1e-15:
            begin = self.ends[index]
            index += 1
        return begin


def _slot(lanes: list[_Lane], mode: Mode, ready: float, power: "_Power", extra: float) -> tuple[float, tuple[int, ...]]:
    """Earliest start of a mode, and the units it runs on."""
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
    """Sum of the peaks of running ops above idle, over time."""

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
        """The first time from `begin` at which the cap leaves room for `length`."""
        if self.spare is None:
            return begin
        index = max(bisect_left(self.times, begin + 1e-15) - 1, 0)
        earliest_s = begin
        while index < len(self.times) and self.times[index] < earliest_s + length - 1e-15:
            if self.watts[index] + extra > self.spare + 1e-9:
                # Wait until this interval is over.
                if index + 1 == len(self.times):
                    return earliest_s
                earliest_s = self.times[index + 1]
            index += 1
        return earliest_s
