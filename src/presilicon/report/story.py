"""A reproduction that is told in curves, as one HTML page that needs nothing but a browser."""

from collections.abc import Sequence
from html import escape
from string import Template

from presilicon.records import Reproduced, Reproduction
from presilicon.report.lines import render_panel
from presilicon.report.page import asset, palette_style

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
<main>
<header>
  <p class="eyebrow">Presilicon <span>a published result, computed again</span></p>
  <h1>$title</h1>
  <p class="subline">$source</p>
</header>
<section><p>$verdict</p><div class="lines">$panels</div></section>
<section><h2>Figures</h2>$table</section>
<section><h2>What this rests on</h2><ul>$assumptions</ul></section>
<footer>Training was emulated; what the taps saw went through a bit-exact model of the instrument's circuit.</footer>
</main>
</body>
</html>
""")


def render_story(found: Reproduction) -> str:
    """The page: what came out, the curves, the figures, the assumptions."""
    return _PAGE.substitute(
        title=escape(found.title),
        style=palette_style() + asset("page.css"),
        source=escape(f"After {found.source}"),
        verdict=escape(found.verdict),
        panels="".join(map(render_panel, found.panels)),
        table=_table(found.rows),
        assumptions="".join(f"<li>{escape(text)}</li>" for text in found.assumptions),
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
