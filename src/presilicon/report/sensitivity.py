"""The sensitivity of a ranking as a few lines of text."""

from presilicon.base.units import format_number
from presilicon.records.sensitivity import RankingSensitivity, Sensitivity

_TITLES = {
    "energy_to_accuracy_j": "energy to accuracy",
    "energy_per_step_j": "energy per step",
    "area_mm2": "area",
}


def render_sensitivity(found: Sensitivity) -> str:
    """Every ranking, whether it survives, and the figures that overturn it."""
    tables = " and ".join(f"the {count} figures of {name}" for name, count in found.figures.items())
    lines = [f"sensitivity: {tables}, one at a time, times {found.factor:g} and 1/{found.factor:g}"]
    width = max((len(_TITLES[ranking.quantity]) for ranking in found.rankings), default=0)
    for ranking in found.rankings:
        lines += _ranking(ranking, width)
    return "\n".join(lines)


def _ranking(ranking: RankingSensitivity, width: int) -> list[str]:
    order = " < ".join(ranking.order)
    verdict = "survives" if ranking.survives else "does not survive"
    lines = [f"  {_TITLES[ranking.quantity]:{width}}  {order}: {verdict}"]
    rows = [
        (
            f"{change.technology}: {change.entry} ({change.value:g} {change.unit}, {change.label})",
            f"x {change.factor:g}",
            ", ".join(f"{after} before {before}" for before, after in change.pairs),
        )
        for change in ranking.changes
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    lines += [f"    {first:{widths[0]}}  {second:{widths[1]}}  {third}" for first, second, third in rows]
    closest = ranking.closest
    if closest is not None and ranking.survives:
        ratio, scaled = (format_number(value, digits=3) for value in (closest.ratio, closest.scaled_ratio))
        lines.append(
            f"  {'':{width}}  closest: {closest.worse} is {ratio} times {closest.better}, "
            f"{scaled} times with {closest.entry} x {closest.factor:g}"
        )
    return lines
