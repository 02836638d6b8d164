"""Baselines that use one kind of device only: at full clock, at the best fixed clock, and under a power cap."""

import math

from msgspec import Struct

from presilicon.records import Mode, PowerTrace, Problem, Schedule, ScheduleCost, Started
from presilicon.scheduling.accounting import SAMPLE_S, cost, violations
from presilicon.scheduling.solvers.greedy import Rules, execute
from presilicon.scheduling.solvers.links import Links

LAG_S = 0.02
"""Sampling period of the reactive clock controller, and so its delay."""
ITERATIONS = 10
"""Steps simulated under the reactive controller; they differ, because each starts at the clock the last one left."""


class Controlled(Struct, frozen=True, kw_only=True):
    """Steps under a reactive controller."""

    cost: ScheduleCost
    """Mean cost of a step."""
    trace: PowerTrace
    """Power over all simulated steps."""
    iterations: int
    iteration_w: tuple[float, ...]
    """Average power of each step."""


def reference_only(problem: Problem, reference: str) -> Schedule:
    """Schedule with everything on one kind of device at full clock, ops in the order in which they become ready.

    Ops that this device cannot run go where they run fastest.
    """
    schedule = execute(problem, Rules(reference=reference), candidates=()).schedule
    return Schedule(solver=f"{reference}-only", started=schedule.started, moves=schedule.moves)


def best_clock(problem: Problem, reference: str, limit_s: float) -> tuple[float, Schedule]:
    """The common clock of all ops with the least energy within a makespan, and the schedule at that clock."""
    full = reference_only(problem, reference)
    best = (1.0, full)
    least = cost(problem, full).energy_per_step_j
    clocks = {mode.clock for task in problem.tasks for mode in task.modes if mode.device == reference}
    for clock in sorted(clocks - {1.0}, reverse=True):
        schedule = retimed(problem, full, [_at(problem, slot, clock) for slot in full.started])
        energy = cost(problem, schedule).energy_per_step_j
        if schedule.makespan_s <= limit_s * (1 + 1e-9) and energy < least:
            best, least = (clock, schedule), energy
    return best


def clocked_under(problem: Problem, reference: str, cap_w: float) -> Schedule | None:
    """One kind of device under a cap, each op at the highest clock that fits; None if an op fits at no clock.

    Several devices of the kind share the power that the cap leaves equally.
    """
    full = reference_only(problem, reference)
    units = problem.pool[reference].units
    spare = (cap_w - problem.idle_w) / units
    modes = []
    for slot in full.started:
        fitting = [
            mode
            for mode in problem.tasks[slot.task].modes
            if mode.device == slot.mode.device
            and mode.peak_w - mode.units * problem.pool[mode.device].idle_w <= spare + 1e-9
        ]
        if not fitting:
            return None
        modes.append(max(fitting, key=lambda mode: mode.clock))
    return retimed(problem, full, modes)


