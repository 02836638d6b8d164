"""The comparison as a table for a terminal, or as plain text for everything else."""

import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

from presilicon.base import columns, count_scale, format_area, format_bytes, format_seconds, joules_scale, seconds_scale
from presilicon.records import Comparison, Result
from presilicon.report.arrivals import HEADER, arrival_rows
from presilicon.report.fairness import notes_on
from presilicon.report.findings import miss_reasons
from presilicon.report.headline import headline
from presilicon.report.intervals import (
    NEVER,
    format_ends,
    format_interval,
    format_metric,
    format_target,
    metric_of,
    rank,
)
from presilicon.report.sensitivity import render_sensitivity

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MARK = "*"
"""Mark in front of the design with the lowest median time to accuracy."""


class Cell(NamedTuple):
    """A value, and a detail that may go below it if the table is narrow."""

    text: str
    detail: str = ""

    @property
    def line(self) -> str:
        """Both on one line."""
        return f"{self.text} {self.detail}".rstrip()


class TextTable(NamedTuple):
    """Texts of the table: the first column has the names of the designs, best first."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best: str | None
    """Name of the marked design, if any."""


def make_grid(comparison: Comparison) -> TextTable:
    """The texts of the table, for the terminal, plain text and the page to lay out."""
    ranking = rank(comparison.designs)
    targets = {format_target(result.target, result) for result in ranking}
    header = (
        "design",
        f"test {metric_of(ranking)}",
        f"steps to {targets.pop() if len(targets) == 1 else 'target'}",
        "time/step",
        "TIME TO ACCURACY",
        "energy to accuracy",
        "reached",
        "memory",
        "area",
    )
    winner = ranking[0] if ranking and ranking[0].time_to_accuracy_s.median is not None else None
    return TextTable(header, tuple(_cells(result) for result in ranking), winner.name if winner else None)


def _cells(result: Result) -> tuple[Cell, ...]:
    several = len(result.seeds) > 1
    intervals = [
        Cell(format_interval(interval, scale_of, ends=False), format_ends(interval, scale_of) if several else "")
        for interval, scale_of in (
            (result.steps_to_accuracy, count_scale),
            (result.time_to_accuracy_s, seconds_scale),
            (result.energy_to_accuracy_j, joules_scale),
        )
    ]
    return (
        Cell(result.name),
        Cell(format_metric(result.value, result)),
        intervals[0],
        Cell(format_seconds(result.time_per_step_s)),
        intervals[1],
        intervals[2],
        Cell(result.reached),
        Cell(format_bytes(result.memory_bytes)),
        Cell("-" if result.area_mm2 is None else format_area(result.area_mm2)),
    )


def render_table(comparison: Comparison) -> str:
    """The table as plain text: no colour, as wide as needed, with the headline below it."""
    grid = make_grid(comparison)
    rows = [("  " + grid.header[0], *grid.header[1:])]
    for index, row in enumerate(grid.rows):
        mark = MARK if grid.best is not None and index == 0 else " "
        rows.append((f"{mark} {row[0].line}", *(cell.line for cell in row[1:])))
    notes = [*_notes(grid), *miss_reasons(comparison), *notes_on(comparison), *_sensitivity(comparison)]
    return "\n".join([*columns(rows), *_arrivals(comparison), "", headline(comparison), *notes]) + "\n"


def _arrivals(comparison: Comparison) -> list[str]:
    """The table of all targets with samples and updates, after an empty line; nothing if it would add nothing."""
    rows = arrival_rows(comparison)
    return ["", *columns([(f"  {name}", *texts) for name, *texts in (HEADER, *rows)])] if rows else []


def print_table(comparison: Comparison, file: IO[str] | None = None) -> None:
    """Write the table to a file, standard output by default: with rich on a terminal, as plain text elsewhere."""
    file = file or sys.stdout
    if not file.isatty():
        file.write(render_table(comparison))
        return
    from rich.console import Console

    console = Console(file=file, highlight=False)
    console.print(rich_table(comparison, console))


def rich_table(comparison: Comparison, console: "Console") -> "RenderableType":
    """The table for a console: one line per design if that fits, otherwise two lines, otherwise a list of values."""
    from rich.console import Group
    from rich.measure import Measurement
    from rich.text import Text

    grid = make_grid(comparison)
    widest: RenderableType = _rich_list(grid)
    for table in (_rich_grid(_stack(grid), between="\n"), _rich_grid(grid, between=" ")):
        if Measurement.get(console, console.options.update(max_width=10_000), table).maximum <= console.width:
            widest = table
    notes = "\n".join([*_notes(grid), *miss_reasons(comparison), *notes_on(comparison)])
    tail = [Text(headline(comparison), style="bold"), *([Text(notes, style="dim")] if notes else [])]
    tail += [Text(line) for line in _sensitivity(comparison)]
    arrivals = [Text("\n".join(_arrivals(comparison)))] if arrival_rows(comparison) else []
    return Group(widest, *arrivals, Text(), *tail)


def _stack(grid: TextTable) -> TextTable:
    """A grid with fewer and narrower columns, for cells of two lines."""
    metric = "test acc." if grid.header[1] == "test accuracy" else grid.header[1]
    header = ("design\ntime/step", f"{metric}\nreached", grid.header[2].replace(" ", "\n", 1))
    rows = tuple(
        (
            Cell(design.text, f"{time.text}/step"),
            Cell(accuracy.text, reached.text),
            steps,
            time_to,
            energy_to,
            Cell(memory.text, area.text),
        )
        for design, accuracy, steps, time, time_to, energy_to, reached, memory, area in grid.rows
    )
    return TextTable((*header, "TIME TO\nACCURACY", "energy to\naccuracy", "memory\narea"), rows, grid.best)


def _rich_grid(grid: TextTable, *, between: str) -> "RenderableType":
    """A table whose cells are the value, `between` and the detail."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    loud = next(index for index, title in enumerate(grid.header) if title.startswith("TIME TO"))
    gap = 1 if between == " " else 0
    table = Table(box=SIMPLE_HEAD, header_style="dim", padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)
    for index, title in enumerate(grid.header):
        heading = title if index else "\n".join(f"  {line}" for line in title.split("\n"))
        table.add_column(heading, justify="right" if index else "left", no_wrap=True, vertical="top")
    for number, row in enumerate(grid.rows):
        best = number == 0 and grid.best is not None
        texts = []
        for index, cell in enumerate(row):
            style = "bold green" if best and index in (0, loud) else "red" if cell.text == NEVER else ""
            mark = "" if index else f"{MARK} " if best else "  "
            indent = "" if index else "  "
            text = Text.assemble((mark, "green"), (cell.text, style))
            texts.append(text.append(f"{between}{indent}{cell.detail}", style="dim") if cell.detail else text)
        table.add_row(*texts)
    return table


def _rich_list(grid: TextTable) -> "RenderableType":
    """The values of each design below one another, if the terminal is too narrow for a table."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    blocks: list[RenderableType] = []
    for number, row in enumerate(grid.rows):
        best = number == 0 and grid.best is not None
        blocks.append(Text(f"{MARK if best else ' '} {row[0].line}", style="bold green" if best else "bold"))
        block = Table.grid(padding=(0, 1))
        for title, cell in zip(grid.header[1:], row[1:], strict=True):
            block.add_row(Text(f"  {title}", style="dim"), Text(cell.line))
        blocks += [block, Text()]
    return Group(*blocks)


def _sensitivity(comparison: Comparison) -> Sequence[str]:
    return [] if comparison.sensitivity is None else ["", render_sensitivity(comparison.sensitivity)]


def _notes(grid: TextTable) -> Sequence[str]:
    """Explanations of the notation that occurs in the table."""
    cells = [cell.line for row in grid.rows for cell in row[1:]]
    notes = []
    if any("[" in cell for cell in cells):
        notes.append("[low-high] is the interval over seeds; the provenance in the report says how it is computed.")
    if any(NEVER in cell for cell in cells):
        notes.append("never: the target was not held within the budget of steps.")
    return notes
