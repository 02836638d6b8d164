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
    time; no op may start before its inputs have been computed and moved, over links that carry one tensor at a time;
    what is on the devices of a pool must fit into their memory; boards run only kinds that they are configured for; the
    peaks of running ops must stay below the cap at every moment; the makespan must be within its limit; energy and
    makespan must be as claimed.
    """
    numbers = [slot.task for slot in schedule.started]
    if numbers != list(range(len(problem.tasks))):
        return [f"the schedule must place ops 0 to {len(problem.tasks) - 1} once each, not {_shown(numbers)}"]
    messages = _misplaced(problem, schedule) + _overlaps(schedule) + _too_early(problem, schedule)
    messages += _crowded(problem, schedule) or _full(problem, schedule)
    if cap_w is not None:
        messages += _above(problem, schedule, cap_w)
    span = max((slot.start_s + slot.mode.time_s for slot in schedule.started), default=0.0)
    span = max([span, *(move.end_s for move in schedule.moves)])
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
        kernels = pools[slot.mode.device].kernels
        if kernels is not None and task.kind not in kernels:
            messages.append(f"op {task.id} ({task.kind}) runs on {slot.mode.device}, which is not configured for it")
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
    """Ops that begin before their inputs are there, and results that do not get where they are needed."""
    rates = {pool.name: pool.bytes_per_s for pool in problem.pools}
    moved = {(move.task, move.device, str(move.direction), move.from_host): move for move in schedule.moves}
    messages = []

    def hop(
        task: int, device: str, direction: str, ready: float, size: int, *, from_host: bool = False
    ) -> float | None:
        """When a tensor is at the other end of a link; None if it is not moved in time."""
        rate = rates[device]
        if rate is None or not size:
            return ready
        move = moved.get((task, device, direction, from_host))
        way = f"{'to' if direction == 'out' else 'from'} the host over the link of {device}"
        if move is None:
            messages.append(f"the result of op {task} is needed elsewhere, but does not go {way}")
        elif move.start_s < ready - SLACK_S:
            messages.append(f"the result of op {task} goes {way} at {move.start_s:.9g} s, before {ready:.9g} s")
        elif move.end_s - move.start_s < size / rate - SLACK_S:
            messages.append(f"the result of op {task} takes {size / rate:.9g} s {way}, more than its move")
        else:
            return move.end_s
        return None

    for task, slot in zip(problem.tasks, schedule.started, strict=True):
        done, own = slot.start_s + slot.mode.time_s, slot.mode.device
        readers: dict[str, list[int]] = {own: []}
        for follower in problem.followers[task.id]:
            readers.setdefault(schedule.started[follower].mode.device, []).append(follower)
        later = {schedule.started[reader].mode.device for reader in task.next_readers}
        at_host = hop(task.id, own, "out", done, task.bytes_out) if (later | readers.keys()) - {own} else done
        for device in later | readers.keys():
            there = done if device == own else None
            if device != own and at_host is not None:
                there = hop(task.id, device, "in", at_host, task.bytes_out)
            for follower in readers.get(device, []) if there is not None else []:
                begin = schedule.started[follower].start_s
                if begin < there - SLACK_S:  # type: ignore[operator]
                    messages.append(
                        f"op {follower} ({problem.tasks[follower].kind}) begins at {begin:.9g} s, but the result of op "
                        f"{task.id} arrives at {there:.9g} s"
                    )
    for number, data in enumerate(problem.inputs):
        for device in {schedule.started[reader].mode.device for reader in data.readers}:
            hop(number, device, "in", 0.0, data.bytes, from_host=True)
    return messages


def _crowded(problem: Problem, schedule: Schedule) -> list[str]:
    """Links that carry more tensors at a time than there are."""
    units = {pool.name: pool.units for pool in problem.pools}
    changes: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for move in schedule.moves if problem.links_queue else ():
        if move.end_s - move.start_s > 3 * SLACK_S:
            changes[move.device, move.direction] += [(move.start_s + SLACK_S, 1), (move.end_s - SLACK_S, -1)]
    messages = []
    for (device, direction), events in changes.items():
        carried = 0
        for time, change in sorted(events):
            carried += change
            if carried > units[device]:
                way = "to" if direction == "out" else "from"
                messages.append(
                    f"{carried} tensors at once go {way} the host at {time:.9g} s; {device} has {units[device]} links"
                )
                break
    return messages


def _full(problem: Problem, schedule: Schedule) -> list[str]:
    """Pools whose memory is exceeded.

    A result takes memory where it is computed, from the start of its op until its last reader there and its move to the
    host are done; and where it is moved, from the start of the move until its last reader there is done. What the next
    step reads stays until the end of the step, and from its begin until the last reader is done. A copy that comes
    over a link without a bandwidth takes none, because it can come again.
    """
    limits = {pool.name: pool.memory_bytes * pool.units for pool in problem.pools if pool.memory_bytes is not None}
    if not limits:
        return []
    rates = {pool.name: pool.bytes_per_s for pool in problem.pools}
    ends = [slot.start_s + slot.mode.time_s for slot in schedule.started]
    on = [slot.mode.device for slot in schedule.started]
    last = max([*ends, *(move.end_s for move in schedule.moves)])
    moves = {(move.task, move.device, move.direction, move.from_host): move for move in schedule.moves}
    spans: dict[str, list[tuple[float, float, int]]] = {device: [] for device in limits}
    for task, slot in zip(problem.tasks, schedule.started, strict=True):
        if on[task.id] in limits:
            spans[on[task.id]].append((0.0, last, task.held_bytes))
        for device in limits:
            began, end = slot.start_s, ends[task.id]
            move = moves.get((task.id, device, "out" if device == on[task.id] else "in", False))
            if move is not None:
                began, end = (began if device == on[task.id] else move.start_s), max(end, move.end_s)
            elif device != on[task.id]:
                continue
            end = max([end, *(ends[other] for other in problem.followers[task.id] if on[other] == device)])
            later = [ends[other] for other in task.next_readers if on[other] == device]
            spans[device].append((began, last if later else end, task.bytes_out))
            spans[device] += [(0.0, max(later), task.bytes_out)] if later else []
    for number, data in enumerate(problem.inputs):
        for device in {on[reader] for reader in data.readers if on[reader] in limits and rates[on[reader]] is not None}:
            move = moves.get((number, device, "in", True))
            later = [ends[reader] for reader in data.readers if on[reader] == device]
            spans[device] += [(0.0, max(later), data.bytes)]
            spans[device] += [(move.start_s, last, data.bytes)] if move is not None else []
    messages = []
    for device, taken in spans.items():
        used = 0
        for time, change in sorted(
            event for began, end, size in taken for event in ((began + SLACK_S, size), (end - SLACK_S, -size))
            if end - began > 3 * SLACK_S
        ):  # fmt: skip
            used += change
            if used > limits[device]:
                messages.append(
                    f"at {time:.9g} s, {used / 1e9:.4g} GB are on {device}, more than its {limits[device] / 1e9:.4g} GB"
                )
                break
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
    for slot in schedule.started:  # also those that take no time
        alone_w = idle + slot.mode.peak_w - slot.mode.units * per_unit[slot.mode.device]
        if alone_w > cap_w + CAP_SLACK_W:
            return [f"op {slot.task} alone takes {alone_w:.6g} W, above {cap_w:g} W"]
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
