"""A step run event by event, as a runtime system would: no look ahead, whatever is ready when a device comes free.

The rules are those of the published GPU-FPGA scheduler; where its wording is silent or cannot work, a repair stands
beside it. Case 1 saves energy: ops that another device runs no slower go there. Case 2 stays below a cap on power.
"""

import heapq
from collections.abc import Collection
from typing import Literal, NamedTuple

from msgspec import Struct

from presilicon.base.errors import ConfigError, RunFailedError
from presilicon.records import Mode, Problem, Schedule, Started
from presilicon.scheduling.accounting import critical_path

Sensor = Literal["average", "peak"]
Moves = Literal["in", "both"]
Repair = Literal["none", "away", "soonest"]


class Rules(Struct, frozen=True, kw_only=True):
    """How a step is run."""

    reference: str = "gpu"
    """The device that runs what goes nowhere else."""
    takes_all: bool = False
    """Literally: an idle reference device takes ops that were meant for others, before those are asked."""
    small_ops: bool = True
    """Ops of one unit go elsewhere too where they are slower, as far as their slack allows."""
    moves: Moves = "both"
    """Whether the rule on moving data counts the way in only, or the way back too."""
    cap_w: float | None = None
    sensor: Sensor = "average"
    """What running ops are taken to draw when another is to start under the cap."""
    repair: Repair = "away"
    """Where nothing fits under the cap and nothing runs: `away` takes another device, or else a lower clock; `soonest`
    takes what ends first; `none` is an error, as the published rule waits for ever."""


class Execution(NamedTuple):
    """A step that was run."""

    schedule: Schedule
    moved: dict[int, str]
    """Why ops run on another device than the reference."""
    kept: dict[int, str]
    """Why ops that could have gone elsewhere did not."""


class DeadlockError(RunFailedError):
    """Nothing runs, and no op that is ready fits under the cap."""


def execute(
    problem: Problem,
    rules: Rules | None = None,
    *,
    candidates: Collection[int] | None = None,
    judged_by: Problem | None = None,
) -> Execution:
    """Run a step by the rules; `candidates` are the ops that may leave the reference device, all if none are given.

    What is faster where is read from `judged_by`, the same step as it was characterized, where that is another problem:
    one without relief.

    Raises:
        DeadlockError: under a cap without the repair, where no op that is ready fits.
        ConfigError: an op that the reference device cannot run, or a cap that nothing fits under.
    """
    return _Run(problem, rules or Rules(), candidates, judged_by or problem).run()


def full_clock(problem: Problem, device: str) -> list[Mode | None]:
    """For each op, how it runs on a device at the highest clock."""
    return [next((mode for mode in task.modes if mode.device == device), None) for task in problem.tasks]


