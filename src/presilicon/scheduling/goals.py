"""What a schedule is to be good for, and within which limits."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base.errors import ConfigError
from presilicon.records import Problem, Schedule
from presilicon.scheduling.accounting import cost

Objective = Literal["energy", "throughput"]


class Goal(Struct, frozen=True, kw_only=True):
    """Least energy within a makespan, or least makespan; either may have a cap on power."""

    objective: Objective = "energy"
    limit_s: float | None = None
    """The longest makespan that is allowed."""
    cap_w: float | None = None
    """The peaks of everything that runs, with what idles, stay below."""

    def value(self, problem: Problem, schedule: Schedule) -> float:
        """What is to be small: joules, or seconds."""
        if self.objective == "energy":
            return cost(problem, schedule).energy_per_step_j
        return schedule.makespan_s

    def bound_of(self, schedule: Schedule) -> float | None:
        """What the schedule's solver has proven about this goal."""
        return schedule.bound_j if self.objective == "energy" else schedule.bound_s

    def bounded(self, schedule: Schedule, solver: str, bound: float) -> Schedule:
        """The schedule with its solver and a proven bound."""
        if self.objective == "energy":
            return replace(schedule, solver=solver, bound_j=bound)
        return replace(schedule, solver=solver, bound_s=bound)

    def check(self, problem: Problem) -> None:
        """A cap must leave room for idle devices, a limit for anything at all.

        Raises:
            ConfigError: naming the value and what it would have to be.
        """
        if self.cap_w is not None and self.cap_w < problem.idle_w:
            parts = ", ".join(f"{pool.units} x {pool.name} {pool.idle_w:g} W" for pool in problem.pools)
            raise ConfigError(
                f"a power cap of {self.cap_w:g} W is below the {problem.idle_w:g} W that the system takes when idle "
                f"({parts}, host {problem.base_w:g} W)"
            )
        if self.limit_s is not None and self.limit_s <= 0:
            raise ConfigError(f"a makespan limit of {self.limit_s:g} s leaves no time at all")