def reactive_clock(
    problem: Problem,
    reference: str,
    cap_w: float,
    *,
    lag_s: float = LAG_S,
    iterations: int = ITERATIONS,
    sample_s: float = SAMPLE_S,
) -> Controlled:
    """One kind of device under a controller that reads the power every `lag_s` and changes the clock by one level.

    It steps down if the reading is above the cap, and up if the running op would stay below the cap at the next level.
    Between two readings, an op that draws more than the last one exceeds the cap; samples every `sample_s` count this.
    """
    full = reference_only(problem, reference)
    clocks = sorted({mode.clock for task in problem.tasks for mode in task.modes if mode.device == reference})
    lanes: dict[tuple[str, tuple[int, ...]], list[Started]] = {}
    for slot in sorted(full.started, key=lambda slot: (slot.start_s, slot.task)):
        lanes.setdefault((slot.mode.device, slot.units), []).append(slot)
    # The lanes run side by side; dependencies between lanes are ignored.
    queues = [[slot.task for slot in lane] * iterations for lane in lanes.values()]
    devices = [device for device, _ in lanes]
    level, now, look = len(clocks) - 1, 0.0, lag_s
    position, left = [0] * len(queues), [1.0] * len(queues)
    times, average, peak = [0.0], [], []
    ends: list[float] = []
    count = len(problem.tasks)
    done = 0
    while any(at < len(queue) for at, queue in zip(position, queues, strict=True)):
        running: list[tuple[int, Mode]] = []
        for lane, queue in enumerate(queues):
            if position[lane] < len(queue):
                clock = clocks[level] if devices[lane] == reference else 1.0
                running.append((lane, _mode_at(problem, queue[position[lane]], devices[lane], clock)))
        step = min(min(left[lane] * mode.time_s for lane, mode in running), look - now)
        idle = problem.idle_w - sum(mode.units * problem.pool[mode.device].idle_w for _, mode in running)
        if step > 0:
            times.append(now + step)
            average.append(idle + sum(mode.average_w for _, mode in running))
            peak.append(idle + sum(mode.peak_w for _, mode in running))
        now += step
        for lane, mode in running:
            left[lane] -= step / mode.time_s if mode.time_s else 1.0
            if left[lane] <= 1e-12:
                position[lane], left[lane] = position[lane] + 1, 1.0
                done += 1
                if done % count == 0:
                    ends.append(now)
        if now >= look - 1e-15:
            look += lag_s
            reading = idle + sum(mode.average_w for _, mode in running)
            if reading > cap_w and level > 0:
                level -= 1
            elif level + 1 < len(clocks):
                higher = idle
                for lane, mode in running:
                    task = queues[lane][min(position[lane], len(queues[lane]) - 1)]
                    faster = mode.device == reference
                    higher += _mode_at(problem, task, mode.device, clocks[level + 1] if faster else 1.0).average_w
                level += higher <= cap_w
    trace = PowerTrace(times_s=tuple(times), average_w=tuple(average), peak_w=tuple(peak))
    span, energy = now / iterations, trace.energy_j / iterations
    return Controlled(
        cost=ScheduleCost(
            makespan_s=span,
            energy_per_step_j=energy,
            average_power_w=energy / span if span else problem.idle_w,
            peak_power_w=max(peak, default=problem.idle_w),
            throughput_samples_per_s=problem.batch_size / span if span else math.inf,
            samples_per_j=problem.batch_size / energy if energy else math.inf,
            utilization={name: float(name == reference) for name in problem.pool},
            violations=round(violations(trace, cap_w, sample_s) / iterations),
        ),
        trace=trace,
        iterations=iterations,
        iteration_w=_per_iteration(trace, ends),
    )


def _per_iteration(trace: PowerTrace, ends: list[float]) -> tuple[float, ...]:
    averages_w, begin, index, energy = [], 0.0, 0, 0.0
    for end in ends:
        while index < len(trace.average_w) and trace.times_s[index + 1] <= end + 1e-12:
            energy += trace.average_w[index] * (trace.times_s[index + 1] - trace.times_s[index])
            index += 1
        averages_w.append(energy / (end - begin) if end > begin else 0.0)
        begin, energy = end, 0.0
    return tuple(averages_w)


def _mode_at(problem: Problem, task: int, device: str, clock: float) -> Mode:
    modes = [mode for mode in problem.tasks[task].modes if mode.device == device]
    return min(modes, key=lambda mode: abs(mode.clock - clock))


def _at(problem: Problem, slot: Started, clock: float) -> Mode:
    return _mode_at(problem, slot.task, slot.mode.device, clock)


def retimed(problem: Problem, schedule: Schedule, modes: list[Mode]) -> Schedule:
    """The same ops in the same order on the same devices, in other modes, each as early as possible."""
    free: dict[tuple[str, int], float] = {}
    started: dict[int, Started] = {}
    links = Links(problem)
    for slot in sorted(schedule.started, key=lambda slot: (slot.start_s, slot.task)):
        mode = modes[slot.task]
        begin = max((free.get((mode.device, unit), 0.0) for unit in slot.units), default=0.0)
        begin = max([begin, *(links.bring(started[dep], mode.device) for dep in problem.tasks[slot.task].deps)])
        started[slot.task] = Started(slot.task, mode, slot.units, begin)
        free |= {(mode.device, unit): begin + mode.time_s for unit in slot.units}
    placed = tuple(started[task] for task in range(len(started)))
    return Schedule(solver=schedule.solver, started=placed, moves=links.finish(started))
