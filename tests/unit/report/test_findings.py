"""The first finding of a training that missed its target stands wherever a report says `never`."""

import io
import json

import pytest
from msgspec.structs import replace
from rich.console import Console

from presilicon.records import Comparison, Finding
from presilicon.report import render_page, render_table, to_json
from presilicon.report.findings import first_finding, miss_reasons
from presilicon.report.table import rich_table


def finding(step: int, message: str, symptom: str = "saturation") -> Finding:
    return Finding(step=step, symptom=symptom, bug="conceptual", message=message)


LATE = finding(50, "late")
FIRST = finding(0, '17% of the activation of layer "fc" is held at the largest value')
HARMLESS = finding(0, "1 of 90 updates were skipped, all at the start", "loss-scale")


@pytest.fixture
def missing(mixed):
    """A comparison whose designs all have findings, most of them with seeds that missed the target."""
    designs = []
    for result in mixed.designs:
        seeds = tuple(replace(seed, findings=(LATE, FIRST) if seed.seed == 1 else (LATE,)) for seed in result.seeds)
        designs.append(replace(result, seeds=seeds))
    return Comparison(designs=tuple(designs))


def wide(comparison, width=300):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(rich_table(comparison, console))
    return console.file.getvalue()


VIEWS = {
    "plain": render_table,
    "terminal": wide,
    "narrow": lambda comparison: wide(comparison, 60),
    "page": render_page,
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_with_never_has_the_first_finding(missing, view):
    def words(text):
        return " ".join(text.replace("&quot;", '"').replace("\N{NO-BREAK SPACE}", " ").split())

    shown = words(VIEWS[view](missing))
    missed = [result for result in missing.designs if any(seed.steps_to_accuracy is None for seed in result.seeds)]
    assert len(missed) == 2
    for result in missed:
        if result.seeds[1].steps_to_accuracy is None:
            assert f"{result.name}, seed 1: first finding, at step 0: {FIRST.message}." in shown
        else:
            assert f"{result.name}, seed " in shown
    assert f"{missing.designs[0].name}, seed" not in shown


def test_the_document_has_the_findings_of_each_seed(missing):
    document = json.loads(to_json(missing))
    assert document["designs"][3]["seeds"][1]["findings"][1]["message"] == FIRST.message


def test_a_verdict_on_the_loss_scale_is_no_first_finding_beside_others():
    assert first_finding([HARMLESS, LATE]) == LATE
    assert first_finding([HARMLESS]) == HARMLESS
    assert first_finding([]) is None


def test_a_run_that_was_ended_has_its_reason(build):
    never = build["comparison"](1, ceiling=0.9)
    assert miss_reasons(never) == []
    seeds = tuple(replace(seed, reason="the loss is not finite") for seed in never.designs[0].seeds)
    ended = Comparison(designs=(replace(never.designs[0], seeds=seeds),))
    assert miss_reasons(ended) == ["fp32-systolic, seed 0: the loss is not finite."]
