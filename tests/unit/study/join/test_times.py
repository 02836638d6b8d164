"""Evaluations that rest on another's times."""

from dataclasses import replace

import pytest
from msgspec import structs

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Change
from presilicon.records import ForeignTime, ForeignTimes

QUICK = replace(ps.load_workload("digits-mlp"), target=0.2, max_steps=30)
STEP = ForeignTimes(
    source="elsewhere",
    kind="presilicon",
    matching="step",
    entries=(ForeignTime(names=("step",), time_s=0.5, energy_j=7.0),),
)


def test_time_to_accuracy_is_that_of_the_given_steps(tmp_path) -> None:
    ours = ps.evaluate("bf16-systolic", QUICK, seeds=1)
    theirs = ps.evaluate("bf16-systolic", QUICK, seeds=1, times=STEP)
    steps = theirs.seeds[0].steps_to_accuracy
    assert steps == ours.seeds[0].steps_to_accuracy
    assert theirs.seeds[0].time_to_accuracy_s == pytest.approx(0.5 * steps)
    assert theirs.seeds[0].energy_to_accuracy_j == pytest.approx(7 * steps)
    assert theirs.time_per_step_s == pytest.approx(0.5)
    assert (ours.provenance["times"], theirs.provenance["times"]["source"]) == ("simulated", "elsewhere")
    assert theirs.provenance["config_hash"] != ours.provenance["config_hash"]
    path = tmp_path / "step.csv"
    path.write_text("op,time_s,energy_j\nstep,0.5,7\n")
    read = ps.evaluate("bf16-systolic", QUICK, seeds=1, times=path)
    assert read.time_to_accuracy_s == theirs.time_to_accuracy_s
    assert read.provenance["config_hash"] == theirs.provenance["config_hash"]


def test_times_of_one_of_several_designs() -> None:
    designs = ["bf16-systolic", "fp8-systolic"]
    found = ps.compare(designs, QUICK, seeds=1, times={"fp8-systolic": STEP})
    assert found.designs[0].time_per_step_s < 1e-3
    assert found.designs[1].time_per_step_s == pytest.approx(0.5)
    with pytest.raises(ConfigError, match="name it, as in"):
        ps.compare(designs, QUICK, seeds=1, times=STEP)
    with pytest.raises(ConfigError, match='did you mean "fp8-systolic"'):
        ps.compare(designs, QUICK, seeds=1, times={"fp8-systolc": STEP})


def test_a_broken_file_is_found_before_training(tmp_path) -> None:
    events = []
    (tmp_path / "times.csv").write_text("op,time_s\nnone,1\n")
    with pytest.raises(ConfigError, match=r"times\.csv line 2"):
        ps.evaluate("bf16-systolic", QUICK, seeds=1, times=tmp_path / "times.csv", on_event=events.append)
    assert events == []


def test_times_of_one_step_are_no_times_of_numerics_that_change() -> None:
    design = ps.load_design("bf16-systolic")
    change = Change(layers="*", from_step=5, weight="e4m3")
    changing = structs.replace(design, numerics=structs.replace(design.numerics, schedule=(change,)))
    with pytest.raises(ConfigError, match="numerics that change over time, but --times has times of one step only"):
        ps.evaluate(changing, QUICK, seeds=1, times=STEP)


def test_a_result_says_that_the_memory_does_not_hold_the_step() -> None:
    small = ps.evaluate(ps.load_design("h200", ["machine.memory_gib=0.0001"]), QUICK, seeds=1)
    assert [remark for remark in small.remarks if "does not fit" in remark]
    assert not [remark for remark in ps.evaluate("h200", QUICK, seeds=1).remarks if "does not fit" in remark]
