"""`presilicon instrument` on a training that runs in another process, and on what it has left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from presilicon.instrument.host.link import SocketServer

DESIGN = """
name = "watched"
base = "bf16-systolic"

[instrument.hardware]
element = "bfloat16"
accumulator_bits = 32
taps = 4
chains = 32

[[instrument.taps]]
name = "in"
layers = "*"
every = 5

[[instrument.taps]]
name = "slope"
layers = "output"
role = "gradient"
aggregation = "gradient_norm"
"""

NARROW = """
name = "watched"
base = "bf16-systolic"

[instrument]
seeds = "all"

[instrument.hardware]
element = "bfloat16"

[[instrument.taps]]
name = "weights"
layers = "output"
role = "weight"
vectors = "all"
"""


def wait_for_event(out: Path, name: str, count: int = 1) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        text = "".join(path.read_text() for path in out.glob("*/events.jsonl"))
        if text.count(f'"event":"{name}"') >= count:
            return
        time.sleep(0.05)
    pytest.fail(f"no event {name}")


@contextmanager
def evaluating(folder: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """An evaluation that trains until it is told to stop."""
    (folder / "watched.toml").write_text(DESIGN)
    words = ["evaluate", str(folder / "watched.toml"), "--workload", "digits-mlp", "--seeds", "1", "--jobs", "1"]
    words += ["--target", "0.99999", "--max-steps", "1000000", "--out", str(folder / "runs")]
    command = [sys.executable, "-m", "presilicon", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_event(folder / "runs", "instrument", 4)
        yield folder / "runs", process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """An evaluation that goes on; tests may use it in any order, and none may end it."""
    with evaluating(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The runs folder of an evaluation that was interrupted."""
    with evaluating(tmp_path_factory.mktemp("ended")) as (out, process):
        wait_for_event(out, "instrument", 24)
        os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=60)
        yield out


def events(out: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for path in out.glob("*/events.jsonl") for line in path.read_text().splitlines()]
    return [event for event in found if event["event"] == name]


def test_a_tap_is_programmed_and_watched_while_training_goes_on(invoke, live) -> None:
    out, process = live
    done = invoke("instrument", "program", "latest", "--tap", "in.output", "--aggregation", "distribution",
                  "--option", "bins=32", "--option", "high=4", "--out", str(out))  # fmt: skip
    assert done.code == 0, done.err
    assert "from step" in done.out
    assert "aggregation distribution" in done.out
    at = events(out, "instrument_answer")[-1]["step"]
    before = len(events(out, "instrument"))
    wait_for_event(out, "instrument", before + 20)
    seen = [event for event in events(out, "instrument") if event["tap"] == "in.output"]
    assert {event["aggregation"] for event in seen if event["step"] < at} == {"summary"}
    assert {event["aggregation"] for event in seen if event["step"] >= at} == {"distribution"}
    assert len(seen[-1]["histogram"]["counts"]) == 32
    shown = invoke("instrument", "watch", "latest", "--once", "--out", str(out)).out
    assert "running" in shown
    assert "in.output" in shown
    assert "histogram" in shown
    assert "dropped on the chip:" in shown
    document = invoke("instrument", "watch", "latest", "--once", "--json", "--out", str(out)).document
    taps = document["streams"][0]["taps"]
    assert {"in.output", "slope"} < set(taps)
    assert taps["in.output"]["seen"] == ["summary", "distribution"]
    assert not document["streams"][0]["ended"]
    assert process.poll() is None


