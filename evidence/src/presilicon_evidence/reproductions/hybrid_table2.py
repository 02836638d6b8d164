"""Table 2 of the GPU-FPGA publication: share of ops and time that goes to FPGAs."""

from collections.abc import Iterator

from presilicon.records import Reproduced, Reproduction
from presilicon_evidence.reproductions.hybrid import MODELS, NAMES, SETS, SOURCE, Assumptions, facts, run
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, is_near, spread

_NEAR = 0.25
_SETS: tuple[Assumptions, ...] = (SETS[0], SETS[3], SETS[7])


def reproduce() -> Reproduction:
    """Offloaded shares of the six models, published and ours."""
    rows = tuple(_rows())
    return Reproduction(
        name="hybrid-table2",
        title="Table 2 of the GPU-FPGA publication: what goes to the FPGAs",
        source=SOURCE,
        rows=rows,
        assumptions=(
            "Ours are ops of the captured step, update included, that the published rules send to a board; their time "
            "is what they take on the GPU alone, of the whole step's.",
            "The source does not say whether its first column counts ops or kinds of ops: its values are simple "
            "fractions (5/18, 5/21, 2/9) that could be either.",
            *(f"Set {assumptions.name}." for assumptions in _SETS),
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """Both columns of the table, under each set of assumptions."""
    for assumptions in _SETS:
        letter = f"({assumptions.name[0]})"
        headings = [row.quantity for row in rows.like(letter)]
        columns = {"time": [rows[heading, "time"] for heading in headings], "ops": rows.like(letter)}
        for what, found in columns.items():
            named = ", ".join(
                f"{heading.partition(',')[0]} {row.ours or 0.0:.2g}% of {row.published or 0.0:.2g}%"
                for heading, row in zip(headings, found, strict=True)
            )
            yield Statement(
                all(is_near(row, _NEAR) for row in found),
                f"shares of {what} that go to boards {letter}, within {_NEAR:.0%}",
                f"{spread(found, _NEAR)}: {named}",
            )


def _rows() -> Iterator[Reproduced]:
    published = facts()["table2"]
    for model in MODELS:
        ops, time = published[NAMES[model]]
        for assumptions in _SETS:
            result = run(model, assumptions)
            moved = result.moved
            share = 100 * sum(result.gpu_time_s[task] for task in moved) / sum(result.gpu_time_s)
            yield Reproduced(
                f"{NAMES[model]}, ops ({assumptions.name[0]})", "%", ops, 100 * len(moved) / len(result.problem.tasks)
            )
            yield Reproduced("  time", "%", time, share)
