"""`seeds="auto"`: seeds are added until the ranking is decided."""

from dataclasses import replace

import pytest

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import vary_designs
from presilicon.records import EvaluationEvent, Event, SeedRestored, SeedsAdded
from presilicon.study import EvaluationPlan
from presilicon.study.join.looks import seed_looks

QUICK = replace(ps.load_workload("digits-mlp"), target=0.5, max_steps=60)
DESIGNS = ["fp32-systolic", "fp8-systolic"]


class StopError(Exception):
    pass


def test_the_last_look_is_at_the_limit() -> None:
    assert seed_looks("auto") == (5, 10, 15, 20, 25, 30, 35, 40)
    assert seed_looks("auto", 5) == (5,)
    assert seed_looks("auto", 12) == (5, 10, 12)


def test_designs_that_only_differ_in_price_are_decided_by_the_first_seeds() -> None:
    events: list[Event] = []
    designs = vary_designs("bf16-systolic", (), ("machine.rows=32,64",))
    comparison = ps.compare(designs, QUICK, seeds="auto", on_event=events.append)
    assert [len(result.seeds) for result in comparison.designs] == [5, 5]
    [pair] = comparison.pairs
    assert pair.same_training
    assert pair.is_decided
    assert not [event for event in events if isinstance(event, SeedsAdded)]
    assert "8 looks" in comparison.designs[0].provenance["seeds_added"]


def test_seeds_are_added_while_the_ranking_is_open_and_an_interruption_changes_nothing(tmp_path) -> None:
    events: list[Event] = []
    whole = ps.compare(DESIGNS, QUICK, seeds="auto", max_seeds=7, on_event=events.append)
    assert [event.seeds for event in events if isinstance(event, SeedsAdded)] == [7]
    assert [event.undecided for event in events if isinstance(event, SeedsAdded)] == [(tuple(DESIGNS),)]
    assert [[seed.seed for seed in result.seeds] for result in whole.designs] == [list(range(7))] * 2
    assert whole.pairs[0].confidence == 0.975
    fixed = ps.compare(DESIGNS, QUICK, seeds=7)
    assert [result.seeds for result in whole.designs] == [result.seeds for result in fixed.designs]

    def stop(event: Event) -> None:
        if isinstance(event, EvaluationEvent) and event.seed == 6:
            raise StopError

    with pytest.raises(StopError):
        ps.compare(DESIGNS, QUICK, seeds="auto", max_seeds=7, checkpoints=tmp_path, on_event=stop)
    again: list[Event] = []
    assert ps.compare(DESIGNS, QUICK, seeds="auto", max_seeds=7, checkpoints=tmp_path, on_event=again.append) == whole
    assert len([event for event in again if isinstance(event, SeedRestored)]) == 11


def test_the_configuration_does_not_depend_on_how_many_seeds_it_took() -> None:
    designs = tuple(map(ps.load_design, DESIGNS))
    config = EvaluationPlan(designs=designs, workload=QUICK, seeds="auto").config()
    assert (config["seeds"], config["max_seeds"]) == ("auto", 40)
    assert "max_seeds" not in EvaluationPlan(designs=designs, workload=QUICK, seeds=5).config()


@pytest.mark.parametrize(
    ("designs", "options", "word"),
    [
        (["fp32-systolic"], {"seeds": "auto"}, "give --seeds auto at least two"),
        (
            DESIGNS,
            {"seeds": "auto", "max_seeds": 4},
            "max_seeds must be at least 5, with which --seeds auto begins, not 4",
        ),
        (DESIGNS, {"seeds": "many"}, "seeds must be at least 1 or \"auto\", not 'many'"),
        (DESIGNS, {"seeds": 0}, 'seeds must be at least 1 or "auto", not 0'),
    ],
)
def test_seeds_that_make_no_sense_are_refused(designs: list[str], options: dict, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ps.compare(designs, QUICK, **options)