def test_firmware_of_ones_own_and_its_mistakes(invoke, live, tmp_path: Path) -> None:
    out, _ = live
    file = tmp_path / "largest.json"
    largest = [
        {"op": "vv_max", "addr": 0, "conditions": ["notfirst@1"]},
        {"op": "v_cache", "addr": 0},
        {"op": "v_reduce", "function": "max"},
        {"op": "v_commit", "size": 1, "conditions": ["last@1"]},
    ]
    file.write_text(json.dumps([largest]))
    given = ("instrument", "program", "latest", "--tap", "slope", "--out", str(out))
    done = invoke(*given, "--firmware", str(file), "--json")
    assert done.document["answers"][0]["ok"]
    file.write_text(json.dumps([[{"op": "vv_add", "addr": 400}]]))
    done = invoke(*given, "--firmware", str(file))
    assert done.code == 2
    assert "row 400" in done.err
    assert invoke(*given, "--firmware", str(tmp_path / "none.json")).code == 2
    assert "either an aggregation or a firmware" in invoke(*given).err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["program", "latest", "--tap", "out", "--aggregation", "summary"], 'unknown tap "out"'),
        (["program", "latest", "--tap", "in", "--aggregation", "sumary"], 'did you mean "summary"'),
        (["program", "latest", "--tap", "in", "--option", "bins=2"], "needs --aggregation"),
        (["set", "latest", "--learning-rate", "-1"], "expected a finite number"),
        (["set", "latest", "--learning-rate", "0.1", "--seed", "7"], "of that design and seed"),
        (["ranges", "latest", "--tap", "in", "--boundaries", "1,x"], "write numbers"),
        (["ranges", "latest", "--tap", "slope", "--boundaries", "1,2"], "refused"),
        (["lockstep", "latest", "--recorded"], "needs --stream FILE"),
    ],
)
def test_bad_requests(invoke, live, arguments: list[str], said: str) -> None:
    out, process = live
    done = invoke("instrument", *arguments, "--out", str(out))
    assert done.code == 2
    assert said in done.err
    assert process.poll() is None


def test_the_learning_rate_and_the_pace_of_looks(invoke, live) -> None:
    out, _ = live
    done = invoke("instrument", "set", "latest", "--learning-rate", "0.001", "--out", str(out), "--json")
    assert done.document["answers"][0]["message"].startswith("learning rate 0.001")
    assert invoke("instrument", "sample", "latest", "--tap", "slope", "--every", "0", "--out", str(out)).code == 0


def test_when_it_is_over(invoke, ended) -> None:
    out = ended
    done = invoke("instrument", "set", "latest", "--learning-rate", "0.1", "--out", str(out))
    assert done.code == 2
    assert "is over (interrupted)" in done.err
    assert "interrupted" in invoke("instrument", "watch", "latest", "--out", str(out)).out
    (stream,) = out.glob("*/stream-*.bin")
    same = invoke("instrument", "lockstep", "latest", "--stream", str(stream), "--recorded", "--out", str(out))
    assert same.code == 0, same.err
    assert "no difference" in same.out
    short = out.parent / "short.bin"
    short.write_bytes(stream.read_bytes()[:-40])
    arguments = ("instrument", "lockstep", "latest", "--stream", str(short), "--recorded", "--out", str(out))
    assert invoke(*arguments).code == 0
    missing = invoke(*arguments, "--complete")
    assert missing.code == 1
    assert "frames are only here, 0 only there" in missing.err


def test_a_recorded_stream_is_listened_to(invoke, ended) -> None:
    out = ended
    (stream,) = out.glob("*/stream-*.bin")
    given = ("--design", str(out.parent / "watched.toml"), "--workload", "digits-mlp", "--seconds", "0.3")
    done = invoke("instrument", "listen", str(stream), *given, "--json")
    assert done.code == 0, done.err
    assert done.document["frames"] > 10
    assert done.document["lost_packets"] == 0
    shown = invoke("instrument", "watch", "latest").out
    assert "in.output" in shown
    kept = Path("runs") / done.document["run"] / "stream-watched-seed0.bin"
    assert kept.read_bytes() == stream.read_bytes()
    to_its_end = invoke("instrument", "listen", str(stream), *given[:-2], "--json")
    assert to_its_end.document["frames"] == done.document["frames"]
    assert "is not a link" in invoke("instrument", "listen", "nowhere", *given).err
    plain = ("--design", "bf16-systolic", "--workload", "digits-mlp")
    assert "has no [instrument]" in invoke("instrument", "listen", str(stream), *plain).err


