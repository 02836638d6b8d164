"""A step run event by event, as a runtime system would: without lookahead, each free device takes an op that is ready.

The rules are those of the published GPU-FPGA scheduler, with repairs where its text says nothing or cannot work. Case 1
saves energy: ops go to another device that runs them no slower. Case 2 stays below a power cap.
"""

import heapq
from collections.abc import Collection
from typing import Literal, NamedTuple

from msgspec import Struct

from presilicon.base import ConfigError, RunFailedError
from presilicon.records import Mode, Problem, Schedule, Started
from presilicon.scheduling.accounting import critical_path
from presilicon.scheduling.solvers.links import Links

Sensor = Literal["average", "peak"]
Moves = Literal["in", "both"]
Repair = Literal["none", "away", "soonest"]


class Rules(Struct, frozen=True, kw_only=True):
    """Rules of the greedy solver."""

    reference: str = "gpu"
    """The device that runs all ops that do not go elsewhere."""
    takes_all: bool = False
    """The published rule to the letter: an idle reference device takes ops meant for others, before the others do."""
    small_ops: bool = True
    """Ops that use one unit may also go to a slower device, as far as their slack allows."""
    moves: Moves = "both"
    """Whether the rule on moving data counts inputs only, or also the way back."""
    cap_w: float | None = None
    sensor: Sensor = "average"
    """Power of running ops that is assumed when another op is to start under the cap."""
    repair: Repair = "away"
    """If nothing runs and nothing fits under the cap: `away` uses another device, or else a lower clock; `soonest` uses
    the mode that ends first; `none` is an error, because the published rule waits forever."""


class GreedyRun(NamedTuple):
    """Result of running a step."""

    schedule: Schedule
    moved: dict[int, str]
    """Ops that run elsewhere than on the reference device, and why."""
    stayed: dict[int, str]
    """Ops that could have gone elsewhere, and why they did not."""


class DeadlockError(RunFailedError):
    """Nothing runs, and no op that is ready fits under the cap."""


def execute(
    problem: Problem,
    rules: Rules | None = None,
    *,
    candidates: Collection[int] | None = None,
    judged_by: Problem | None = None,
) -> GreedyRun:
    """Run a step by the rules; `candidates` are the ops that may leave the reference device (None: all).

    `judged_by` is the problem in which modes are compared, if it differs: the same step without relief.

    Raises:
        DeadlockError: no ready op fits under the cap, and the rules have no repair.
        ConfigError: the reference device does not exist, or an op fits under the cap on no device.
    """
    return _Run(problem, rules or Rules(), candidates, judged_by or problem).run()


def full_clock(problem: Problem, device: str) -> list[Mode | None]:
    """Per op: its mode on a device at the highest clock, or None."""
    return [next((mode for mode in task.modes if mode.device == device), None) for task in problem.tasks]


