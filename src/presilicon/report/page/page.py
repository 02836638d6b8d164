"""The comparison as one HTML page that needs only a browser: no network, no other files."""

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

import msgspec

from presilicon.base import format_count, format_joules, format_number, format_seconds
from presilicon.records import Comparison, Pair, RankingSensitivity, Result
from presilicon.report.arrivals import HEADER, arrival_rows
from presilicon.report.charts.curves import chart_data, median_curve, thin
from presilicon.report.charts.palette import DARK, LIGHT
from presilicon.report.fairness import (
    fairness_sentence,
    format_probability,
    format_ratio,
    miss_sentence,
    remark_sentences,
    verdict_on,
)
from presilicon.report.findings import explain, first_finding, miss_reasons
from presilicon.report.headline import energy_parts, headline_parts
from presilicon.report.intervals import ENERGY, NEVER, TIME, format_goal, format_metric, metric_of
from presilicon.report.page.instrument import render_instrument
from presilicon.report.page.markup import prose, render_bars, sentence, typeset
from presilicon.report.page.provenance import render_provenance
from presilicon.report.sensitivity import TITLES, change_row, closest_call, verdict, what_was_tried
from presilicon.report.table import make_grid
from presilicon.runs import EventReader

_TABLED_POINTS = 24
_BADGE = ' <span class="best" title="Lowest median time to accuracy">lowest median</span>'


def render_page(comparison: Comparison, watcher: EventReader | None = None) -> str:
    """The page as HTML: headline, curves, bars, tables, instrument readings, and provenance."""
    designs = comparison.designs
    workloads = ", ".join(dict.fromkeys(result.workload for result in designs)) or "nothing"
    names = ", ".join(result.name for result in designs)
    return Template(asset("page.html")).substitute(
        title=escape(f"{names} on {workloads} – Presilicon"),
        description=escape(f"Time and energy to accuracy of {names} on {workloads}"),
        style=palette_style() + asset("page.css"),
        script=asset("page.js"),
        headline=sentence(headline_parts(comparison)),
        subline=sentence(energy_parts(comparison)),
        facts=_facts(designs),
        bars=render_bars(designs, TIME) + render_bars(designs, ENERGY),
        table=_table(comparison) + _findings(comparison) + _targets(comparison),
        seeds=_seeds(designs),
        curves=_curves(designs),
        caption=_caption(designs),
        legend=_legend(designs),
        instrument=render_instrument(watcher),
        sensitivity=_sensitivity(comparison),
        fairness=_fairness(comparison),
        provenance=render_provenance(designs),
        data=_embed(chart_data(designs)),
    )


def plain_page(*, title: str, eyebrow: str, subline: str, body: str, style: str = "") -> str:
    """A page without scripts around an HTML body; the other arguments are plain text."""
    return Template(asset("plain.html")).substitute(
        title=escape(title),
        eyebrow=escape(eyebrow),
        subline=escape(subline),
        style=palette_style() + asset("page.css") + style,
        body=body,
    )