def test_a_run_without_an_instrument(invoke) -> None:
    from presilicon.runs import create_run

    with create_run(Path("runs"), "evaluate", {}, seed=0):
        pass
    assert "has no instrument" in invoke("instrument", "watch", "latest").err
    assert invoke("instrument", "lockstep", "latest").code == 2


def test_evaluate_says_where_the_stream_is(invoke, tmp_path: Path) -> None:
    listening = DESIGN.replace("[instrument.hardware]", '[instrument]\nlisten = "127.0.0.1:0"\n[instrument.hardware]')
    (tmp_path / "watched.toml").write_text(listening)
    given = ("--workload", "digits-mlp", "--seeds", "1", "--jobs", "1", "--max-steps", "30", "--target", "1.0")
    done = invoke("evaluate", str(tmp_path / "watched.toml"), *given, "--out", str(tmp_path))
    assert done.code == 0, done.err
    (started,) = events(tmp_path, "instrument_started")
    assert not started["address"].endswith(":0")
    assert f"watched, seed {started['seed']}: the instrument's stream is at {started['address']}" in done.err


def test_evaluate_says_where_the_token_is_but_not_the_token(invoke, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PRESILICON_INSTRUMENT_TOKEN", raising=False)
    section = '[instrument]\nlisten = "0.0.0.0:0"\naccept_images = true\n[instrument.hardware]'
    (tmp_path / "watched.toml").write_text(DESIGN.replace("[instrument.hardware]", section))
    given = ("--workload", "digits-mlp", "--seeds", "1", "--jobs", "1", "--max-steps", "30", "--target", "1.0")
    done = invoke("evaluate", str(tmp_path / "watched.toml"), *given, "--out", str(tmp_path))
    assert done.code == 0, done.err
    assert "hosts that program it need the token in instrument-token" in done.err
    (file,) = tmp_path.glob("*/instrument-token")
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert token not in done.err + done.out
    for other in file.parent.iterdir():
        assert other == file or other.is_dir() or token.encode() not in other.read_bytes(), other


def test_listen_without_the_token_says_what_to_give(invoke, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PRESILICON_INSTRUMENT_TOKEN", raising=False)
    (tmp_path / "watched.toml").write_text(DESIGN)
    (tmp_path / "wrong").write_text("not-the-right-token\n")
    server = SocketServer(token="the-right-token-it-is")
    stop = Event()

    def serve() -> None:
        while not stop.wait(0.01):
            server.receive()

    serving = Thread(target=serve)
    serving.start()
    given = ("--design", str(tmp_path / "watched.toml"), "--workload", "digits-mlp", "--seconds", "20")
    try:
        missing = invoke("instrument", "listen", server.address, *given)
        wrong = invoke("instrument", "listen", server.address, *given, "--token-file", str(tmp_path / "wrong"))
    finally:
        stop.set()
        serving.join()
        server.close()
    assert (missing.code, wrong.code) == (2, 2)
    assert "a host that sends images needs a token" in missing.err
    assert "the token is wrong" in wrong.err


def test_evaluate_notes_counts_that_words_cannot_hold_once_for_all_seeds(invoke, tmp_path: Path) -> None:
    (tmp_path / "narrow.toml").write_text(NARROW)
    done = invoke("evaluate", "narrow.toml", "--workload", "digits-mlp", "--seeds", "2", "--jobs", "1",
                  "--max-steps", "60", "--evaluate-every", "20", "--json")  # fmt: skip
    assert done.code == 0, done.err
    [note] = [line for line in done.err.splitlines() if line.startswith("note:")]
    assert note.startswith('note: watched: tap "weights", summary: counts may reach ')
    assert "hold no more than 256" in note
    shown = invoke("instrument", "watch", "latest", "--once")
    assert "hold no more than 256" in " ".join(shown.out.split())
    page = next((tmp_path / "runs").glob("*/report.html")).read_text()
    assert "hold no more than 256" in page