class _Run:
    def __init__(self, problem: Problem, rules: Rules, candidates: Collection[int] | None, judged_by: Problem) -> None:
        self.problem, self.rules = problem, rules
        if rules.reference not in problem.pool:
            raise ConfigError(f'there is no device "{rules.reference}" to run by; there is {", ".join(problem.pool)}')
        self.home = full_clock(problem, rules.reference)
        self.free = {pool.name: list(range(pool.units)) for pool in problem.pools}
        self.started: dict[int, Started] = {}
        self.moved: dict[int, str] = {}
        self.kept: dict[int, str] = {}
        self.notes: list[str] = []
        self.away: dict[int, Mode] = {}
        self._choose(candidates, judged_by)
        self.missing = [len(task.deps) for task in problem.tasks]
        self.ready = [task.id for task in problem.tasks if not task.deps]
        self.events: list[tuple[float, int]] = []
        self.running: dict[int, Mode] = {}
        self.last_home_s = 0.0
        self.now = 0.0

    def _choose(self, candidates: Collection[int] | None, judged_by: Problem) -> None:
        """Which ops are meant for which other device: where they are faster, or small and off the critical path."""
        others = [pool.name for pool in self.problem.pools if pool.name != self.rules.reference]
        homes = full_clock(judged_by, self.rules.reference)
        times = [
            home.time_s if home else min(mode.time_s for mode in task.modes)
            for home, task in zip(homes, judged_by.tasks, strict=True)
        ]
        slack = critical_path(self.problem, times).slack_s
        for task in self.problem.tasks:
            home = homes[task.id]
            modes = [mode for mode in task.modes if mode.device in others and mode.clock == 1.0]
            if not modes:
                continue
            mode = min(modes, key=lambda each: (each.time_s, each.energy_j))
            if home is None:
                self.away[task.id], self.moved[task.id] = mode, f"{self.rules.reference} cannot run it"
            elif candidates is not None and task.id not in candidates:
                self.kept[task.id] = "no candidate by bandwidth and IPC"
            elif mode.time_s < home.time_s:
                self.away[task.id] = mode
                self.moved[task.id] = f"faster on {mode.device}: {_ms(mode.time_s)} against {_ms(home.time_s)}"
            elif self.rules.small_ops and mode.units == 1 and self._fits(task.id, mode, home, slack[task.id]):
                self.away[task.id] = mode
                self.moved[task.id] = f"small and off the critical path: slack {_ms(slack[task.id])}"
            else:
                self.kept[task.id] = f"slower on {mode.device}: {_ms(mode.time_s)} against {_ms(home.time_s)}"

    def _fits(self, task: int, mode: Mode, home: Mode, slack_s: float) -> bool:
        move_s = self._move_in_s(task, mode.device) + self._move_out_s(task, mode.device)
        return slack_s > 0 and mode.time_s + move_s <= home.time_s + slack_s

    def _move_in_s(self, task: int, device: str) -> float:
        """Of what a task needs, when all of it is on the reference device."""
        deps = self.problem.tasks[task].deps
        sizes = (self.problem.tasks[dep].bytes_out for dep in deps)
        return max((self.problem.move_s(size, self.rules.reference, device) for size in sizes), default=0.0)

    def _move_out_s(self, task: int, device: str) -> float:
        size = self.problem.tasks[task].bytes_out if self.problem.followers[task] else 0
        return self.problem.move_s(size, device, self.rules.reference)

    def run(self) -> Execution:
        count = len(self.problem.tasks)
        while len(self.started) < count or self.events:
            self._dispatch()
            if not self.events:
                if len(self.started) == count:
                    break
                self._break_deadlock()
                continue
            self.now = self.events[0][0]
            while self.events and self.events[0][0] <= self.now:
                self._finish(heapq.heappop(self.events)[1])
        schedule = Schedule(
            solver="greedy",
            started=tuple(self.started[task] for task in range(count)),
            notes=tuple(self.notes),
        )
        moved = {t: why for t, why in self.moved.items() if self.started[t].mode.device != self.rules.reference}
        for task, why in self.moved.items():
            if task not in moved:
                self.kept.setdefault(task, f"meant for another device ({why}), but {self.rules.reference} was idle")
        return Execution(schedule, moved, self.kept)

    def _finish(self, task: int) -> None:
        each = self.started[task]
        self.running.pop(task)
        self.free[each.mode.device] = sorted([*self.free[each.mode.device], *each.units])
        for follower in self.problem.followers[task]:
            self.missing[follower] -= 1
            if self.missing[follower] == 0:
                # Tasks are few at a time; they wait in the order of the graph.
                self.ready.append(follower)
                self.ready.sort()

    def _dispatch(self) -> None:
        """Start all that can start now."""
        changed = True
        while changed and self.ready:
            if self.rules.cap_w is not None:
                changed = self._start_home() or self._start_away()
            elif self.rules.takes_all:
                changed = self._start_home(take=True) or self._start_away()
            else:
                changed = self._start_away() or self._start_home(take=True)

    def _start_away(self) -> bool:
        for task in self.ready:
            mode = self.away.get(task)
            if mode is None or len(self.free[mode.device]) < mode.units:
                continue
            home = self.home[task]
            if home is not None and not self._is_hidden(task, mode):
                self.away.pop(task)
                self.kept[task] = "moving its data would take longer than the op before it"
                return True
            if self._fits_cap(mode):
                self._start(task, mode)
                return True
        return False

    def _is_hidden(self, task: int, mode: Mode) -> bool:
        """Whether the move takes less than the op that the reference device ran last."""
        move_s = self._arrival(task, mode.device) - self.now
        move_s = max(move_s, 0.0)
        if self.rules.moves == "both":
            move_s += self._move_out_s(task, mode.device)
        return move_s == 0 or move_s < self.last_home_s

    def _start_home(self, *, take: bool = False) -> bool:
        if not self.free[self.rules.reference]:
            return False
        own = [task for task in self.ready if task not in self.away]
        under_cap = self.rules.cap_w is not None
        for task in self.ready if under_cap else own or (self.ready if take else []):
            mode = self.home[task]
            if mode is not None and self._fits_cap(mode):
                self._start(task, mode)
                return True
        return False

    def _power(self) -> float:
        """As the sensors say: what runs, and what idles."""
        power = self.problem.idle_w
        for mode in self.running.values():
            drawn = mode.average_w if self.rules.sensor == "average" else mode.peak_w
            power += drawn - mode.units * self.problem.pool[mode.device].idle_w
        return power

    def _fits_cap(self, mode: Mode) -> bool:
        if self.rules.cap_w is None:
            return True
        idle = mode.units * self.problem.pool[mode.device].idle_w
        return self._power() - idle + mode.peak_w <= self.rules.cap_w + 1e-9

    def _break_deadlock(self) -> None:
        """Nothing runs and nothing fits: another device, then a lower clock."""
        task = self.ready[0]
        cap = self.rules.cap_w
        op = self.problem.tasks[task]
        label = f"op {op.name or task} ({op.kind} {op.size})".replace(" )", ")")
        home = self.home[task]
        if self.rules.repair == "none":
            needs = "" if home is None else f" needs {self.problem.idle_w + self._extra(home):.0f} W on {home.device}"
            raise DeadlockError(
                f"deadlock at {self.now * 1e3:.3f} ms under {cap:g} W: nothing runs, and none of the "
                f"{len(self.ready)} ops that are ready may start: {label}{needs}. The published rule waits for ever; "
                "the repair takes another device, then a lower clock"
            )
        others = [mode for mode in op.modes if mode.device != self.rules.reference and self._fits_cap(mode)]
        lower = [mode for mode in op.modes if mode.device == self.rules.reference and self._fits_cap(mode)]
        if not others and not lower:
            least = min(op.modes, key=self._extra)
            raise ConfigError(
                f"a cap of {cap:g} W: {label} takes the system to at least "
                f"{self.problem.idle_w + self._extra(least):g} W on any device, here on {least.device}"
            )
        if self.rules.repair == "soonest":
            chosen = min([*others, *lower], key=lambda mode: self._arrival(task, mode.device) + mode.time_s)
        else:
            chosen = min(others or lower, key=lambda mode: mode.time_s)
        note = "ops that did not fit under the cap went to another device, or to a lower clock where none was"
        if note not in self.notes:
            self.notes.append(note)
        why = f"nothing fitted under {cap:g} W"
        if chosen.device != self.rules.reference:
            self.moved[task] = why
        self._start(task, chosen)

    def _extra(self, mode: Mode) -> float:
        return mode.peak_w - mode.units * self.problem.pool[mode.device].idle_w

    def _arrival(self, task: int, device: str) -> float:
        """When all that a task needs is on a device."""
        found = 0.0
        for dep in self.problem.tasks[task].deps:
            made = self.started[dep]
            moved = self.problem.move_s(self.problem.tasks[dep].bytes_out, made.mode.device, device)
            found = max(found, made.end_s + moved)
        return found

    def _start(self, task: int, mode: Mode) -> None:
        units = tuple(self.free[mode.device][: mode.units])
        self.free[mode.device] = self.free[mode.device][mode.units :]
        start_s = max(self.now, self._arrival(task, mode.device))
        self.started[task] = Started(task, mode, units, start_s)
        self.running[task] = mode
        self.ready.remove(task)
        heapq.heappush(self.events, (start_s + mode.time_s, task))
        if mode.device == self.rules.reference:
            self.last_home_s = mode.time_s


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
