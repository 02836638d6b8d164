"""Ctrl-C in the middle: exit 130, and what was recorded stays readable."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def start(tmp_path: Path, jobs: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "presilicon", "evaluate", "fp8-systolic", "--workload", "digits-mlp",
         "--seeds", "2", "--target", "1.0", "--max-steps", "1000000", "--jobs", str(jobs)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_evaluation(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        events = list(tmp_path.glob("runs/*/events.jsonl"))
        if events and '"evaluation"' in events[0].read_text():
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    raise AssertionError("no evaluation was recorded")


@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted_runs_are_kept(tmp_path: Path, jobs: int) -> None:
    process = start(tmp_path, jobs)
    wait_for_evaluation(tmp_path, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    listed = subprocess.run(
        [sys.executable, "-m", "presilicon", "runs", "list"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "interrupted" in listed.stdout
