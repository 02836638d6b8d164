"""`presilicon evaluate --resume`: a run that was killed goes on to the same bytes."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import presilicon as ps
from presilicon.cli.main import main
from presilicon.records import EvaluationEvent, SeedFinished, SeedRestored
from presilicon.runs import list_runs

ARGUMENTS = [
    "fp32-systolic", "fp8-systolic", "--workload", "digits-mlp", "--seeds", "2", "--max-steps", "400",
    "--checkpoint-every", "2", "--target", "1.0",
]  # fmt: skip


def _kill_in_the_middle(folder: Path, jobs: str) -> Path:
    """Start an evaluation, and kill it without warning once one seed has ended and another is under way."""
    command = [sys.executable, "-m", "presilicon", "evaluate", *ARGUMENTS, "--jobs", jobs]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline and process.poll() is None:
            runs = list_runs(folder / "runs")
            events = runs[0].events() if runs else ()
            ended = [event for event in events if isinstance(event, SeedFinished)]
            after = events[events.index(ended[-1]) :] if ended else ()
            later = [event for event in after if isinstance(event, EvaluationEvent) and event.step == 50]
            if later:
                break
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    [run] = list_runs(folder / "runs")
    assert run.status == "interrupted"
    assert len(list((run.path / "checkpoints").glob("*.safetensors"))) >= 2
    return run.path


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> str:
    """The result of the same evaluation without an interruption."""
    out = tmp_path_factory.mktemp("unbroken")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main(["evaluate", *ARGUMENTS, "--jobs", "1", "--json", "--out", str(out)])
    assert ended.value.code == 0
    return printed.getvalue()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_killed_run_goes_on_to_the_same_bytes(invoke, tmp_path, unbroken: str, jobs: str) -> None:
    path = _kill_in_the_middle(tmp_path, jobs)
    resumed = invoke("evaluate", "--resume", "latest", "--jobs", jobs, "--json")
    assert resumed.code == 0
    assert "(before this was resumed)" in resumed.err
    assert resumed.out == unbroken
    assert (path / "result.json").read_text() == unbroken
    record = json.loads((path / "run.json").read_text())
    assert (record["status"], len(record["resumed"])) == ("finished", 1)
    assert not (path / "checkpoints").exists()
    again = invoke("evaluate", "--resume", path.name)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "is finished: only an interrupted or failed run can be resumed" in again.err


def test_a_run_whose_design_has_changed_is_not_resumed(invoke, tmp_path, monkeypatch) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n[machine]\nkind = "systolic"\nrows = 8\ncols = 8\nclock_ghz = 1\n'
    )

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("presilicon.study.runner.Runner.train", interrupt)
        broken = invoke("evaluate", "mine.toml", "--workload", "digits-mlp")
        elsewhere = invoke("evaluate", "mine.toml", "--workload", "digits-mlp", "--out", "my runs")
    assert elsewhere.err.partition("\n")[0].endswith(" --out 'my runs'")
    assert broken.code == 130
    [run] = list_runs(tmp_path / "runs")
    assert f"to continue: presilicon evaluate --resume {run.name}" in broken.err
    text = (tmp_path / "mine.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace("rows = 8", "rows = 16"))
    changed = invoke("evaluate", "--resume", "latest")
    assert changed.code == 2
    assert "cannot be resumed: its designs changed since" in changed.err
    (tmp_path / "mine.toml").write_text(text)
    monkeypatch.setattr("presilicon.runs.run.versions", lambda: {"torch": "0.1"})
    other = invoke("evaluate", "--resume", "latest")
    assert other.code == 2
    assert "now 0.1; start a new run" in other.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["fp32-systolic", "--resume", "latest"], "leave out designs"),
        (["--seeds", "3", "--resume", "latest"], "leave out --seeds"),
        (["--resume", "latest"], "there are no runs"),
    ],
)
def test_what_cannot_be_resumed_is_said(invoke, arguments: list[str], word: str) -> None:
    outcome = invoke("evaluate", *arguments)
    assert outcome.code == 2
    assert word in outcome.err


def test_a_run_of_another_kind_or_time_has_no_request(invoke, tmp_path) -> None:
    from presilicon.runs import create_run

    create_run(tmp_path / "runs", "evaluate", {}, seed=0).end("failed")
    outcome = invoke("evaluate", "--resume", "latest")
    assert outcome.code == 2
    assert "cannot be resumed: it has no request.json" in outcome.err


def test_the_same_call_goes_on_from_python(tmp_path) -> None:
    from dataclasses import replace

    workload = replace(ps.load_workload("digits-mlp"), target=1.0, max_steps=60)

    class StopError(Exception):
        pass

    def stop(event):
        if isinstance(event, EvaluationEvent) and (event.seed, event.step) == (1, 30):
            raise StopError

    with pytest.raises(StopError):
        ps.evaluate("fp32-systolic", workload, seeds=2, checkpoints=tmp_path, on_event=stop)
    seen = []
    found = ps.evaluate("fp32-systolic", workload, seeds=2, checkpoints=tmp_path, on_event=seen.append)
    assert isinstance(seen[0], SeedRestored)
    assert found == ps.evaluate("fp32-systolic", workload, seeds=2)


def test_a_resumed_log_has_every_evaluation_once(invoke, tmp_path, monkeypatch) -> None:
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    arguments = ["fp32-systolic", "--workload", "digits-mlp", "--seeds", "1", "--max-steps", "60", "--target", "1.0"]
    with monkeypatch.context() as patch:
        patch.setattr("presilicon.study.join.evaluation.Study.comparison", interrupt)
        assert invoke("evaluate", *arguments, "--jobs", "1").code == 130
    [run] = list_runs(tmp_path / "runs")
    log = run.path / "events.jsonl"
    lines = log.read_text().splitlines()
    # As after a kill: an evaluation could not be sent any more, and others were sent without a checkpoint.
    log.write_text("\n".join(line for line in lines if '"step":20' not in line) + "\n")
    for checkpoint in (run.path / "checkpoints").iterdir():
        checkpoint.unlink()
    assert invoke("evaluate", "--resume", "latest", "--jobs", "1").code == 0
    steps = [event.step for event in run.events(EvaluationEvent)]
    assert sorted(steps) == [10, 20, 30, 40, 50, 60]


def test_a_run_is_resumed_from_any_directory(tmp_path, monkeypatch, capsys) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "mine.toml").write_text('base = "bf16-systolic"\nname = "mine"\n')
    monkeypatch.chdir(home)
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "mine.toml", "--workload", "digits-mlp", "--seeds", "1", "--max-steps", "30"])
    assert ended.value.code == 0
    [run] = list_runs(Path("runs"))
    record = json.loads((home / run.path / "run.json").read_text())
    (home / run.path / "run.json").write_text(json.dumps({**record, "status": "failed"}))
    (home / run.path / "result.json").unlink()
    monkeypatch.chdir(elsewhere)
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--resume", "latest", "--out", "../home/runs"])
    assert ended.value.code == 0, capsys.readouterr().err
    assert (home / run.path / "result.json").exists()
    assert Path.cwd() == elsewhere

    (home / run.path / "run.json").write_text(json.dumps({**record, "status": "failed"}))
    home.rename(tmp_path / "moved")
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--resume", "latest", "--out", "../moved/runs"])
    assert ended.value.code == 2
    assert f"started in {home}, which is not there: mine.toml" in capsys.readouterr().err
