"""What every kind of machine is asked: a step to run, and what each of its ops costs there."""

from msgspec import Struct

from presilicon.designs import Design, Technology
from presilicon.records import Op, OpCost, StepGraph
from presilicon.records.cost import Bound
from presilicon.simulation.systolic import Convention
from presilicon.simulation.work import Formats


class Step(Struct, frozen=True, kw_only=True):
    """A training step as a machine sees it."""

    graph: StepGraph
    executed: tuple[Op, ...]
    """The ops that run, in order: `executed_ops` of the graph."""
    design: Design
    formats: Formats
    technology: Technology | None
    """The energy table, for machines that have one."""
    convention: Convention = "exact"


class Priced(Struct, frozen=True, kw_only=True):
    """What the ops of a step cost on a machine, one `OpCost` for each of `Step.executed`."""

    ops: tuple[OpCost, ...]
    time_s: float
    """Of the whole step: more than the sum of its ops where the machine waits, less where they run side by side."""
    energy_by_component_j: dict[str, float]


def bound_of(compute_s: float, memory_s: float) -> Bound:
    """What an op waits for longest."""
    if compute_s == memory_s == 0:
        return "none"
    return "compute" if compute_s >= memory_s else "memory"
