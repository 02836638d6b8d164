import copy
from dataclasses import replace
from functools import partial
from importlib.resources import files

import pytest
import torch
from msgspec import structs
from torch import nn

import presilicon as ps
from presilicon.base import ConfigError, RunFailedError
from presilicon.designs import Change
from presilicon.emulation import TrainingRecord
from presilicon.records import SeedRestored
from presilicon.study.join.seeds import SeedTask
from presilicon.study.pool import LocalPool
from presilicon.study.runner import Runner

QUICK = replace(ps.load_workload("digits-mlp"), target=0.5, max_steps=60)


def test_randomness_in_the_forward_pass_is_seeded_too() -> None:
    # A model that can be sent to another process: a test's own functions cannot be imported there.
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))
    workload = replace(QUICK, model=partial(copy.deepcopy, model))
    design = ps.load_design("bf16-systolic")
    torch.manual_seed(1)
    first = ps.evaluate(design, workload, seeds=2)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    assert ps.evaluate(design, workload, seeds=2) == first
    assert torch.equal(torch.random.get_rng_state(), state)
    assert ps.evaluate(design, workload, seeds=2, jobs=2) == first


def test_names_stand_for_designs_and_workloads() -> None:
    found = ps.evaluate("bf16-systolic", replace(QUICK, target=0.2), seeds=1)
    assert found.name == "bf16-systolic"
    with pytest.raises(ConfigError, match="digits-mlp"):
        ps.evaluate("bf16-systolic", "digits-mlpp")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"batch_size": 5000}, "only 1079 examples"),
        ({"max_steps": 5}, "at least 30 steps"),
    ],
)
def test_workloads_that_cannot_arrive_are_refused(change: dict, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ps.evaluate("fp32-systolic", replace(QUICK, **change), seeds=1)


def test_two_designs_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match='two designs are called "fp32-systolic"'):
        ps.compare(["fp32-systolic", "fp32-systolic"], QUICK)


def test_a_workload_that_cannot_travel_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match="model cannot be sent to another process"):
        ps.evaluate("fp32-systolic", replace(QUICK, model=lambda: nn.Linear(64, 10)), seeds=2, jobs=2)


def test_devices_that_are_not_there() -> None:
    for device in ("cpu:1", "tpu", "cuda:x"):
        with pytest.raises(ConfigError, match="must be cpu, cuda or cuda:N"):
            ps.evaluate("fp32-systolic", QUICK, device=device)


def test_a_record_that_cannot_be_written_ends_the_work() -> None:
    numerics, endless = ps.load_design("fp32-systolic").numerics, replace(QUICK, target=1.0, max_steps=100_000)
    tasks = [SeedTask("a", TrainingRecord(endless, numerics, seed)) for seed in range(2)]

    def on_event(event: dict) -> None:
        raise OSError("no space left")

    with pytest.raises(RunFailedError, match="no space left"):
        Runner(LocalPool(2), on_event=on_event).train(tasks)


def test_area_and_its_parts_are_in_the_result(bare_table) -> None:
    found = ps.evaluate("bf16-systolic", replace(QUICK, target=0.2), seeds=1)
    parts = found.provenance["area"]["parts_mm2"]
    assert found.area_mm2 == pytest.approx(sum(parts.values()))
    assert "horowitz-45nm" in found.provenance["area"]["how"]
    assert found.provenance["energy"]["leakage"] == f"{0.012 * found.area_mm2:.3g} W all the time"
    bare = ps.evaluate(ps.load_design("bf16-systolic", [f"machine.technology={bare_table}"]), QUICK, seeds=1)
    assert bare.area_mm2 is None
    assert bare.provenance["area"] == "not known: technology bare has no areas"
    assert bare.provenance["energy"]["leakage"] == "not counted"


def test_the_hash_covers_what_a_table_holds_and_not_where_it_lies(tmp_path) -> None:
    table = (files("presilicon.designs") / "technologies" / "horowitz-45nm.toml").read_text()
    hashes = []
    for place, text in [("a", table), ("b", table), ("b", table.replace("pj = 1950", "pj = 1951"))]:
        path = tmp_path / place / "mine.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        design = ps.load_design("bf16-systolic", [f"machine.technology={path}"])
        found = ps.evaluate(design, replace(QUICK, target=0.2), seeds=1)
        assert found.provenance["technology"]["name"] == "horowitz-45nm"
        hashes.append(found.provenance["config_hash"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_result_says_which_numerics_were_never_in_force() -> None:
    changes = tuple(Change(layers="*", from_step=step, weight="e4m3") for step in (5, 60, 1000))
    design = ps.load_design("bf16-systolic")
    scheduled = structs.replace(design, numerics=structs.replace(design.numerics, schedule=changes))
    result = ps.evaluate(scheduled, replace(QUICK, target=1.0), seeds=1)
    assert result.remarks == tuple(
        f"the numerics from step {step} on were never in force: training ended after 60 steps" for step in (60, 1000)
    )


def test_checkpoints_go_where_they_are_asked_for_also_beside_a_recorded_run(tmp_path) -> None:
    workload = replace(QUICK, target=0.2, max_steps=30)
    folder, runs = tmp_path / "checkpoints", tmp_path / "runs"
    found = ps.evaluate("bf16-systolic", workload, seeds=2, checkpoints=folder, out=runs)
    assert len(list(folder.glob("*.safetensors"))) == 2
    assert not list(runs.rglob("*.safetensors"))
    restored: list[object] = []
    assert ps.evaluate("bf16-systolic", workload, seeds=2, checkpoints=folder, on_event=restored.append) == found
    assert sum(isinstance(event, SeedRestored) for event in restored) == 2


def test_a_workload_that_cannot_travel_is_trained_where_it_is() -> None:
    workload = replace(QUICK, target=0.2, max_steps=30, model=lambda: nn.Linear(64, 10))
    assert ps.evaluate("bf16-systolic", workload, seeds=1, jobs=1).seeds[0].steps == 30
