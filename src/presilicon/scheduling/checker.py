"""Independent check of a schedule. It shares no code with the solvers and the accounting."""

from collections import defaultdict
from itertools import pairwise

from presilicon.base import RunFailedError
from presilicon.records import Problem, Schedule, ScheduleCost

SLACK_S = 1e-9
SLACK = 1e-6
CAP_SLACK_W = 1e-6
"""Floating-point tolerance of a power cap; proofs allow for it too, so that no schedule beats its bound."""
LIMIT_SLACK = 1e-9
"""Relative tolerance of a makespan limit, also in proofs."""


def faults(
    problem: Problem,
    schedule: Schedule,
    *,
    cap_w: float | None = None,
    limit_s: float | None = None,
    claimed: ScheduleCost | None = None,
) -> list[str]:
    """The mistakes of a schedule, one sentence each; an empty list if it is correct.

    Every op must run once, in one of its modes, on as many devices as the mode needs; no device may run two ops at a
    time; no op may start before its inputs have been computed and moved; the peaks of running ops must stay below the
    cap at every moment; the makespan must be within its limit; energy and makespan must be as claimed.
    """
    numbers = [slot.task for slot in schedule.started]
    if numbers != list(range(len(problem.tasks))):
        return [f"the schedule must place ops 0 to {len(problem.tasks) - 1} once each, not {_shown(numbers)}"]
    messages = _misplaced(problem, schedule) + _overlaps(schedule) + _too_early(problem, schedule)
    if cap_w is not None:
        messages += _above(problem, schedule, cap_w)
    span = max((slot.start_s + slot.mode.time_s for slot in schedule.started), default=0.0)
    if limit_s is not None and span > limit_s * (1 + LIMIT_SLACK):
        messages.append(f"the step takes {span:.9g} s, above the limit of {limit_s:.9g} s")
    if claimed is not None:
        for quantity, actual, stated in (
            ("energy", _energy(problem, schedule, span), claimed.energy_per_step_j),
            ("makespan", span, claimed.makespan_s),
        ):
            if abs(actual - stated) > SLACK * max(abs(actual), 1e-12):
                messages.append(f"the {quantity} is claimed to be {stated:.9g}, but is {actual:.9g}")
    return messages


def check(
    problem: Problem,
    schedule: Schedule,
    *,
    cap_w: float | None = None,
    limit_s: float | None = None,
    claimed: ScheduleCost | None = None,
) -> None:
    """Raise an error if a schedule has mistakes.

    Raises:
        RunFailedError: names the first mistakes.
    """
    messages = faults(problem, schedule, cap_w=cap_w, limit_s=limit_s, claimed=claimed)
    if messages:
        more = f" (and {len(messages) - 3} more)" if len(messages) > 3 else ""
        raise RunFailedError(f"the schedule of solver {schedule.solver} is wrong: {'; '.join(messages[:3])}{more}")


def _misplaced(problem: Problem, schedule: Schedule) -> list[str]:
    messages = []
    pools = {pool.name: pool for pool in problem.pools}
    for task, slot in zip(problem.tasks, schedule.started, strict=True):
        if slot.mode not in task.modes:
            messages.append(f"op {task.id} ({task.kind}) runs on {slot.mode.device} in a mode that it does not have")
            continue
        units = pools[slot.mode.device].units
        if len(set(slot.units)) != slot.mode.units or not all(0 <= unit < units for unit in slot.units):
            messages.append(
                f"op {task.id} ({task.kind}) runs on units {_shown(list(slot.units))} of {slot.mode.device}, which has "
                f"{units}; it needs {slot.mode.units}"
            )
        if slot.start_s < 0:
            messages.append(f"op {task.id} ({task.kind}) begins at {slot.start_s:.9g} s, before the step")
    return messages


def _overlaps(schedule: Schedule) -> list[str]:
    on: dict[tuple[str, int], list[tuple[float, float, int]]] = defaultdict(list)
    for slot in schedule.started:
        for unit in slot.units:
            on[slot.mode.device, unit].append((slot.start_s, slot.start_s + slot.mode.time_s, slot.task))
    return [
        f"ops {one[2]} and {other[2]} overlap on {device} {unit}"
        for (device, unit), spans in on.items()
        for one, other in pairwise(sorted(spans))
        if other[0] < one[1] - SLACK_S
    ]


def _too_early(problem: Problem, schedule: Schedule) -> list[str]:
    rates = {pool.name: pool.bytes_per_s for pool in problem.pools}
    messages = []
    for task, slot in zip(problem.tasks, schedule.started, strict=True):
        for dep in task.deps:
            producer = schedule.started[dep]
            ready = producer.start_s + producer.mode.time_s
            if producer.mode.device != slot.mode.device:
                for rate in (rates.get(producer.mode.device), rates.get(slot.mode.device)):
                    ready += problem.tasks[dep].bytes_out / rate if rate else 0.0
            if slot.start_s < ready - SLACK_S:
                messages.append(
                    f"op {task.id} ({task.kind}) begins at {slot.start_s:.9g} s, but the result of op {dep} arrives "
                    f"at {ready:.9g} s"
                )
    return messages


def _above(problem: Problem, schedule: Schedule, cap_w: float) -> list[str]:
    idle = problem.base_w + sum(pool.units * pool.idle_w for pool in problem.pools)
    per_unit = {pool.name: pool.idle_w for pool in problem.pools}
    # Ends come before starts: an op that starts when another ends does not overlap with it.
    events = sorted(
        (time + shift, order, sign * (slot.mode.peak_w - slot.mode.units * per_unit[slot.mode.device]), slot.task)
        for slot in schedule.started
        for time, shift, order, sign in (
            (slot.start_s, SLACK_S, 1, 1),
            (slot.start_s + slot.mode.time_s, -SLACK_S, 0, -1),
        )
        if slot.mode.time_s > 3 * SLACK_S
    )
    power = idle
    for time, _, change, task in events:
        power += change
        if change > 0 and power > cap_w + CAP_SLACK_W:
            return [f"at {time:.9g} s, when op {task} begins, the peaks add up to {power:.6g} W, above {cap_w:g} W"]
    return [] if idle <= cap_w else [f"idle devices alone take {idle:g} W, above {cap_w:g} W"]


def _energy(problem: Problem, schedule: Schedule, span: float) -> float:
    """Energy of the running ops, and of idle devices over the rest of the step."""
    energy = problem.base_w * span
    for pool in problem.pools:
        slots = [slot for slot in schedule.started if slot.mode.device == pool.name]
        energy += sum(slot.mode.average_w * slot.mode.time_s for slot in slots)
        energy += pool.idle_w * (pool.units * span - sum(slot.mode.units * slot.mode.time_s for slot in slots))
    return energy


def _shown(numbers: list[int]) -> str:
    text = ", ".join(map(str, numbers[:8]))
    return f"{text}, ..." if len(numbers) > 8 else text or "none"
