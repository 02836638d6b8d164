"""Sentences on the sensitivity of rankings, for the terminal and the page."""

from presilicon.base import format_number
from presilicon.records import RankingChange, RankingSensitivity, Sensitivity

TITLES = {"energy_to_accuracy_j": "energy to accuracy", "energy_per_step_j": "energy per step", "area_mm2": "area"}


def render_sensitivity(sensitivity: Sensitivity) -> str:
    """Each ranking, whether it survives, and the figures that change it, as plain text."""
    lines = [f"sensitivity: {what_was_tried(sensitivity)}"]
    width = max((len(TITLES[ranking.quantity]) for ranking in sensitivity.rankings), default=0)
    for ranking in sensitivity.rankings:
        lines.append(f"  {TITLES[ranking.quantity]:{width}}  {verdict(ranking)}")
        rows = [change_row(change) for change in ranking.changes]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
        lines += [f"    {figure:{widths[0]}}  {factor:{widths[1]}}  {swaps}" for figure, factor, swaps in rows]
        if ranking.survives and ranking.closest is not None:
            lines.append(f"  {'':{width}}  {closest_call(ranking)}")
    return "\n".join(lines)


def what_was_tried(sensitivity: Sensitivity) -> str:
    """States which figures were multiplied, and by which factors."""
    tables = " and ".join(f"the {count} figures of {name}" for name, count in sensitivity.figures.items())
    return f"{tables or 'no figures'}, one at a time, times {sensitivity.factor:g} and 1/{sensitivity.factor:g}"


def verdict(ranking: RankingSensitivity) -> str:
    """The ranking, lowest value first, and whether it survives."""
    return f"{' < '.join(ranking.order)}: {'survives' if ranking.survives else 'does not survive'}"


def closest_call(ranking: RankingSensitivity) -> str:
    """States which neighbours in the ranking are closest; empty if none can be compared."""
    closest = ranking.closest
    if closest is None:
        return ""
    ratio, scaled = (format_number(value, digits=3) for value in (closest.ratio, closest.scaled_ratio))
    return (
        f"closest: {closest.worse} is {ratio} times {closest.better}, "
        f"{scaled} times with {closest.entry} x {closest.factor:g}"
    )


def change_row(change: RankingChange) -> tuple[str, str, str]:
    """A figure, its factor, and the designs that swap places."""
    return (
        f"{change.technology}: {change.entry} ({change.value:g} {change.unit}, {change.label})",
        f"x {change.factor:g}",
        ", ".join(f"{after} before {before}" for before, after in change.pairs),
    )
