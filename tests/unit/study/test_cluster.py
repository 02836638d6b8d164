"""Studies on the workers of a real Dask cluster."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

import presilicon as ps
from presilicon.base import ConfigError, MissingToolError
from presilicon.runs import list_runs
from presilicon.study import cluster as clusters
from presilicon.study.search.table import read_points

distributed = pytest.importorskip("distributed")

STUDY = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {"machine": {"rows": [8, 16]}, "numerics": ["bf16", "fp32"]},
    "train": {"seeds": 3, "max_steps": 60, "target": 0.99, "checkpoint_every": 1},
}


class Cluster:
    """A scheduler and two workers, each a process of its own."""

    def __init__(self, folder):
        self.folder = folder
        address = folder / "scheduler.json"
        self.processes = [
            self._start("distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file", str(address))
        ]
        deadline = time.monotonic() + 60
        while not address.exists() or not address.read_text().strip():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        self.address = json.loads(address.read_text())["address"]

    def _start(self, module, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--no-dashboard"], cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def add_worker(self):
        worker = self._start("distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny")
        self.processes.append(worker)
        return worker

    def wait_for_workers(self, count):
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    opened = Cluster(tmp_path)
    yield opened
    opened.close()


@pytest.mark.slow
def test_with_a_worker_killed_in_the_middle_every_run_is_there_exactly_once(cluster, tmp_path):
    workers = [cluster.add_worker(), cluster.add_worker()]
    cluster.wait_for_workers(2)
    killed, stages = [], []

    def kill_one(progress):
        stages.append(progress)
        if progress.stage == "train" and progress.done == 2 and not killed:
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    result = ps.sweep(STUDY, out=tmp_path / "runs", on=cluster.address, on_progress=kill_one)
    assert killed
    assert workers[0].wait() == -signal.SIGKILL
    assert len(result.records) == 4
    assert not any(record.error for record in result.records)
    counts = Counter((record.key, record.stage) for record in read_points(result.path))
    assert set(counts.values()) == {1}
    assert [run.name for run in list_runs(result.path / "points")] == ["00001", "00002", "00003", "00004"]
    trainings = [progress for progress in stages if progress.stage == "train"]
    assert (trainings[-1].done, trainings[-1].total, trainings[-1].failed) == (6, 6, 0)
    alone = ps.sweep(STUDY, out=tmp_path / "alone", jobs=1)
    assert result.rows() == alone.rows()


def test_a_dead_scheduler_is_said_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"--on localhost: write the address of a Dask scheduler as tcp://HOST:PORT"):
        ps.sweep(STUDY, out=tmp_path / "runs", on="localhost")
    with pytest.raises(ConfigError, match=r"--on tcp://127.0.0.1:9: no Dask scheduler answers there"):
        ps.sweep(STUDY, out=tmp_path / "runs", on="tcp://127.0.0.1:9")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_workers_are_checked_before_the_first_run(cluster, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="the scheduler has no workers"):
        ps.sweep(STUDY, out=tmp_path / "runs", on=cluster.address)
    cluster.add_worker()
    cluster.wait_for_workers(1)
    monkeypatch.setattr("presilicon.study.cluster.versions", lambda: {"presilicon": "9.9"})
    with pytest.raises(ConfigError, match=r"worker tcp://.* has presilicon .*, here 9.9; install the same versions"):
        ps.sweep(STUDY, out=tmp_path / "runs", on=cluster.address)
    assert not (tmp_path / "runs").exists()


def test_without_dask_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingToolError, match=r"presilicon\[search\]"):
        ps.sweep(STUDY, out=tmp_path, on="tcp://127.0.0.1:9")


def test_a_scheduler_that_loses_all_workers_is_said_once(monkeypatch):
    pool, ended = object.__new__(clusters.DaskPool), threading.Event()
    seen = [{"one": 1}, {}, {}, {"two": 1}]

    def next_look():
        if len(seen) == 1:
            ended.set()
        return seen.pop(0)

    pool._client = SimpleNamespace(nthreads=next_look)
    monkeypatch.setattr(clusters, "LOOK_S", 0.001)
    with pytest.warns(clusters.NoWorkersWarning, match="has no workers any more") as caught:
        pool._watch(ended)
    assert len(caught) == 1
