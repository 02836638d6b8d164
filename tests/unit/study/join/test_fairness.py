"""The tutorial's cheats, each tried, and each refused."""

from dataclasses import replace

import msgspec
import pytest

import presilicon as ps
from presilicon.base import ConfigError, RunFailedError
from presilicon.records import Comparison
from presilicon.report import render_page, render_table
from presilicon.study import check_strict, fairness
from presilicon.study.join.fairness import check_start, strict_problems

OWN = ps.load_workload("digits-mlp")
QUICK = replace(OWN, name="quick", target=0.5, max_steps=60)


@pytest.mark.parametrize(
    ("changes", "seeds", "seed", "word"),
    [
        ({}, 3, 0, r"best of n: 3 seeds, at least 5 are wanted"),
        ({}, 5, 7, r"seeds picked by hand: 7 to 11; strict ones are 0, 1, 2"),
        ({"evaluate_every": 1}, 5, 0, r"finer evaluation: every 1 steps in place of the workload's 10"),
        ({"sustain": 1}, 5, 0, r"a shorter hold: 1 evaluations in place of the workload's 3"),
        ({"target": 0.99}, 5, 0, r"a chosen threshold: target 0\.99 in place of the workload's 0\.97"),
        ({"max_steps": 100}, 5, 0, r"a threshold out of reach: 100 steps in place of the workload's 1500"),
        ({"stop_hopeless": True}, 5, 0, r"runs given up early: stop_hopeless ends a run before its budget is spent"),
    ],
)
def test_a_cheat_is_refused_before_anything_is_trained(changes: dict, seeds: int, seed: int, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"this is not a strict comparison:\n  - {word}"):
        ps.compare(["fp32-systolic"], replace(OWN, **changes), seeds=seeds, seed=seed, strict=True)


def _same_split(first: str, second: str) -> ps.Splits:
    splits = OWN.data()
    return replace(splits, **{first: getattr(splits, second)})


@pytest.mark.parametrize(
    ("splits", "word"),
    [
        (("validation", "test"), "the test split decides: 359 of 359 validation examples are test examples"),
        (("validation", "train"), "trained on what decides: 1079 of 1079 validation examples are training examples"),
        (("test", "train"), "trained on the test: 1079 of 1079 test examples are training examples"),
    ],
)
def test_splits_that_share_examples_are_refused(splits: tuple[str, str], word: str) -> None:
    mixed = replace(OWN, data=lambda: _same_split(*splits))
    with pytest.raises(ConfigError, match=word):
        check_start(mixed, mixed, seeds=5, seed=0)


@pytest.mark.parametrize("name", ["digits-cnn", "fashion-mlp", "shakespeare-gpt"])
def test_the_workloads_of_the_package_keep_the_rules(name: str) -> None:
    workload = ps.load_workload(name)
    check_start(workload, workload, seeds=5, seed=0)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        check_start(replace(OWN, target=0.5, evaluate_every=1), OWN, seeds=1, seed=3)
    assert str(refused.value).count("\n  - ") == 4


@pytest.fixture(scope="module")
def strict() -> Comparison:
    return ps.compare(["fp32-systolic", "fp8-systolic"], QUICK, seeds=5, strict=True)


def test_a_strict_comparison_says_what_was_held_equal(strict: Comparison) -> None:
    assert strict.fairness is not None
    assert strict.fairness.strict
    assert strict.fairness.differing == ()
    assert {"batch size 32", "an evaluation every 320 samples", "optimizer with its hyperparameters"} <= set(
        strict.fairness.held_equal
    )
    assert "seeds 0 to 4 (the same initial weights and batches)" in strict.fairness.held_equal
    [pair] = strict.pairs
    assert (pair.first, pair.second, pair.seeds) == ("fp32-systolic", "fp8-systolic", 5)
    assert pair.wins + pair.losses + pair.ties == 5


def test_seeds_that_arrive_need_no_restart(strict: Comparison) -> None:
    result = strict.designs[0]
    assert result.reached == "5/5"
    assert result.reach_probability is not None
    assert (result.reach_probability.value, result.reach_probability.high) == (1.0, 1.0)
    times = [seed.time_to_accuracy_s or 0 for seed in result.seeds]
    assert result.expected_time_to_accuracy_s == pytest.approx(sum(times) / 5)


def test_a_miss_costs_its_budget() -> None:
    result = ps.evaluate("fp32-systolic", replace(OWN, target=0.9, max_steps=90), seeds=5)
    arrived = [seed for seed in result.seeds if seed.time_to_accuracy_s is not None]
    missed = [seed for seed in result.seeds if seed.time_to_accuracy_s is None]
    assert arrived
    assert missed
    budget_s = 90 * result.time_per_step_s
    assert all(seed.time_s == pytest.approx(budget_s) for seed in missed)
    mean_s = sum(seed.time_to_accuracy_s or 0 for seed in arrived) / len(arrived)
    assert result.expected_time_to_accuracy_s == pytest.approx(len(missed) / len(arrived) * budget_s + mean_s)


