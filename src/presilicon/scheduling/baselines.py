"""What one kind of device does alone: at full clock, at its best clock, and with its clock controlled under a cap."""

import math

from msgspec import Struct

from presilicon.records import Mode, PowerTrace, Problem, Schedule, ScheduleCost, Started
from presilicon.scheduling.accounting import SAMPLE_S, cost, violations
from presilicon.scheduling.solvers.greedy import Rules, execute

LAG_S = 0.02
"""How often a reactive controller looks at the power, and so how late it is."""
ITERATIONS = 10
"""Steps that a reactive controller is watched for; it does not begin each at the same clock."""


class Controlled(Struct, frozen=True, kw_only=True):
    """Steps under a reactive controller."""

    cost: ScheduleCost
    """Of a step, in the mean."""
    trace: PowerTrace
    """Of all steps."""
    iterations: int
    iteration_w: tuple[float, ...]
    """Average power of each step."""


def reference_only(problem: Problem, reference: str) -> Schedule:
    """Everything on one kind of device at full clock, ops in order as they become ready.

    Ops that it cannot run go where they run fastest.
    """
    found = execute(problem, Rules(reference=reference), candidates=()).schedule
    return Schedule(solver=f"{reference}-only", started=found.started)


def best_clock(problem: Problem, reference: str, limit_s: float) -> tuple[float, Schedule]:
    """The one clock for all ops that takes least energy without exceeding a makespan, and the schedule at it."""
    full = reference_only(problem, reference)
    found = (1.0, full)
    least = cost(problem, full).energy_per_step_j
    clocks = {mode.clock for task in problem.tasks for mode in task.modes if mode.device == reference}
    for clock in sorted(clocks - {1.0}, reverse=True):
        schedule = _retimed(problem, full, [_at(problem, each, clock) for each in full.started])
        energy = cost(problem, schedule).energy_per_step_j
        if schedule.makespan_s <= limit_s * (1 + 1e-9) and energy < least:
            found, least = (clock, schedule), energy
    return found


def clocked_under(problem: Problem, reference: str, cap_w: float) -> Schedule | None:
    """One device alone under a cap, each op at the highest clock at which it fits; None where one fits at none.

    With several devices of the kind, each gets an equal part of what the cap leaves.
    """
    full = reference_only(problem, reference)
    units = problem.pool[reference].units
    spare = (cap_w - problem.idle_w) / units
    modes = []
    for each in full.started:
        fitting = [
            mode
            for mode in problem.tasks[each.task].modes
            if mode.device == each.mode.device
            and mode.peak_w - mode.units * problem.pool[mode.device].idle_w <= spare + 1e-9
        ]
        if not fitting:
            return None
        modes.append(max(fitting, key=lambda mode: mode.clock))
    return _retimed(problem, full, modes)


def reactive_clock(
    problem: Problem,
    reference: str,
    cap_w: float,
    *,
    lag_s: float = LAG_S,
    iterations: int = ITERATIONS,
    sample_s: float = SAMPLE_S,
) -> Controlled:
    """One device alone under a controller that looks at the power every `lag_s` and moves the clock by a level.

    Down when the reading is above the cap; up when the running op would stay below it at the next level. Between two
    looks, ops that draw more than the last one break the cap: what the readings every `sample_s` count.
    """
    full = reference_only(problem, reference)
    clocks = sorted({mode.clock for task in problem.tasks for mode in task.modes if mode.device == reference})
    lanes: dict[tuple[str, tuple[int, ...]], list[Started]] = {}
    for each in sorted(full.started, key=lambda each: (each.start_s, each.task)):
        lanes.setdefault((each.mode.device, each.units), []).append(each)
    # The lanes run side by side; what one waits for in another is left out.
    queues = [[each.task for each in lane] * iterations for lane in lanes.values()]
    devices = [device for device, _ in lanes]
    level, now, look = len(clocks) - 1, 0.0, lag_s
    place, left = [0] * len(queues), [1.0] * len(queues)
    times, average, peak = [0.0], [], []
    ends: list[float] = []
    count = len(problem.tasks)
    done = 0
    while any(at < len(queue) for at, queue in zip(place, queues, strict=True)):
        running: list[tuple[int, Mode]] = []
        for lane, queue in enumerate(queues):
            if place[lane] < len(queue):
                clock = clocks[level] if devices[lane] == reference else 1.0
                running.append((lane, _mode_at(problem, queue[place[lane]], devices[lane], clock)))
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
                place[lane], left[lane] = place[lane] + 1, 1.0
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
                    task = queues[lane][min(place[lane], len(queues[lane]) - 1)]
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
    found, begin, index, energy = [], 0.0, 0, 0.0
    for end in ends:
        while index < len(trace.average_w) and trace.times_s[index + 1] <= end + 1e-12:
            energy += trace.average_w[index] * (trace.times_s[index + 1] - trace.times_s[index])
            index += 1
        found.append(energy / (end - begin) if end > begin else 0.0)
        begin, energy = end, 0.0
    return tuple(found)


def _mode_at(problem: Problem, task: int, device: str, clock: float) -> Mode:
    modes = [mode for mode in problem.tasks[task].modes if mode.device == device]
    return min(modes, key=lambda mode: abs(mode.clock - clock))


def _at(problem: Problem, each: Started, clock: float) -> Mode:
    return _mode_at(problem, each.task, each.mode.device, clock)


def _retimed(problem: Problem, schedule: Schedule, modes: list[Mode]) -> Schedule:
    """The ops in the same order on the same devices, in other modes: each as soon as it can."""
    free: dict[tuple[str, int], float] = {}
    started: dict[int, Started] = {}
    for each in sorted(schedule.started, key=lambda each: (each.start_s, each.task)):
        mode = modes[each.task]
        begin = max((free.get((mode.device, unit), 0.0) for unit in each.units), default=0.0)
        for dep in problem.tasks[each.task].deps:
            made = started[dep]
            moved = problem.move_s(problem.tasks[dep].bytes_out, made.mode.device, mode.device)
            begin = max(begin, made.end_s + moved)
        started[each.task] = Started(each.task, mode, each.units, begin)
        free |= {(mode.device, unit): begin + mode.time_s for unit in each.units}
    return Schedule(solver=schedule.solver, started=tuple(started[task] for task in range(len(started))))
