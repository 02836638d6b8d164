"""Published figures next to ours: for a terminal, as JSON, and as a page."""

import textwrap
from collections.abc import Sequence
from html import escape
from string import Template
from typing import Any

import msgspec

from presilicon.base import DOCUMENT_SCHEMA, columns, json_text
from presilicon.records import Reproduced, Reproduction
from presilicon.report.charts.lines import render_panel
from presilicon.report.page.page import plain_page

_WIDTH = 110


def render_reproduction(reproduction: Reproduction) -> str:
    """The table, its assumptions and the verdict as plain text."""
    rows = [("", "published", "ours", "difference", ""), *(_row(row) for row in reproduction.rows)]
    lines = [reproduction.title, f"source: {reproduction.source}", "", *columns(rows, left=(0, 4))]
    lines += ["", "assumptions"]
    for text in reproduction.assumptions:
        lines += textwrap.wrap(text, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    if reproduction.verdict:
        lines += ["", *textwrap.wrap(reproduction.verdict, _WIDTH)]
    return "\n".join(lines) + "\n"


def reproduction_to_json(reproduction: Reproduction) -> str:
    """The reproduction as a JSON document, each row with its difference."""
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(reproduction, study=None))
    del plain["study"]
    if not reproduction.panels:
        del plain["panels"]
    for row, plain_row in zip(reproduction.rows, plain["rows"], strict=True):
        plain_row["difference"] = row.difference
    return json_text({"schema": DOCUMENT_SCHEMA, **plain})


def _row(row: Reproduced) -> tuple[str, str, str, str, str]:
    difference = "-" if row.difference is None else f"{row.difference:+.1%}"
    return row.quantity, _figure(row.published, row.unit), _figure(row.ours, row.unit), difference, row.note


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


_BODY = Template("""<section><p>$verdict</p><div class="lines">$panels</div></section>
<section><h2>Figures</h2>$table</section>
<section><h2>Assumptions</h2><ul>$assumptions</ul></section>
<footer>Training was emulated; tap readings went through a bit-exact model of the instrument's circuit.</footer>
""")


def render_story(reproduction: Reproduction) -> str:
    """An HTML page with the verdict, curves, figures and assumptions of a reproduction."""
    body = _BODY.substitute(
        verdict=escape(reproduction.verdict),
        panels="".join(map(render_panel, reproduction.panels)),
        table=_table(reproduction.rows),
        assumptions="".join(f"<li>{escape(text)}</li>" for text in reproduction.assumptions),
    )
    return plain_page(
        title=reproduction.title,
        eyebrow="a published result, reproduced",
        subline=f"After {reproduction.source}",
        body=body,
    )


def _table(rows: Sequence[Reproduced]) -> str:
    body = "".join(
        f'<tr><th scope="row">{escape(row.quantity)}</th><td>{_typeset(row.ours, row.unit)}</td>'
        f'<td style="text-align:left">{escape(row.note)}</td></tr>'
        for row in rows
    )
    head = '<th scope="col">Quantity</th><th scope="col">Ours</th><th scope="col" style="text-align:left">Note</th>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _typeset(value: float | None, unit: str) -> str:
    return "–" if value is None else escape(f"{value:.4g} {unit}".rstrip())
