"""Best schedules of tiny problems by trying every mode and every order, in exact integers.

It uses nothing of the package but the fields of a problem. Times and powers are scaled to integers, so that no rounding
decides whether ops fit under a cap.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from presilicon.records import Mode, Problem


class Point(NamedTuple):
    """A schedule that is the shortest of its energy, or the one of least energy of its length."""

    makespan_s: Fraction
    energy_j: Fraction
    modes: tuple[Mode, ...]
    starts_s: tuple[Fraction, ...]


class _Run(NamedTuple):
    start: int
    end: int
    mode: Mode
    watts: int


def best_schedules(problem: Problem, cap_w: Fraction | None = None) -> list[Point]:
    """Schedules that no other beats in both makespan and energy; the peaks never exceed the cap.

    Each op starts as early as those before it in the order leave room. Among such schedules is a shortest one for every
    choice of modes, and for given modes the energy grows with the makespan.
    """
    idle = {pool.name: Fraction(pool.idle_w) for pool in problem.pools}
    idle_w = Fraction(problem.base_w) + sum(pool.units * idle[pool.name] for pool in problem.pools)
    extra = {
        mode: Fraction(mode.peak_w) - mode.units * idle[mode.device] for task in problem.tasks for mode in task.modes
    }
    spare = sum(extra.values(), Fraction(0)) * len(problem.tasks) if cap_w is None else cap_w - idle_w
    moves = {
        (task.id, source.device, target.device): _move(problem, task.bytes_out, source.device, target.device)
        for task in problem.tasks
        for source in task.modes
        for other in problem.tasks
        for target in other.modes
    }
    times = {mode: Fraction(mode.time_s) for mode in extra}
    per_second = _denominator([*times.values(), *moves.values()])
    per_watt = _denominator([*extra.values(), spare])
    search = _Search(
        problem,
        {mode: int(time * per_second) for mode, time in times.items()},
        {mode: int(watts * per_watt) for mode, watts in extra.items()},
        {key: int(time * per_second) for key, time in moves.items()},
        int(spare * per_watt) if spare >= 0 else -1,
    )
    points = []
    for runs in search.schedules({}):
        ordered = [runs[task.id] for task in problem.tasks]
        span = Fraction(max(run.end for run in ordered), per_second)
        above = sum(
            (times[run.mode] * (Fraction(run.mode.average_w) - run.mode.units * idle[run.mode.device]))
            for run in ordered
        )
        starts = tuple(Fraction(run.start, per_second) for run in ordered)
        points.append(Point(span, idle_w * span + above, tuple(run.mode for run in ordered), starts))
    return _undominated(points)


def _undominated(points: Iterable[Point]) -> list[Point]:
    best: list[Point] = []
    for point in sorted(points, key=lambda point: point[:2]):
        if not best or point.energy_j < best[-1].energy_j:
            best.append(point)
    return best


class _Search(NamedTuple):
    problem: Problem
    times: dict[Mode, int]
    watts: dict[Mode, int]
    moves: dict[tuple[int, str, str], int]
    spare: int

    def schedules(self, runs: dict[int, _Run]) -> Iterator[dict[int, _Run]]:
        """All schedules that continue those runs."""
        if len(runs) == len(self.problem.tasks):
            yield runs
            return
        for task in self.problem.tasks:
            if task.id in runs or any(dep not in runs for dep in task.deps):
                continue
            for mode in task.modes:
                run = self._earliest(runs, task.deps, mode)
                if run is not None:
                    yield from self.schedules({**runs, task.id: run})

    def _earliest(self, runs: dict[int, _Run], deps: tuple[int, ...], mode: Mode) -> _Run | None:
        arrivals = [runs[dep].end + self.moves[dep, runs[dep].mode.device, mode.device] for dep in deps]
        ready = max(arrivals, default=0)
        for start in sorted({ready, *(run.end for run in runs.values() if run.end > ready)}):
            run = _Run(start, start + self.times[mode], mode, self.watts[mode])
            if self._fits(runs, run):
                return run
        return None

    def _fits(self, runs: dict[int, _Run], new: _Run) -> bool:
        units = {pool.name: pool.units for pool in self.problem.pools}
        beside = [run for run in runs.values() if run.start < new.end and run.end > new.start]
        for moment in {new.start, *(run.start for run in beside if run.start > new.start)}:
            now = [run for run in beside if run.start <= moment < run.end] + [new]
            taken = sum(run.mode.units for run in now if run.mode.device == new.mode.device)
            if taken > units[new.mode.device] or sum(run.watts for run in now) > self.spare:
                return False
        return True


def _move(problem: Problem, size: int, source: str, target: str) -> Fraction:
    rates = [pool.bytes_per_s for pool in problem.pools if pool.name in (source, target) and source != target]
    return sum((size / Fraction(rate) for rate in rates if rate is not None), Fraction(0))


def _denominator(values: Iterable[Fraction]) -> int:
    return lcm(*(value.denominator for value in values))
