"""The goal of a schedule: its objective, and its limits on time and power."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, RunFailedError
from presilicon.records import Problem, Schedule, ScheduleCost
from presilicon.scheduling.accounting import cost

Objective = Literal["energy", "throughput"]
Progress = Callable[[float, float], None]
"""Called with the share of the time limit that is spent, and the best value so far."""
TOLERANCE = 1e-9
"""Largest relative amount by which floating-point errors may lift a bound above the value of a schedule."""

WATTS = 1e-6
"""Power by which floating-point errors may exceed a cap."""


def sound_bound(bound: float, value: float) -> float:
    """The bound, at most the value of a schedule within the same limits.

    Raises:
        RunFailedError: the bound exceeds the value by more than `TOLERANCE`, so that its proof must be wrong.
    """
    if bound > value * (1 + TOLERANCE):
        raise RunFailedError(
            f"internal error: the proven bound of {bound:.9g} is above {value:.9g}, the value of a valid schedule; "
            "please report this problem"
        )
    return min(bound, value)


class Goal(Struct, frozen=True, kw_only=True):
    """Least energy within a makespan, or least makespan; both optionally under a power cap."""

    objective: Objective = "energy"
    limit_s: float | None = None
    """Longest allowed makespan."""
    cap_w: float | None = None
    """Limit on the sum of the peak power of running ops and the idle power of the rest."""

    def value(self, problem: Problem, schedule: Schedule) -> float:
        """The objective of a schedule, to be minimized: joules or seconds."""
        if self.objective == "energy":
            return cost(problem, schedule).energy_per_step_j
        return schedule.makespan_s

    def allows(self, cost: ScheduleCost) -> bool:
        """Whether the power of a step is never above the cap."""
        return self.cap_w is None or cost.peak_power_w <= self.cap_w + WATTS

    def is_late(self, cost: ScheduleCost) -> bool:
        """Whether a step takes longer than the limit."""
        return self.limit_s is not None and cost.makespan_s > self.limit_s * (1 + TOLERANCE)

    def bound_of(self, schedule: Schedule) -> float | None:
        """Lower bound that the schedule's solver has proven for this goal."""
        return schedule.bound_j if self.objective == "energy" else schedule.bound_s

    def bounded(self, schedule: Schedule, solver: str, bound: float) -> Schedule:
        """The schedule with its solver and a proven bound."""
        if self.objective == "energy":
            return replace(schedule, solver=solver, bound_j=bound)
        return replace(schedule, solver=solver, bound_s=bound)

    def check(self, problem: Problem) -> None:
        """Refuse a cap below idle power and a limit that is not above 0.

        Raises:
            ConfigError: names the value and what it must be.
        """
        if self.cap_w is not None and self.cap_w < problem.idle_w:
            parts = ", ".join(f"{pool.units} x {pool.name} {pool.idle_w:g} W" for pool in problem.pools)
            raise ConfigError(
                f"the power cap must be at least the {problem.idle_w:g} W that the system takes when idle "
                f"({parts}, host {problem.base_w:g} W), not {self.cap_w:g} W"
            )
        if self.limit_s is not None and self.limit_s <= 0:
            raise ConfigError(f"the makespan limit must be above 0 s, not {self.limit_s:g} s")
