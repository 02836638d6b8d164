import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from presilicon.base import ConfigError, RunFailedError
from presilicon.records import DesignEvent, EvaluationEvent
from presilicon.runs import RunRecord, create_run, load_run
from presilicon.runs import run as run_module

SOURCE = Path(run_module.__file__).parents[2]


def read(run):
    return json.loads((run.path / "run.json").read_text())


def test_a_run_records_where_it_comes_from(tmp_path):
    run = create_run(tmp_path / "deep" / "runs", "evaluate", {"design": "bf16-systolic", "sizes": (1, 2)}, seed=3)
    record = read(run)
    assert record["schema"] == 2
    assert record["kind"] == "evaluate"
    assert record["config"] == {"design": "bf16-systolic", "sizes": [1, 2]}
    assert len(record["config_hash"]) == 64
    assert record["seed"] == 3
    assert set(record["versions"]) == {"presilicon", "python", "torch", "numba", "numpy"}
    assert record["pid"] == os.getpid()
    assert (record["status"], record["ended"], record["error"]) == ("running", None, None)
    assert record["created"].endswith("Z")
    assert str(tmp_path) not in (run.path / "run.json").read_text()


def test_runs_of_the_same_second_do_not_meet(tmp_path, monkeypatch):
    class Stopped(run_module.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 15, 7, 45, 12, tzinfo=tz)

    monkeypatch.setattr(run_module, "datetime", Stopped)
    names = [create_run(tmp_path, "evaluate", {}, seed=0).name for _ in range(3)]
    stem = "2026-11-15T07-45-12-evaluate"
    assert names == [stem, f"{stem}-2", f"{stem}-3"]


def test_a_block_that_ends_well_is_finished(tmp_path):
    with create_run(tmp_path, "evaluate", {}, seed=0) as run:
        run.record(EvaluationEvent(design="a", seed=0, step=10, samples=320, updates=10, value=0.5, loss=float("nan")))
        report = run.write_file("report.html", "<p>")
    record = read(run)
    assert record["status"] == "finished"
    assert record["ended"] >= record["created"]
    assert report.read_text() == "<p>"
    event = json.loads((run.path / "events.jsonl").read_text())
    assert event.pop("time").endswith("Z")
    counts = {"step": 10, "samples": 320, "updates": 10}
    assert event == {"event": "evaluation", "design": "a", "seed": 0, **counts, "value": 0.5, "loss": None}


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), "interrupted", None),
        (SystemExit(130), "interrupted", None),
        (SystemExit(0), "finished", None),
        (SystemExit(2), "failed", "SystemExit: 2"),
        (ValueError("no such thing"), "failed", "ValueError: no such thing"),
        (RunFailedError("the loss is not a number"), "failed", "the loss is not a number"),
        (ValueError(), "failed", "ValueError"),
        (FileNotFoundError(f"{Path.cwd()}/data.npz"), "failed", "FileNotFoundError: ./data.npz"),
    ],
)
def test_a_block_that_ends_badly_says_how_and_keeps_its_events(tmp_path, error, status, message):
    with pytest.raises(type(error)), create_run(tmp_path, "evaluate", {}, seed=0) as run:  # noqa: PT012
        run.record(DesignEvent(design="a", config={}))
        raise error
    assert (read(run)["status"], read(run)["error"]) == (status, message)
    assert len(load_run(tmp_path, "latest").events()) == 1


def test_the_first_end_counts(tmp_path):
    with create_run(tmp_path, "evaluate", {}, seed=None) as run:
        run.end("failed", "two of three seeds diverged")
    assert read(run)["status"] == "failed"


def test_run_json_is_whole_after_a_write_that_fails(tmp_path, monkeypatch):
    run = create_run(tmp_path, "evaluate", {}, seed=0)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(run_module.os, "replace", fail)
    with pytest.raises(RunFailedError, match=r"run\.json: cannot be written \(disk full\)"):
        run.end("finished")
    assert read(run)["status"] == "running"
    assert [path.name for path in run.path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("kind", ["", "../up", "a/b", "a b", "."])
def test_a_kind_that_is_no_name_is_refused(tmp_path, kind):
    with pytest.raises(ConfigError, match="kind of a run"):
        create_run(tmp_path, kind, {}, seed=0)


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write runs"):
        create_run(tmp_path / "file", "evaluate", {}, seed=0)


def test_the_record_round_trips(tmp_path):
    run = create_run(tmp_path, "evaluate", {"a": [1, {"b": None}]}, seed=0)
    assert msgspec.json.decode((run.path / "run.json").read_bytes(), type=RunRecord) == run.state


PROGRAM = """
import signal, sys, time
from pathlib import Path
from presilicon.records import DesignEvent
from presilicon.runs import create_run
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with it ignored
with create_run(Path(sys.argv[1]), "evaluate", {}, seed=0) as run:
    run.record(DesignEvent(design="a", config={}))
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_whose_process_is_gone_shows_as_interrupted(tmp_path, number):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        assert load_run(tmp_path, "latest").status == "running"
        process.send_signal(number)
        deadline = time.monotonic() + 10
        # Before it is waited for, the process is a zombie: gone all the same.
        while load_run(tmp_path, "latest").status == "running" and time.monotonic() < deadline:
            time.sleep(0.02)
        found = load_run(tmp_path, "latest")
    assert found.status == "interrupted"
    assert [type(event) for event in found.events()] == [DesignEvent]


def test_a_pid_that_is_used_again_is_another_process(tmp_path):
    run = create_run(tmp_path, "evaluate", {}, seed=0)
    assert load_run(tmp_path, run.name).status == "running"
    (run.path / "lock.json").unlink()  # as in a run of a version without locks
    (run.path / "run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(run.state, process_start="1")))
    assert load_run(tmp_path, run.name).status == "interrupted"
