import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import Interval, Result, SeedResult, excludes_one
from presilicon.runs import create_run, load_run
from presilicon.study import configuration_changes, design_changes

WORKLOAD = {"name": "w", "model": "m", "data": "d", "target": 0.9, "sustain": 3, "max_steps": 100, "optimizer": "sgd"}


def record(root, *designs, workload=None, seeds=5, technology=None):
    config = {
        "designs": [design.to_plain() for design in designs],
        "technologies": [technology or {"name": "t"}] * len(designs),
        "workload": WORKLOAD | (workload or {}),
        "seeds": seeds,
    }
    run = create_run(root, "evaluate", config, seed=0)
    run.end("finished")
    return load_run(root, run.name)


def result(name, steps, factor=1.0):
    seeds = tuple(
        SeedResult(
            seed=seed,
            steps_to_accuracy=count,
            time_to_accuracy_s=None if count is None else count * factor,
            energy_to_accuracy_j=None if count is None else count * 2.0,
            value=0.9,
            steps=100,
            ending="target",
            curve=(),
        )
        for seed, count in steps.items()
    )
    unknown = Interval(None, None, None)
    return Result(
        name=name, workload="w", target=0.9, steps_to_accuracy=unknown, time_to_accuracy_s=unknown,
        energy_to_accuracy_j=unknown, reached="", value=0.9, time_per_step_s=factor, energy_per_step_j=2.0,
        memory_bytes=1.0, area_mm2=None, seeds=seeds, provenance={},
    )  # fmt: skip


@pytest.fixture
def systolic():
    return load_design("bf16-systolic")


def test_equal_runs_differ_in_nothing(tmp_path, systolic):
    assert configuration_changes(record(tmp_path, systolic), record(tmp_path, systolic)) == []


def test_changed_fields_are_listed_with_their_paths(tmp_path, systolic):
    wider = replace(load_design("bf16-systolic", ["machine.rows=64"]), description="other words")
    changes = configuration_changes(
        record(tmp_path, systolic),
        record(tmp_path, wider, workload={"target": 0.8}, seeds=9, technology={"name": "t", "x": 1}),
    )
    paths = [path for path, _, _ in changes]
    assert ("workload.target", 0.9, 0.8) in changes
    assert ("seeds", 5, 9) in changes
    assert ("design.machine.rows", systolic.to_plain()["machine"]["rows"], 64) in changes
    assert "design.technology_hash" in paths
    assert len(changes) == 4


def test_designs_are_matched_by_name_and_the_rest_is_named(tmp_path, systolic):
    fp8, fp32 = load_design("fp8-systolic"), load_design("fp32-systolic")
    changes = configuration_changes(record(tmp_path, systolic), record(tmp_path, fp32, systolic, fp8))
    assert changes == [("design[fp32-systolic]", None, "present"), ("design[fp8-systolic]", None, "present")]
    back = configuration_changes(record(tmp_path, systolic, fp8), record(tmp_path, fp32, systolic))
    assert ("design[fp8-systolic].name", "fp8-systolic", "fp32-systolic") in back


def test_versions_and_commit_count_as_configuration(tmp_path, systolic):
    first, second = record(tmp_path, systolic), record(tmp_path, systolic)
    older = replace(first.record, versions={**first.record.versions, "torch": "1.0"}, commit="abc", seed=7)
    changes = configuration_changes(replace(first, record=older), second)
    assert [path for path, _, _ in changes] == ["seed", "version.torch", "commit"]


def test_paired_seeds_separate_what_always_differs(tmp_path, systolic):
    one, other = record(tmp_path, systolic), record(tmp_path, systolic, workload={"optimizer": "adam"})
    steps = {seed: 40.0 + seed for seed in range(7)}
    slower = {seed: 2 * count for seed, count in steps.items() if seed != 3}
    (change,) = design_changes(one, [result("a", steps)], other, [result("a", slower, factor=0.5)])
    assert change.pair.seeds == 6, "the seeds that both have"
    assert change.steps_ratio.median == pytest.approx(2)
    assert excludes_one(change.steps_ratio)
    assert change.pair.time_ratio.median == pytest.approx(1)
    assert not change.pair.is_decided


def test_five_seeds_separate_nothing(tmp_path, systolic):
    run = record(tmp_path, systolic)
    steps = {seed: 40.0 + seed for seed in range(5)}
    changes = design_changes(run, [result("a", steps)], run, [result("b", dict.fromkeys(steps, 90.0))])
    assert not excludes_one(changes[0].steps_ratio)


@pytest.mark.parametrize("field", ["model", "data", "target", "sustain", "max_steps", "metric"])
def test_seeds_of_different_tasks_are_not_paired(tmp_path, systolic, field):
    one, other = record(tmp_path, systolic), record(tmp_path, systolic, workload={field: 7})
    (change,) = design_changes(one, [result("a", {0: 1.0})], other, [result("a", {0: 1.0})])
    assert (change.pair, change.unpaired) == (None, f"different workload.{field}")


def test_without_shared_seeds_nothing_is_paired(tmp_path, systolic):
    run = record(tmp_path, systolic)
    (change,) = design_changes(run, [result("a", {0: 1.0})], run, [result("a", {1: 1.0})])
    assert (change.pair, change.steps_ratio, change.unpaired) == (None, None, "no seed in common")


@pytest.mark.parametrize("config", [{}, {"designs": 5}, {"designs": ["a"], "technologies": [1]}, {"workload": 3}])
def test_odd_configurations_are_compared_as_far_as_possible(tmp_path, systolic, config):
    run = create_run(tmp_path, "evaluate", config, seed=0)
    run.end("finished")
    assert configuration_changes(load_run(tmp_path, run.name), record(tmp_path, systolic))


def test_an_unreadable_run_is_refused(tmp_path, systolic):
    run = record(tmp_path, systolic)
    (run.path / "run.json").write_text("{")
    with pytest.raises(ConfigError, match=r"cannot be compared: run\.json"):
        configuration_changes(load_run(tmp_path, run.name), run)
