"""The rule by which a run that cannot reach its target any more is stopped before its budget is spent."""

import math
from collections.abc import Sequence

from presilicon.records import Direction, reaches

HOPELESS_AFTER = 0.5
"""Fraction of the budget that a run may always spend."""
FEWEST_EVALUATIONS = 9
"""Fewer evaluations show no trend."""
HOPELESS_RULE = (
    "stopped after half of the budget or later, if the best value so far would miss the target even if it improved, in "
    "every further span of evaluations, by as much as the values of the last third differ from each other"
)


def hopeless_reason(values: Sequence[float], target: float, in_budget: int, better: Direction = "higher") -> str | None:
    """The reason why a run cannot reach its target any more, or None while it still may.

    `values` are the metric at all evaluations so far, of the `in_budget` that the budget allows. The rule is
    conservative: a curve that flattens never gains more in a third of its evaluations than in the third before, and the
    range of the last third counts noise as gain too. A curve that jumps late, for example because the learning rate
    drops, can break it.

    >>> hopeless_reason([0.1, 0.3, 0.5, 0.6, 0.61, 0.6, 0.62, 0.61, 0.62], 0.97, in_budget=18)
    'after 9 of 18 evaluations the best value is 0.62; at the pace of the last 3 it can reach 0.68 at most'
    >>> hopeless_reason([0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9], 0.97, in_budget=18)
    """
    enough = max(FEWEST_EVALUATIONS, HOPELESS_AFTER * in_budget)
    if not enough <= len(values) < in_budget or not all(map(math.isfinite, values)):
        return None
    span = len(values) // 3
    latest = values[-span - 1 :]  # `span` differences between neighbours
    gain = (max(latest) - min(latest)) * math.ceil((in_budget - len(values)) / span)
    best = max(values) if better == "higher" else min(values)
    reachable = best + gain if better == "higher" else best - gain
    if reaches(reachable, target, better):
        return None
    return (
        f"after {len(values)} of {in_budget} evaluations the best value is {best:.4g}; at the pace of the last {span} "
        f"it can reach {reachable:.4g} at most"
    )