class _Run:
    def __init__(self, problem: Problem, rules: Rules, candidates: Collection[int] | None, judged_by: Problem) -> None:
        self.problem, self.rules = problem, rules
        if rules.reference not in problem.pool:
            raise ConfigError(f'the reference device must be one of {", ".join(problem.pool)}, not "{rules.reference}"')
        self.home = full_clock(problem, rules.reference)
        self.free = {pool.name: list(range(pool.units)) for pool in problem.pools}
        self.started: dict[int, Started] = {}
        self.moved: dict[int, str] = {}
        self.stayed: dict[int, str] = {}
        self.notes: list[str] = []
        self.away: dict[int, Mode] = {}
        self._choose(candidates, judged_by)
        self.links = Links(problem)
        self.missing = [len(task.deps) for task in problem.tasks]
        self.ready = [task.id for task in problem.tasks if not task.deps]
        self.events: list[tuple[float, int]] = []
        self.running: dict[int, Mode] = {}
        self.last_home_s = 0.0
        self.now = 0.0

    def _choose(self, candidates: Collection[int] | None, judged_by: Problem) -> None:
        """Decide which ops go to another device: those that are faster there, or small and off the critical path."""
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
            mode = min(modes, key=lambda mode: (mode.time_s, mode.energy_j))
            if home is None:
                self.away[task.id], self.moved[task.id] = mode, f"{self.rules.reference} cannot run it"
            elif candidates is not None and task.id not in candidates:
                self.stayed[task.id] = "not a candidate by bandwidth and IPC"
            elif mode.time_s < home.time_s:
                self.away[task.id] = mode
                self.moved[task.id] = f"faster on {mode.device}: {_ms(mode.time_s)} against {_ms(home.time_s)}"
            elif self.rules.small_ops and mode.units == 1 and self._fits(task.id, mode, home, slack[task.id]):
                self.away[task.id] = mode
                self.moved[task.id] = f"small and off the critical path: slack {_ms(slack[task.id])}"
            else:
                self.stayed[task.id] = f"slower on {mode.device}: {_ms(mode.time_s)} against {_ms(home.time_s)}"

    def _fits(self, task: int, mode: Mode, home: Mode, slack_s: float) -> bool:
        move_s = self._move_in_s(task, mode.device) + self._move_out_s(task, mode.device)
        return slack_s > 0 and mode.time_s + move_s <= home.time_s + slack_s

    def _move_in_s(self, task: int, device: str) -> float:
        """Time to move the inputs of a task from the reference device."""
        deps = self.problem.tasks[task].deps
        sizes = (self.problem.tasks[dep].bytes_out for dep in deps)
        return max((self.problem.move_s(size, self.rules.reference, device) for size in sizes), default=0.0)

    def _move_out_s(self, task: int, device: str) -> float:
        size = self.problem.tasks[task].bytes_out if self.problem.followers[task] else 0
        return self.problem.move_s(size, device, self.rules.reference)

    def run(self) -> GreedyRun:
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
            moves=self.links.finish(self.started),
            notes=tuple(self.notes),
        )
        moved = {t: why for t, why in self.moved.items() if self.started[t].mode.device != self.rules.reference}
        for task, why in self.moved.items():
            if task not in moved:
                self.stayed.setdefault(task, f"meant for another device ({why}), but {self.rules.reference} was idle")
        return GreedyRun(schedule, moved, self.stayed)

    def _finish(self, task: int) -> None:
        slot = self.started[task]
        self.running.pop(task)
        self.free[slot.mode.device] = sorted([*self.free[slot.mode.device], *slot.units])
        for follower in self.problem.followers[task]:
            self.missing[follower] -= 1
            if self.missing[follower] == 0:
                # Tasks are few at a time; they wait in the order of the graph.
                self.ready.append(follower)
                self.ready.sort()

    def _dispatch(self) -> None:
        """Start all ops that can start now."""
        changed = True
        while changed and self.ready:
            if self.rules.cap_w is not None:
                changed = self._start_home() or self._start_away()
            elif self.rules.takes_all:
                changed = self._start_home(take=True) or self._start_away()
            else:
                changed = self._start_away() or self._start_home(take=True)

    def _start_away(self) -> bool:
        for task in self.ready if self.away else ():
            mode = self.away.get(task)
            if mode is None or len(self.free[mode.device]) < mode.units:
                continue
            home = self.home[task]
            if home is not None and not self._is_hidden(task, mode):
                self.away.pop(task)
                self.stayed[task] = "moving its data would take longer than the op before it"
                return True
            if self._fits_cap(mode):
                self._start(task, mode)
                return True
        return False

    def _is_hidden(self, task: int, mode: Mode) -> bool:
        """Whether the transfer is hidden behind the op that the reference device ran last."""
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
        """Power of running ops, as the sensor reports it, and of idle devices."""
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
        """Start an op in another mode, when nothing runs and no ready op fits under the cap."""
        task = self.ready[0]
        cap = self.rules.cap_w
        op = self.problem.tasks[task]
        label = f"op {op.name or task} ({op.kind} {op.size})".replace(" )", ")")
        home = self.home[task]
        if self.rules.repair == "none":
            needs = "" if home is None else f" needs {self.problem.idle_w + self._extra(home):.0f} W on {home.device}"
            raise DeadlockError(
                f"deadlock at {self.now * 1e3:.3f} ms under {cap:g} W: nothing runs, and none of the "
                f"{len(self.ready)} ready ops may start: {label}{needs}. The published rule waits forever; "
                "the repair uses another device, then a lower clock"
            )
        others = [mode for mode in op.modes if mode.device != self.rules.reference and self._fits_cap(mode)]
        lower = [mode for mode in op.modes if mode.device == self.rules.reference and self._fits_cap(mode)]
        if not others and not lower:
            least = min(op.modes, key=self._extra)
            raise ConfigError(
                f"the power cap must be at least {self.problem.idle_w + self._extra(least):g} W, not {cap:g} W: "
                f"{label} takes that on {least.device}, and more elsewhere"
            )
        if self.rules.repair == "soonest":
            fallback = min([*others, *lower], key=lambda mode: self._arrival(task, mode.device) + mode.time_s)
        else:
            fallback = min(others or lower, key=lambda mode: mode.time_s)
        note = "ops that did not fit under the cap went to another device, or to a lower clock if none was free"
        if note not in self.notes:
            self.notes.append(note)
        why = f"nothing fit under {cap:g} W"
        if fallback.device != self.rules.reference:
            self.moved[task] = why
        self._start(task, fallback)

    def _extra(self, mode: Mode) -> float:
        return mode.peak_w - mode.units * self.problem.pool[mode.device].idle_w

    def _arrival(self, task: int, device: str) -> float:
        """Time at which all inputs of a task could be on a device."""
        deps = self.problem.tasks[task].deps
        return max((self.links.arrival(self.started[dep], device) for dep in deps), default=0.0)

    def _start(self, task: int, mode: Mode) -> None:
        units = tuple(self.free[mode.device][: mode.units])
        self.free[mode.device] = self.free[mode.device][mode.units :]
        brought = [self.links.bring(self.started[dep], mode.device) for dep in self.problem.tasks[task].deps]
        start_s = max([self.now, *brought])
        self.started[task] = Started(task, mode, units, start_s)
        self.running[task] = mode
        self.ready.remove(task)
        heapq.heappush(self.events, (start_s + mode.time_s, task))
        if mode.device == self.rules.reference:
            self.last_home_s = mode.time_s


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
