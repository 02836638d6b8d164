"""HEFT list scheduling: ops by upward rank, each where it finishes first (Topcuoglu, Hariri and Wu, 2002)."""

from bisect import bisect_left, insort

from presilicon.base import ConfigError
from presilicon.records import Mode, Problem, Schedule, Started
from presilicon.scheduling.solvers.links import BusyIntervals, Links


def heft(problem: Problem, *, cap_w: float | None = None) -> Schedule:
    """Heterogeneous earliest finish time: a short makespan, whatever the energy.

    Ops are placed in the order of their upward ranks (mean time, mean transfer, and the longest path after them), each
    in the mode in which it finishes first, also in gaps between earlier ops. A mode of several units waits until all
    are free. Under a cap, modes that exceed it alone are left out, and ops wait until the peaks leave room.

    Raises:
        ConfigError: an op fits under the cap on no device.
    """
    spare = None if cap_w is None else cap_w - problem.idle_w
    lanes = {pool.name: [BusyIntervals() for _ in range(pool.units)] for pool in problem.pools}
    power, links = _Power(spare), Links(problem)
    started: dict[int, Started] = {}
    rank = upward_ranks(problem)
    for task in sorted(range(len(problem.tasks)), key=lambda task: (-rank[task], task)):
        best: Started | None = None
        for mode in problem.tasks[task].modes:
            extra = mode.peak_w - mode.units * problem.pool[mode.device].idle_w
            if spare is not None and extra > spare + 1e-9:
                continue
            ready = max((links.arrival(started[dep], mode.device) for dep in problem.tasks[task].deps), default=0.0)
            slot = _slot(lanes[mode.device], mode, ready, power, extra)
            candidate = Started(task, mode, slot[1], slot[0])
            if best is None or (candidate.end_s, mode.energy_j) < (best.end_s, best.mode.energy_j):
                best = candidate
        if best is None:
            op = problem.tasks[task]
            label = f"op {op.name or task} ({op.kind} {op.size})"
            raise ConfigError(f"{label} fits under the cap of {cap_w:g} W on no device")
        mode = best.mode
        extra = mode.peak_w - mode.units * problem.pool[mode.device].idle_w
        # Its inputs wait for one another on the links.
        ready = max((links.bring(started[dep], mode.device) for dep in problem.tasks[task].deps), default=0.0)
        begin, units = _slot(lanes[mode.device], mode, ready, power, extra)
        started[task] = best = Started(task, mode, units, begin)
        for unit in units:
            lanes[mode.device][unit].take(best.start_s, best.end_s)
        power.take(best.start_s, best.end_s, extra)
    placed = tuple(started[task] for task in range(len(problem.tasks)))
    return Schedule(solver="heft", started=placed, moves=links.finish(started))


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


def _slot(
    lanes: list[BusyIntervals], mode: Mode, ready: float, power: "_Power", extra: float
) -> tuple[float, tuple[int, ...]]:
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
