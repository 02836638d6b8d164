"""The critical path, and how far each op is from it."""

from collections.abc import Sequence
from typing import NamedTuple

from presilicon.records import Problem


class CriticalPath(NamedTuple):
    """The longest way through a step, were devices not scarce."""

    length_s: float
    slack_s: tuple[float, ...]
    """For each op, how much longer it may take, or later begin, before the longest way gets longer."""

    @property
    def ops(self) -> tuple[int, ...]:
        """Ops without slack."""
        return tuple(op for op, slack in enumerate(self.slack_s) if slack <= 1e-12 * max(self.length_s, 1.0))


def critical_path(problem: Problem, times_s: Sequence[float]) -> CriticalPath:
    """Slack of each op when op i takes `times_s[i]` and nothing is moved."""
    earliest = [0.0] * len(problem.tasks)
    for task in problem.tasks:
        earliest[task.id] = max((earliest[dep] + times_s[dep] for dep in task.deps), default=0.0)
    length = max((begin + time for begin, time in zip(earliest, times_s, strict=True)), default=0.0)
    latest = [0.0] * len(problem.tasks)
    for task in reversed(problem.tasks):
        end = min((latest[follower] for follower in problem.followers[task.id]), default=length)
        latest[task.id] = end - times_s[task.id]
    return CriticalPath(length, tuple(max(0.0, late - early) for late, early in zip(latest, earliest, strict=True)))