def test_a_design_that_never_arrives_is_no_strict_comparison() -> None:
    with pytest.raises(RunFailedError, match=r"a threshold out of reach: no seed of fp32-systolic held 0\.999"):
        ps.compare(["fp32-systolic"], replace(QUICK, target=0.999, max_steps=30), seeds=5, strict=True)


def _changed(result: ps.Result, **settings: object) -> ps.Result:
    provenance = result.provenance | {"workload": result.provenance["workload"] | settings}
    return msgspec.structs.replace(result, provenance=provenance)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (
            {"optimizer": "sgd(learning_rate=0.3)"},
            r"hyperparameters chosen for each design: optimizer: fp32",
        ),
        (
            {"batch_size": 512},
            r"for each design: batch_size: fp32-systolic 32, fp8-systolic 512",
        ),
        ({"evaluate_every": 1}, r"finer evaluation of one design: evaluate_every: fp32-systolic 10, fp8-systolic 1"),
        ({"target": 0.4}, r"another threshold for one design: target: fp32-systolic 0\.5, fp8-systolic 0\.4"),
    ],
)
def test_designs_treated_differently_are_refused(strict: Comparison, settings: dict, word: str) -> None:
    unfair = [strict.designs[0], _changed(strict.designs[1], **settings)]
    with pytest.raises(RunFailedError, match=word):
        check_strict(unfair)
    assert len(fairness(unfair).differing) == 1


def test_a_seed_left_out_is_refused(strict: Comparison) -> None:
    best = msgspec.structs.replace(strict.designs[0], seeds=strict.designs[0].seeds[2:])
    problems = strict_problems([best])
    assert [problem.partition(":")[0] for problem in problems] == [
        "best of n",
        "seeds picked by hand of fp32-systolic",
    ]


def test_designs_that_train_differently_do_not_claim_the_same_batches() -> None:
    workload = replace(OWN, target=0.2, max_steps=80, sustain=1)
    grown = ps.load_design("bf16-systolic", methods=["batch-growth.window=2", "batch-growth.improvement=0.9"])
    other = msgspec.structs.replace(grown, name="grown")
    held = ps.compare([ps.load_design("bf16-systolic"), other], workload, seeds=1).fairness.held_equal
    assert "seeds 0 (the same initial weights)" in held
    assert "batch size 32 of the workload" in held
    assert "a budget of 2560 samples" in held
    assert not any("batch-growth" in words for words in held)
    both = [grown, msgspec.structs.replace(grown, name="other")]
    assert "training with batch-growth" in ps.compare(both, workload, seeds=1).fairness.held_equal


def test_hardware_that_differs_is_named_beside_what_was_held_equal(strict: Comparison) -> None:
    two = strict.designs[1]
    area = two.area_mm2 or 0.0

    def beside(**changes) -> tuple[str, ...]:
        machine = two.provenance["design"]["machine"] | changes.pop("machine", {})
        provenance = two.provenance | {"design": two.provenance["design"] | {"machine": machine}}
        other = msgspec.structs.replace(two, name="other", provenance=provenance, **changes)
        return fairness([two, other]).unequal_hardware

    assert beside() == ()
    assert beside(area_mm2=1.004 * area) == ()
    assert [words.partition(":")[0] for words in beside(area_mm2=1.02 * area)] == ["area"]
    assert [words.partition(":")[0] for words in beside(area_mm2=None)] == ["area"]
    assert beside(machine={"dram_gb_s": 50.0}) == ("bandwidth: fp8-systolic 100 GB/s, other 50 GB/s",)
    assert beside(machine={"sram_kib": 64}) == ("memory: fp8-systolic the default, other 64 KiB",)
    assert strict.fairness is not None
    assert [words.partition(":")[0] for words in strict.fairness.unequal_hardware] == ["area"]
    for text in (render_table(strict), render_page(strict)):
        assert "Unequal hardware: area: fp32-systolic" in text
        assert "Area: units, registers and SRAM of technology horowitz-45nm;" in text


def test_every_field_of_a_workload_is_compared_or_named_as_irrelevant():
    from dataclasses import fields

    from presilicon.study.join.fairness import _EQUAL, IRRELEVANT
    from presilicon.workloads import Workload

    known = {field.name for field in fields(Workload)}
    assert known - set(_EQUAL) - IRRELEVANT == set()
    assert known >= IRRELEVANT


@pytest.mark.parametrize("clips", [(1.0, 0.1), (None, 0.1)])
def test_another_clipping_is_named(clips) -> None:
    results = [ps.evaluate("fp32-systolic", replace(QUICK, clip_norm=clip), seeds=1) for clip in clips]
    assert any(words.startswith("clip_norm: ") for words in fairness(results).differing)
