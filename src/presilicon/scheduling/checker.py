"""An independent check of any schedule, from any solver: nothing here is shared with those who make or price them."""

from collections import defaultdict
from itertools import pairwise

from presilicon.base.errors import RunFailedError
from presilicon.records import Problem, Schedule, ScheduleCost

SLACK_S = 1e-9
SLACK = 1e-6


def faults(
    problem: Problem,
    schedule: Schedule,
    *,
    cap_w: float | None = None,
    limit_s: float | None = None,
    claimed: ScheduleCost | None = None,
) -> list[str]:
    """What is wrong with a schedule, one sentence each; an empty list if nothing is.

    Every op once, in one of its modes, on as many devices as that takes; no device with two ops at a time; no op before
    its inputs have been made and moved; the peaks of what runs below the cap at every moment; the makespan within its
    limit; energy and makespan as claimed.
    """
    numbers = [each.task for each in schedule.started]
    if numbers != list(range(len(problem.tasks))):
        return [f"the schedule places ops {_shown(numbers)}, expected 0 to {len(problem.tasks) - 1}, each once"]
    found = _misplaced(problem, schedule) + _overlaps(schedule) + _too_early(problem, schedule)
    if cap_w is not None:
        found += _above(problem, schedule, cap_w)
    span = max((each.start_s + each.mode.time_s for each in schedule.started), default=0.0)
    if limit_s is not None and span > limit_s * (1 + SLACK) + SLACK_S:
        found.append(f"the step takes {span:.9g} s, above the limit of {limit_s:.9g} s")
    if claimed is not None:
        for what, own, given in (
            ("energy", _energy(problem, schedule, span), claimed.energy_per_step_j),
            ("makespan", span, claimed.makespan_s),
        ):
            if abs(own - given) > SLACK * max(abs(own), 1e-12):
                found.append(f"the {what} is claimed to be {given:.9g}, and comes out as {own:.9g}")
    return found


def check(
    problem: Problem,
    schedule: Schedule,
    *,
    cap_w: float | None = None,
    limit_s: float | None = None,
    claimed: ScheduleCost | None = None,
) -> None:
    """`faults`, as an error.

    Raises:
        RunFailedError: the schedule is wrong; the first faults are named.
    """
    found = faults(problem, schedule, cap_w=cap_w, limit_s=limit_s, claimed=claimed)
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise RunFailedError(f"the schedule of solver {schedule.solver} is wrong: {'; '.join(found[:3])}{more}")


def _misplaced(problem: Problem, schedule: Schedule) -> list[str]:
    found = []
    pools = {pool.name: pool for pool in problem.pools}
    for task, each in zip(problem.tasks, schedule.started, strict=True):
        if each.mode not in task.modes:
            found.append(f"op {task.id} ({task.kind}) runs in a way that it does not have, on {each.mode.device}")
            continue
        units = pools[each.mode.device].units
        if len(set(each.units)) != each.mode.units or not all(0 <= unit < units for unit in each.units):
            found.append(
                f"op {task.id} ({task.kind}) is on units {_shown(list(each.units))} of {each.mode.device}, which has "
                f"{units}; it takes {each.mode.units}"
            )
        if each.start_s < 0:
            found.append(f"op {task.id} ({task.kind}) begins at {each.start_s:.9g} s, before the step")
    return found


def _overlaps(schedule: Schedule) -> list[str]:
    on: dict[tuple[str, int], list[tuple[float, float, int]]] = defaultdict(list)
    for each in schedule.started:
        for unit in each.units:
            on[each.mode.device, unit].append((each.start_s, each.start_s + each.mode.time_s, each.task))
    return [
        f"ops {one[2]} and {other[2]} overlap on {device} {unit}"
        for (device, unit), spans in on.items()
        for one, other in pairwise(sorted(spans))
        if other[0] < one[1] - SLACK_S
    ]


def _too_early(problem: Problem, schedule: Schedule) -> list[str]:
    rates = {pool.name: pool.bytes_per_s for pool in problem.pools}
    found = []
    for task, each in zip(problem.tasks, schedule.started, strict=True):
        for dep in task.deps:
            made = schedule.started[dep]
            ready = made.start_s + made.mode.time_s
            if made.mode.device != each.mode.device:
                for rate in (rates.get(made.mode.device), rates.get(each.mode.device)):
                    ready += problem.tasks[dep].bytes_out / rate if rate else 0.0
            if each.start_s < ready - SLACK_S:
                found.append(
                    f"op {task.id} ({task.kind}) begins at {each.start_s:.9g} s, but what op {dep} makes is there "
                    f"at {ready:.9g} s"
                )
    return found


def _above(problem: Problem, schedule: Schedule, cap_w: float) -> list[str]:
    idle = problem.base_w + sum(pool.units * pool.idle_w for pool in problem.pools)
    per_unit = {pool.name: pool.idle_w for pool in problem.pools}
    # Ends before beginnings: an op that begins when another ends does not run beside it.
    events = sorted(
        (time + shift, order, sign * (each.mode.peak_w - each.mode.units * per_unit[each.mode.device]), each.task)
        for each in schedule.started
        for time, shift, order, sign in (
            (each.start_s, SLACK_S, 1, 1),
            (each.start_s + each.mode.time_s, -SLACK_S, 0, -1),
        )
        if each.mode.time_s > 3 * SLACK_S
    )
    power = idle
    for time, _, change, task in events:
        power += change
        if change > 0 and power > cap_w * (1 + SLACK):
            return [f"at {time:.9g} s, when op {task} begins, the peaks add up to {power:.6g} W, above {cap_w:g} W"]
    return [] if idle <= cap_w else [f"idle devices alone take {idle:g} W, above {cap_w:g} W"]


def _energy(problem: Problem, schedule: Schedule, span: float) -> float:
    """What runs, and what idles for the rest of the step."""
    energy = problem.base_w * span
    for pool in problem.pools:
        mine = [each for each in schedule.started if each.mode.device == pool.name]
        energy += sum(each.mode.average_w * each.mode.time_s for each in mine)
        energy += pool.idle_w * (pool.units * span - sum(each.mode.units * each.mode.time_s for each in mine))
    return energy


def _shown(numbers: list[int]) -> str:
    text = ", ".join(map(str, numbers[:8]))
    return f"{text}, ..." if len(numbers) > 8 else text or "none"