def asset(name: str) -> str:
    """The contents of an asset: template, style or script."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def palette_style() -> str:
    """The colours as CSS variables, for light and dark mode."""
    light, dark = (
        "".join(f"--c{index}:{colour};" for index, colour in enumerate(colours)) for colours in (LIGHT, DARK)
    )
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"


def _embed(data: Any) -> str:
    """Data as JSON that cannot close the script element around it."""
    text = msgspec.json.encode(data).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _facts(designs: Sequence[Result]) -> str:
    """The line below the headline: workload, target, designs and seeds."""
    if not designs:
        return ""
    seeds = sorted({len(result.seeds) for result in designs})
    counts = "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    targets = ", ".join(dict.fromkeys(map(format_goal, designs)))
    facts = (
        ("Workload", ", ".join(dict.fromkeys(result.workload for result in designs))),
        ("Target", targets),
        ("Designs", str(len(designs))),
        ("Seeds", f"{counts} each" if len(designs) > 1 else counts),
    )
    return "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts)


def _caption(designs: Sequence[Result]) -> str:
    """Explanation of the curves."""
    if any(len(result.seeds) > 1 for result in designs):
        return (
            "Thin lines are seeds, bold lines their median; a ring marks where the median reaches the target. "
            "A bold line ends where fewer than half of the seeds are still training."
        )
    return "Each line is a single seed; a ring marks where it reaches the target."


def _legend(designs: Sequence[Result]) -> str:
    """Explanation of the bars."""
    texts = []
    if any(len(result.seeds) > 1 for result in designs):
        texts.append("A bar shows the median over seeds, the line its interval, and each dot a seed.")
    if any(result.time_to_accuracy_s.median is None for result in designs):
        texts.append("Hatched: the median seed did not hold the target within the budget of steps.")
    return " ".join(texts)


def _table(comparison: Comparison) -> str:
    grid = make_grid(comparison)
    rows = []
    for index, row in enumerate(grid.rows):
        best = index == 0 and grid.best is not None
        mark = _BADGE if best and len(grid.rows) > 1 else ""
        cells = [f'<th scope="row">{escape(row[0].text)}{mark}</th>']
        for cell in row[1:]:
            detail = f"<small>{typeset(cell.detail)}</small>" if cell.detail else ""
            style = ' class="never"' if cell.text == NEVER else ""
            cells.append(f"<td{style}>{typeset(cell.text)}{detail}</td>")
        opening = '<tr class="winner">' if best else "<tr>"
        rows.append(f"{opening}{''.join(cells)}</tr>")
    return _table_of(_head([title.capitalize() for title in grid.header]), rows, "The designs, soonest first")


def _findings(comparison: Comparison) -> str:
    """The first finding of each design that did not hold the target."""
    return "".join(f'<p class="note">{prose(text)}</p>' for text in miss_reasons(comparison))


def _targets(comparison: Comparison) -> str:
    """Table of all targets with samples and updates; empty if it would add nothing."""
    rows = [_row(name, texts) for name, *texts in arrival_rows(comparison)]
    head = _head([title.capitalize() for title in HEADER])
    return _table_of(head, rows, "Every target, with the samples and updates to it") if rows else ""


def _seeds(designs: Sequence[Result]) -> str:
    """Table of seeds: steps, time and energy to the target, and ending."""
    titles = (
        "Design",
        "Seed",
        "Steps to target",
        "Time to target",
        "Energy to target",
        f"Test {metric_of(designs)}",
        "Steps",
        "Ending",
        "First finding",
    )
    rows = []
    for result in designs:
        for seed in result.seeds:
            texts = [
                str(seed.seed),
                NEVER if seed.steps_to_accuracy is None else format_count(seed.steps_to_accuracy),
                NEVER if seed.time_to_accuracy_s is None else format_seconds(seed.time_to_accuracy_s),
                NEVER if seed.energy_to_accuracy_j is None else format_joules(seed.energy_to_accuracy_j),
                format_metric(seed.value, result),
                format_count(seed.steps),
                seed.ending,
                ("" if seed.steps_to_accuracy else explain(first_finding(seed.findings), seed.reason)) or "-",
            ]
            rows.append(_row(result.name, texts))
    return _table_of(_head(titles), rows, "Every seed of every design")


def _curves(designs: Sequence[Result]) -> str:
    """The median curves as a table, for readers who cannot see the chart."""
    metric = metric_of(designs)
    titles = ("Design", "Step", f"Validation {metric}", "Simulated time", "Simulated energy")
    rows = [
        _row(
            result.name,
            [
                format_count(point.step),
                format_metric(point.value, result),
                format_seconds(point.time_s),
                format_joules(point.energy_j),
            ],
        )
        for result in designs
        for point in thin(median_curve(result), _TABLED_POINTS)
    ]
    caption = f"Median over seeds of validation {metric}, time and energy"
    return _table_of(_head(titles), rows, caption)


def _sensitivity(comparison: Comparison) -> str:
    """Whether rankings depend on single figures of the technology tables; empty if that was not computed."""
    sensitivity = comparison.sensitivity
    if sensitivity is None:
        return ""
    blocks = [f'<p class="note">Tried: {escape(what_was_tried(sensitivity))}.</p>']
    for ranking in sensitivity.rankings:
        title = TITLES[ranking.quantity]
        blocks.append(f"<p><b>{escape(title.capitalize())}</b> {escape(verdict(ranking))}. {_closest(ranking)}</p>")
        if ranking.changes:
            rows = [_row(figure, texts) for figure, *texts in map(change_row, ranking.changes)]
            head = _head(("Figure", "Factor", "Designs that swap places"))
            blocks.append(_table_of(head, rows, f"Figures that change the ranking by {title}"))
    return (
        '<section aria-labelledby="sensitivity-title"><h2 id="sensitivity-title">Sensitivity to single figures</h2>'
        f"{''.join(blocks)}</section>"
    )


def _fairness(comparison: Comparison) -> str:
    """How reliable the comparison is; empty for old records without this information."""
    if comparison.fairness is None:
        return ""
    held = fairness_sentence(comparison)
    blocks = [f"<p>{escape(held)}</p>"] if held else []
    blocks += [f"<p>{prose(text)}</p>" for text in map(miss_sentence, comparison.designs) if text]
    blocks += [f"<p>{prose(text)}</p>" for text in remark_sentences(comparison)]
    blocks += [_pairs(comparison.pairs)] if comparison.pairs else []
    return (
        '<section aria-labelledby="fairness-title"><h2 id="fairness-title">Reliability of this comparison</h2>'
        f"{''.join(blocks)}{_arrivals(comparison.designs)}</section>"
    )


def _pairs(pairs: Sequence[Pair]) -> str:
    """Each pair of designs, compared on the same seeds."""
    note = (
        '<p class="note">A seed gives every design the same initial weights and batches, so designs are compared seed '
        "by seed. The design that reaches the target sooner wins; a seed that both miss, or on which they take the "
        "same time, is a tie. With a factor above 1 the design is faster, or needs less energy, than the one it is "
        "compared with. The probability is the share of resamples of the seeds in which the first median is the lower "
        "one.</p>"
    )
    titles = (
        "Design", "Against", "Factor in time", "Factor in energy", "Verdict", "Sooner", "Later", "Ties",
        "Probability of a lower median", "Sign test p",
    )  # fmt: skip
    rows = []
    for pair in pairs:
        counts = [str(count) for count in (pair.wins, pair.losses, pair.ties)]
        figures = [format_number(figure) for figure in (pair.probability_faster, pair.sign_test_p)]
        ratios = ["-" if ratio is None else format_ratio(ratio) for ratio in (pair.time_ratio, pair.energy_ratio)]
        verdict = "-" if pair.time_ratio is None else verdict_on(pair)
        rows.append(_row(pair.first, [pair.second, *ratios, verdict, *counts, *figures]))
    return note + _table_of(_head(titles), rows, "Each pair of designs, seed by seed")


def _arrivals(designs: Sequence[Result]) -> str:
    """Probability that a seed reaches the target, and the expected time if seeds that miss are restarted."""
    titles = ("Design", "Reached", "Probability of reaching it", "Expected time with restarts")
    rows = []
    for result in designs:
        if result.reach_probability is not None:
            expected_s = result.expected_time_to_accuracy_s
            expected = NEVER if expected_s is None else format_seconds(expected_s)
            rows.append(_row(result.name, [result.reached, format_probability(result.reach_probability), expected]))
    return _table_of(_head(titles), rows, "Seeds that reach the target, and the cost of restarts")


def _closest(ranking: RankingSensitivity) -> str:
    text = closest_call(ranking)
    return f"{escape(text[:1].upper() + text[1:])}." if text else ""


def _head(titles: Sequence[str]) -> str:
    return "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)


def _row(name: str, texts: Sequence[str]) -> str:
    return f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{typeset(text)}</td>" for text in texts)}</tr>'


def _table_of(head: str, rows: Sequence[str], caption: str) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
