"""A reproduction that is told in curves, as one HTML page that needs nothing but a browser."""

from collections.abc import Sequence
from html import escape
from string import Template

from presilicon.records import Reproduced, Reproduction
from presilicon.report.lines import render_panel
from presilicon.report.page import plain_page

_BODY = Template("""<section><p>$verdict</p><div class="lines">$panels</div></section>
<section><h2>Figures</h2>$table</section>
<section><h2>What this rests on</h2><ul>$assumptions</ul></section>
<footer>Training was emulated; what the taps saw went through a bit-exact model of the instrument's circuit.</footer>
""")


def render_story(found: Reproduction) -> str:
    """The page: what came out, the curves, the figures, the assumptions."""
    body = _BODY.substitute(
        verdict=escape(found.verdict),
        panels="".join(map(render_panel, found.panels)),
        table=_table(found.rows),
        assumptions="".join(f"<li>{escape(text)}</li>" for text in found.assumptions),
    )
    return plain_page(
        title=found.title, eyebrow="a published result, computed again", subline=f"After {found.source}", body=body
    )


def _table(rows: Sequence[Reproduced]) -> str:
    body = "".join(
        f'<tr><th scope="row">{escape(row.quantity)}</th><td>{_figure(row.ours, row.unit)}</td>'
        f'<td style="text-align:left">{escape(row.note)}</td></tr>'
        for row in rows
    )
    head = '<th scope="col">Quantity</th><th scope="col">Ours</th><th scope="col" style="text-align:left">Note</th>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _figure(value: float | None, unit: str) -> str:
    return "–" if value is None else escape(f"{value:.4g} {unit}".rstrip())
