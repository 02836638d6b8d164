"""Tuning: configurations that kill or hang the compiler are survived and recorded, the fastest are kept."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from presilicon.base import ConfigError
from presilicon.scheduling import TUNED_OPS
from presilicon.scheduling.runtime.opencl.boards import BoardInfo
from presilicon.scheduling.runtime.opencl.ranking import rank
from presilicon.scheduling.runtime.opencl.tuning import (
    SIZES,
    Config,
    Worker,
    attempt,
    load_tuned,
    save_tuned,
    shipped,
    size_of_work,
    space,
    stored_path,
    tune,
)

INFO = BoardInfo("opencl:0.0", "a board", "a platform", "1", 2, 2000, 1 << 30)
FAKE = """
import json, os, sys, time
print(json.dumps({"ready": sys.argv[1]}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    config = request["config"]
    if config["units"] == 3:
        time.sleep(1000)
    if config["simd"] == 2:
        os.abort()
    if config["simd"] == 1:
        print(json.dumps({"refused": "differs from torch"}), flush=True)
        continue
    work = 1
    for side in request["shapes"][0]:
        work *= side
    print(json.dumps({"times_s": [work / config["simd"] / config["group"] for _ in request["shapes"]]}), flush=True)
"""


def config(**changes: Any) -> Config:
    return Config(**{"units": 1, "simd": 4, "group": 1, "unroll": 1, "rows": 1, "columns": 1} | changes)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    script = tmp_path / "fake_compiler.py"
    script.write_text(FAKE)
    return Worker("opencl:0.0", [sys.executable, str(script)])


def test_hanging_and_dying_compilers_are_survived(worker: Worker) -> None:
    (hung,) = attempt(worker, "MatMul", [config(units=3)], [(2, 3, 4)], timeout_s=0.5)
    died, wrong, good = attempt(worker, "MatMul", [config(simd=simd) for simd in (2, 1, 4)], [(2, 3, 4)])
    worker.close()
    assert "no answer within 0.5 s" in hung.refused
    assert died.refused == "the process died with signal 6"
    assert wrong.refused == "differs from torch"
    assert good.times_s == {"2x3x4": 6.0}
    assert not good.refused


def test_a_worker_that_cannot_start_is_told() -> None:
    worker = Worker("opencl:0.0", [sys.executable, "-c", "raise SystemExit(3)"])
    (trial,) = attempt(worker, "MatMul", [config()], [(1, 1, 1)])
    assert "does not start" in trial.refused


def test_the_fastest_of_each_size_is_kept(worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    chosen = [config(simd=4), config(simd=8), config(simd=8, group=2), config(simd=2)]
    monkeypatch.setattr("presilicon.scheduling.runtime.opencl.tuning.space", lambda count, seed: chosen[:count])
    tuned, trials = tune(INFO, ("MatMul",), configs=4, worker=worker)
    kept = tuned.kernels["MatMul"]
    known = [*shipped().kernels["MatMul"].values(), *chosen]
    fastest = max((one for one in known if one.simd > 2), key=lambda one: one.simd * one.group)
    assert {kept[size].simd * kept[size].group for size in SIZES} == {fastest.simd * fastest.group}
    assert tuned.kernels["Conv2D"] == shipped().kernels["Conv2D"], "what was not tuned stays"
    assert any(trial.refused for trial in trials)
    save_tuned(tuned, stored_path(INFO))
    assert load_tuned(INFO) == tuned


def test_nothing_works(worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    broken = Worker("opencl:0.0", [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(ConfigError, match="no configuration of MatMul works"):
        tune(INFO, ("MatMul",), configs=1, worker=broken)
    with pytest.raises(ConfigError, match="Conv3D"):
        tune(INFO, ("Conv3D",), worker=worker)


def test_a_damaged_table_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    path = stored_path(INFO)
    path.parent.mkdir()
    path.write_text(json.dumps({"device": 3}))
    with pytest.raises(ConfigError, match="tune again"):
        load_tuned(INFO)


def test_the_shipped_table_has_three_kernels_per_op(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    assert load_tuned(INFO) == shipped()
    assert set(shipped().kernels) == set(TUNED_OPS)
    assert all(set(sizes) == set(SIZES) for sizes in shipped().kernels.values())
    assert [size_of_work(work) for work in (1, (1 << 24) - 1, 1 << 24, 1 << 31)] == [
        "small",
        "small",
        "medium",
        "large",
    ]


def test_the_space_has_different_configurations_of_a_seed() -> None:
    configs = space(100, seed=3)
    assert len(set(configs)) == 100
    assert configs == space(100, seed=3) != space(100, seed=4)
    assert not any(one.direct and one.staged for one in configs)


def test_the_ranking_follows_the_indicator_when_the_times_do(worker: Worker) -> None:
    """The fake times fall with the work group, as the indicator says, and with the SIMD width, which it ignores."""
    ranking = rank(INFO, (8, 8, 8), 24, worker=worker, seed=1)
    accepted = [trial for trial in ranking.trials if not trial.refused]
    assert {trial.config.simd for trial in accepted} == {4, 8, 16}
    assert 0.7 < ranking.spearman < 1
    assert ranking.by_parameter["group"] == pytest.approx(-ranking.spearman)
    assert ranking.best.group == max(trial.config.group for trial in accepted)
    assert ranking.fmax_mhz == 2000
    with pytest.raises(ConfigError, match="MxKxN"):
        rank(INFO, (8, 8), 60, worker=worker)
