"""Accounting of a schedule: cost, power over time, load of the links, and slack of its ops."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from presilicon.records import PowerTrace, Problem, Schedule, ScheduleCost, Started

SAMPLE_S = 1e-3
"""Seconds between two readings of a power sensor."""


def power_trace(problem: Problem, schedule: Schedule) -> PowerTrace:
    """Power between events (starts and ends of ops): running ops, idle devices and the host.

    Times that differ by less than a picosecond count as one event.
    """
    begins_and_ends = (time for slot in schedule.started for time in (slot.start_s, slot.end_s))
    times = _merged([0.0, *begins_and_ends, schedule.makespan_s])
    index_of = {time: index for index, time in enumerate(times)}
    average, peak = [0.0] * (len(times) - 1), [0.0] * (len(times) - 1)
    changes: list[tuple[float, float]] = [(0.0, 0.0)] * len(times)
    for slot in schedule.started:
        idle = slot.mode.units * problem.pool[slot.mode.device].idle_w
        rise = slot.mode.average_w - idle, slot.mode.peak_w - idle
        first, last = index_of[_nearest(times, slot.start_s)], index_of[_nearest(times, slot.end_s)]
        changes[first] = _sum(changes[first], rise)
        changes[last] = _sum(changes[last], (-rise[0], -rise[1]))
    now = (problem.idle_w, problem.idle_w)
    for index in range(len(times) - 1):
        now = _sum(now, changes[index])
        average[index], peak[index] = now
    return PowerTrace(times_s=tuple(times), average_w=tuple(average), peak_w=tuple(peak))


def cost(
    problem: Problem, schedule: Schedule, *, cap_w: float | None = None, sample_s: float = SAMPLE_S
) -> ScheduleCost:
    """Time, power and energy of a step; with a cap, also the number of power readings above it."""
    trace = power_trace(problem, schedule)
    span, energy = schedule.makespan_s, trace.energy_j
    return ScheduleCost(
        makespan_s=span,
        energy_per_step_j=energy,
        average_power_w=energy / span if span else problem.idle_w,
        peak_power_w=max(trace.peak_w, default=problem.idle_w),
        throughput_samples_per_s=problem.batch_size / span if span else math.inf,
        samples_per_j=problem.batch_size / energy if energy else math.inf,
        utilization=utilization(problem, schedule.started, span),
        violations=None if cap_w is None else violations(trace, cap_w, sample_s),
    )


def utilization(problem: Problem, started: Sequence[Started], span: float) -> dict[str, float]:
    """Busy share of each pool's units over a step of that length."""
    busy = dict.fromkeys(problem.pool, 0.0)
    for slot in started:
        busy[slot.mode.device] += slot.mode.units * slot.mode.time_s
    return {name: busy[name] / (pool.units * span) if span else 0.0 for name, pool in problem.pool.items()}


def violations(trace: PowerTrace, cap_w: float, sample_s: float = SAMPLE_S) -> int:
    """Number of readings, one every `sample_s`, at which the peak power is above the cap."""
    count = 0
    for power, (start, end) in zip(trace.peak_w, pairwise(trace.times_s), strict=True):
        if power > cap_w + 1e-6:
            count += math.ceil(end / sample_s) - math.ceil(start / sample_s)
    return count


def _sum(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _merged(times: Sequence[float]) -> list[float]:
    distinct: list[float] = []
    for time in sorted(times):
        if not distinct or time - distinct[-1] > 1e-12:
            distinct.append(time)
    return distinct


def _nearest(times: Sequence[float], time: float) -> float:
    """The event at `time`; both come from the same numbers."""
    return times[bisect_right(times, time + 1e-15) - 1]


class LinkLoad(Struct, frozen=True, kw_only=True):
    """Traffic over the host links of one device pool in a step."""

    device: str
    bytes: int
    """In both directions."""
    share: float
    """Busy share of the links in the direction that has more to carry; above 1 they are overloaded."""


def link_loads(problem: Problem, schedule: Schedule) -> tuple[LinkLoad, ...]:
    """Traffic over each pool's links."""
    busy = {(pool.name, way): 0.0 for pool in problem.pools for way in ("out", "in")}
    for move in schedule.moves:
        busy[move.device, move.direction] += move.end_s - move.start_s
    span = schedule.makespan_s
    loads = []
    for pool in problem.pools:
        if pool.bytes_per_s is None:
            continue
        ways = busy[pool.name, "out"], busy[pool.name, "in"]
        share = max(ways) / (pool.units * span) if span else 0.0
        loads.append(LinkLoad(device=pool.name, bytes=round(sum(ways) * pool.bytes_per_s), share=share))
    return tuple(loads)


def link_warnings(problem: Problem, schedule: Schedule) -> tuple[str, ...]:
    """A warning per link that is overloaded by a schedule whose moves do not wait for one another."""
    return tuple(
        f"moves over the links of {load.device} add up to {load.bytes / 1e9:.3g} GB, {load.share:.0%} of what they "
        "carry in the step: moves do not wait for one another here, and on real links they would"
        for load in link_loads(problem, schedule)
        if load.share > 1
    )


class CriticalPath(NamedTuple):
    """The longest path through a step if there were always a free device."""

    length_s: float
    slack_s: tuple[float, ...]
    """Per op: how much longer it may take, or later it may start, without making the longest path longer."""

    @property
    def ops(self) -> tuple[int, ...]:
        """Ops without slack."""
        return tuple(op for op, slack in enumerate(self.slack_s) if slack <= 1e-12 * max(self.length_s, 1.0))


def critical_path(problem: Problem, times_s: Sequence[float]) -> CriticalPath:
    """Critical path and slack when op i takes `times_s[i]` and transfers take no time."""
    earliest = [0.0] * len(problem.tasks)
    for task in problem.tasks:
        earliest[task.id] = max((earliest[dep] + times_s[dep] for dep in task.deps), default=0.0)
    length = max((begin + time for begin, time in zip(earliest, times_s, strict=True)), default=0.0)
    latest = [0.0] * len(problem.tasks)
    for task in reversed(problem.tasks):
        end = min((latest[follower] for follower in problem.followers[task.id]), default=length)
        latest[task.id] = end - times_s[task.id]
    return CriticalPath(length, tuple(max(0.0, late - early) for late, early in zip(latest, earliest, strict=True)))
