"""Searches with Optuna's samplers."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import presilicon as ps
from presilicon.base import ConfigError, MissingToolError
from presilicon.study.search import optimizing
from presilicon.study.search.file import read_study
from presilicon.study.search.table import read_points

optuna = pytest.importorskip("optuna")

STUDY = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {
        "machine": {"rows": {"from": 4, "to": 64}, "cols": [4, 8, 16, 32, 64], "prefetch": [True, False]},
        "numerics": ["bf16", "fp8-hybrid"],
    },
    "subject_to": "area_mm2 <= 12",
    "search": {"sampler": "nsga2", "points": 30},
}


def with_search(**search):
    return {**STUDY, "search": {**STUDY["search"], **search}}


@pytest.mark.parametrize("sampler", ["nsga2", "tpe"])
def test_a_sampler_finds_different_points_within_the_limits(tmp_path, sampler):
    result = ps.sweep(with_search(sampler=sampler, points=24), out=tmp_path, jobs=1)
    assert [record.number for record in result.records] == list(range(1, 25))
    assert len({record.key for record in result.records}) == 24
    assert result.front <= result.feasible
    assert all(4 <= record.values["machine.rows"] <= 64 for record in result.records)


def test_a_search_comes_closer_to_the_front_than_a_random_draw(tmp_path):
    found = ps.sweep(with_search(points=56), out=tmp_path, jobs=1)
    drawn = ps.sweep(with_search(sampler="random", points=56), out=tmp_path, jobs=1)
    assert len(found.feasible) > len(drawn.feasible)  # it learns the limit
    assert min(record.metric("time_per_step_s") for record in found.front_records()) <= min(
        record.metric("time_per_step_s") for record in drawn.front_records()
    )


class StopError(Exception):
    pass


def test_a_search_that_was_interrupted_continues_in_its_storage(tmp_path):
    def stop(progress):
        if progress.done >= 16:
            raise StopError

    study = with_search()
    with pytest.raises(StopError):
        ps.sweep(study, out=tmp_path, jobs=1, on_progress=stop)
    result = ps.sweep(study, out=tmp_path, jobs=1)
    records = read_points(result.path)
    assert len({record.key for record in records}) == len(records) == 30
    backend = optuna.storages.journal.JournalFileBackend(str(result.path / "optuna.journal"))
    storage = optuna.storages.JournalStorage(backend)
    trials = optuna.load_study(study_name=f"study {result.path.name}", storage=storage).get_trials()
    assert {trial.user_attrs["point"] for trial in trials} == set(range(1, 31))
    assert all(trial.state.is_finished() for trial in trials)


def test_a_search_keeps_its_history_in_a_database_if_it_is_told_to(tmp_path):
    storage = f"sqlite:///{tmp_path}/search.db"
    study = with_search(points=3, storage=storage) | {"subject_to": "area_mm2 <= 60"}
    result = ps.sweep(study, out=tmp_path, jobs=1)
    trials = optuna.load_study(study_name=f"study {result.path.name}", storage=storage).get_trials()
    assert len(trials) >= 3
    assert all(trial.constraints for trial in trials)


def test_a_storage_that_cannot_be_opened_is_refused_first(tmp_path):
    with pytest.raises(ConfigError, match=r"search.storage .* cannot be opened"):
        ps.sweep(with_search(storage="sqlite:////no/such/folder/a.db"), out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingToolError, match=r"presilicon\[search\]"):
        ps.sweep(STUDY, out=tmp_path)


def test_the_lock_of_a_search_that_was_killed_does_not_stop_the_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = Path("runs")  # relative, as by default: the link that Optuna makes of it leads nowhere
    directory.mkdir()
    stale = directory / "optuna.journal.lock"
    stale.symlink_to(directory / "optuna.journal")
    study = SimpleNamespace(search=SimpleNamespace(storage=None))
    storage = optimizing._storage(optuna, study, directory)
    assert not stale.is_symlink()
    optuna.create_study(storage=storage)
    assert (directory / "optuna.journal").is_file()


@pytest.mark.parametrize(("workload", "direction"), [("digits-mlp", "MAXIMIZE"), ("diabetes-mlp", "MINIMIZE")])
def test_a_sampler_searches_in_the_direction_of_the_workload_s_metric(workload, direction, tmp_path):
    study = {
        "designs": "edge-bf16", "workloads": workload, "vary": {"machine.rows": [8, 16, 32]},
        "objectives": ["accuracy", "reached", "time_s"], "train": {"seeds": 1, "max_steps": 60, "evaluate_every": 10},
        "search": {"sampler": "tpe", "points": 2},
    }  # fmt: skip
    optimizer = optimizing.Optimizer(read_study(study), tmp_path)
    assert [way.name for way in optimizer._trials.directions] == [direction, "MAXIMIZE", "MINIMIZE"]


def test_workloads_whose_metrics_disagree_are_refused(tmp_path):
    study = {
        "designs": "edge-bf16", "workloads": ["digits-mlp", "diabetes-mlp"], "vary": {"machine.rows": [8, 16]},
        "objectives": ["accuracy", "time_s"], "train": {"seeds": 1}, "search": {"sampler": "tpe", "points": 2},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="better in different directions"):
        optimizing.Optimizer(read_study(study), tmp_path)
