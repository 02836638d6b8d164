"""Verdicts follow from rows: contradicted rows change them, and every statement can come out either way.

tests/data/reproductions.json has the rows of each reproduction, as `python -m
tests.unit.evidence.reproductions.test_verdicts NAME ...` records them: of those that train for long, short or made-up
trainings.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import astuple, replace
from tests.unit.evidence.reproductions.test_methods import arrivals

from presilicon.designs import Design
from presilicon.records import Comparison, Reproduced
from presilicon.study import compare_all, reproduction_names
from presilicon_evidence.reproductions.methods import Trial
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, is_near, stated

RECORDED = Path(__file__).parents[3] / "data" / "reproductions.json"
GRID = (None, 0.0, 1.0, 2.0, 5.0, 6.0, 10.0, 60.0, 95.0, 100.0, 1000.0)


def module_of(name: str) -> ModuleType:
    return import_module(f"presilicon_evidence.reproductions.{name.replace('-', '_')}")


@cache
def recorded(name: str) -> tuple[Reproduced, ...]:
    return tuple(Reproduced(*row) for row in json.loads(RECORDED.read_text())[name])


def with_ours(rows: Sequence[Reproduced], place: int, ours: float | None) -> tuple[Reproduced, ...]:
    return (*rows[:place], replace(rows[place], ours=ours), *rows[place + 1 :])


def contradicted(rows: Sequence[Reproduced]) -> Iterator[tuple[Reproduced, ...]]:
    """Rows of which one, some or all say something else."""
    yield tuple(rows)
    yield tuple(replace(row, ours=row.published if row.published is not None else row.ours) for row in rows)
    for place, row in enumerate(rows):
        if row.ours is not None:
            yield from (with_ours(rows, place, factor * row.ours) for factor in (0.1, 10.0))
    for value in GRID:
        yield tuple(replace(row, ours=value) for row in rows)
    draw = random.Random(0)
    for share in (0.05, 0.3, 1.0):
        for _ in range(300):
            yield tuple(replace(row, ours=_other(row, draw)) if draw.random() < share else row for row in rows)


def _other(row: Reproduced, draw: random.Random) -> float | None:
    ours, published = row.ours or 0.0, row.published
    return draw.choice((*GRID, ours, 0.1 * ours, 10 * ours, published, ours * draw.uniform(0.5, 2)))


@pytest.mark.parametrize("name", reproduction_names())
def test_a_tenth_and_ten_times_of_any_comparable_figure_change_the_verdict(name: str) -> None:
    rows, statements = recorded(name), module_of(name).statements
    verdict = conclude(statements, rows)
    for place, row in enumerate(rows):
        if row.published is None or row.ours is None:
            continue
        for ours in (0.1 * row.ours, 10 * row.ours) if row.ours else (1.0, 10.0):
            assert conclude(statements, with_ours(rows, place, ours)) != verdict, (row.quantity, ours)


@pytest.mark.parametrize("name", reproduction_names())
def test_every_statement_can_come_out_either_way(name: str) -> None:
    statements = module_of(name).statements
    outcomes: dict[int, set[bool]] = {}
    for rows in contradicted(recorded(name)):
        for place, statement in enumerate(statements(Rows(rows))):
            outcomes.setdefault(place, set()).add(statement.holds)
    first = list(statements(Rows(recorded(name))))
    assert {first[place].claim for place, seen in outcomes.items() if seen != {True, False}} == set()


@pytest.mark.parametrize("name", reproduction_names())
def test_a_verdict_is_that_of_its_statements(name: str) -> None:
    rows, statements = recorded(name), module_of(name).statements
    found = list(statements(Rows(rows)))
    assert found
    assert conclude(statements, rows) == " ".join(map(str, found))
    assert all(isinstance(statement.holds, bool) for statement in found)


@pytest.mark.parametrize("name", ["in-place-transpose", "hybrid-table1", "hybrid-table4"])
def test_recorded_rows_are_those_of_today(name: str) -> None:
    labels = [[row.quantity, row.unit, row.published] for row in module_of(name).reproduce().rows]
    assert labels == [[row.quantity, row.unit, row.published] for row in recorded(name)]


def test_a_statement_says_what_it_found() -> None:
    row = Reproduced("area", "mm2", 10.0, 11.5)
    assert str(stated("the area", [row], 0.2)) == "Reproduced: the area, within 20% (11.5 mm2, published 10)."
    assert str(stated("the area", [row], 0.1)) == "Not reproduced: the area, within 10% (11.5 mm2, published 10)."
    assert not stated("nothing", [], 0.1).holds
    assert str(Statement(False, "it is seen", "0", ("Seen", "Not seen"))) == "Not seen: it is seen (0)."


@pytest.mark.parametrize(
    ("published", "ours", "near"),
    [
        (10.0, 11.0, True),
        (10.0, 8.0, False),
        (10.0, None, False),
        (None, 1.0, False),
        (0.0, 0.0, True),
        (0.0, 1.0, False),
    ],
)
def test_a_missing_figure_is_not_near(published: float | None, ours: float | None, near: bool) -> None:
    assert is_near(Reproduced("figure", "", published, ours), 0.1 + 1e-9) == near


class MadeUp(Trial):
    """A trial whose designs reach the target after times that are drawn, not trained."""

    def __init__(self, designs: Sequence[Design], workload: str, on_event: object = None, seeds: int = 3) -> None:
        draw = random.Random(0)
        results = [arrivals(design.name, [draw.uniform(1, 3) for _ in range(seeds)]) for design in designs]
        self.comparison = Comparison(designs=tuple(results), pairs=compare_all(results))
        self._results = {result.name: result for result in results}


def rows_of(name: str) -> list[Reproduced]:
    """Rows of a reproduction, with its trainings made up or short where they are long."""
    module = module_of(name)
    if hasattr(module, "Trial"):
        module.Trial = MadeUp
    if name == "formats-at-equal-area":
        module.compare = lambda designs, workload, seeds, **rest: MadeUp(designs, workload, seeds=seeds).comparison
    if name == "co-design":
        module.VARY = {"machine": {"rows": [32, 64], "cols": [64, 128]}, "numerics": ["bf16"]}
        train = {"seeds": 6, "max_steps": 60, "target": 0.7}
        return list(module.reproduce(jobs=1, workload="digits-mlp", points=4, train=train).rows)
    return list(module.reproduce().rows)


if __name__ == "__main__":
    table = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in sys.argv[1:]:
        table[name] = [list(astuple(row)) for row in rows_of(name)]
    lines = (f"{json.dumps(name)}: [\n{rows}\n]" for name, rows in (
        (name, ",\n".join(map(json.dumps, table[name]))) for name in sorted(table)
    ))  # fmt: skip
    RECORDED.write_text("{" + ",\n".join(lines) + "}\n")
