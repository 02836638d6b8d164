"""Commands to a training that runs: given by file, answered by event, refused with a reason."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from presilicon.base import ConfigError, RunFailedError
from presilicon.instrument.host import control
from presilicon.instrument.host.control import CONTROL_FILE, Command, Commands
from presilicon.records import InstrumentAnswer, InstrumentEnded, InstrumentStarted
from presilicon.runs import Run, StoredRun, create_run, load_run

TAPS = [
    {"name": "hidden.0", "group": "hidden", "layer": "0", "role": "activation"},
    {"name": "hidden.2", "group": "hidden", "layer": "2", "role": "activation"},
    {"name": "slope", "group": "slope", "layer": "2", "role": "gradient"},
]


@contextmanager
def training(
    tmp_path: Path, *, ok: bool = True, taps: list[dict[str, str]] = TAPS
) -> Iterator[tuple[Run, list[Command]]]:
    """A run with a training that answers everything, in a thread of its own."""
    seen: list[Command] = []
    done = threading.Event()
    with create_run(tmp_path, "evaluate", {}, seed=0) as run:
        run.record(InstrumentStarted(stream="s0", design="d", seed=0, taps=taps))
        commands = Commands(run.path / CONTROL_FILE, "s0")

        def answer() -> None:
            while not done.is_set():
                for command in commands.pending(0):
                    seen.append(command)
                    answered = InstrumentAnswer(
                        design="d", seed=0, stream="s0", command=command.id, ok=ok, step=7, message="so be it"
                    )
                    run.record(answered)
                time.sleep(0.005)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield run, seen
        finally:
            done.set()
            thread.join()


def stored(run: Run) -> StoredRun:
    return load_run(run.path.parent, run.name)


def test_a_command_is_answered_with_its_step(tmp_path: Path) -> None:
    with training(tmp_path) as (run, seen):
        answers = control.program_tap(stored(run), "hidden", aggregation="distribution", options={"bins": 64})
        assert [(each.ok, each.step, each.message) for each in answers] == [(True, 7, "so be it")]
        control.set_learning_rate(stored(run), 0.01)
        control.set_ranges(stored(run), "slope", [[0, 1, "inf"]])
        control.set_sampling(stored(run), "hidden.2", 0)
    assert [command.verb for command in seen] == ["program", "learning_rate", "ranges", "sample"]
    assert (seen[0].tap, seen[0].aggregation, seen[0].options) == ("hidden", "distribution", {"bins": 64})
    assert seen[1].value == 0.01
    assert seen[2].boundaries == [[0, 1, "inf"]]
    assert (seen[3].tap, seen[3].every) == ("hidden.2", 0)


def test_what_was_refused_is_told(tmp_path: Path) -> None:
    with training(tmp_path, ok=False) as (run, _):
        assert not control.set_learning_rate(stored(run), 0.01)[0].ok


def test_a_bad_request_writes_nothing(tmp_path: Path) -> None:
    with training(tmp_path) as (run, seen):
        with pytest.raises(ConfigError, match='unknown tap "hiden": did you mean "hidden"'):
            control.program_tap(stored(run), "hiden", aggregation="summary")
        with pytest.raises(ConfigError, match="either an aggregation or a firmware"):
            control.program_tap(stored(run), "hidden")
        with pytest.raises(ConfigError, match="range_boundaries are of a firmware"):
            control.program_tap(stored(run), "hidden", aggregation="summary", range_boundaries=[[0, 1]])
        with pytest.raises(ConfigError, match="learning rate: given -1"):
            control.set_learning_rate(stored(run), -1)
        with pytest.raises(ConfigError, match="learning rate: given nan"):
            control.set_learning_rate(stored(run), float("nan"))
        with pytest.raises(ConfigError, match=r"given 1e\+60, .* that float32 can hold"):
            control.set_learning_rate(stored(run), 1e60)
        with pytest.raises(ConfigError, match="given 1e-60, which is 0 in float32"):
            control.set_learning_rate(stored(run), 1e-60)
        with pytest.raises(ConfigError, match="every: given 70000"):
            control.set_sampling(stored(run), "hidden", 70000)
        with pytest.raises(ConfigError, match="of that design and seed"):
            control.set_learning_rate(stored(run), 0.1, design="other")
    assert seen == []
    assert not (run.path / CONTROL_FILE).exists()


def test_a_run_that_is_over(tmp_path: Path) -> None:
    with training(tmp_path) as (run, _):
        pass
    with pytest.raises(ConfigError, match=r"is over \(finished\)"):
        control.set_learning_rate(stored(run), 0.1)


def test_a_training_that_ended_or_never_had_an_instrument(tmp_path: Path) -> None:
    with create_run(tmp_path, "evaluate", {}, seed=0) as run:
        with pytest.raises(ConfigError, match=r"needs an \[instrument\] section"):
            control.set_learning_rate(stored(run), 0.1)
        run.record(InstrumentStarted(stream="s0", design="d", seed=0, taps=TAPS))
        assert list(control.running_trainings(stored(run))) == ["s0"]
        run.record(InstrumentEnded(stream="s0", design="d", seed=0))
        with pytest.raises(ConfigError, match="no instrumented training under way"):
            control.set_learning_rate(stored(run), 0.1)


def test_a_training_that_was_broken_off_and_taken_up_again(tmp_path: Path) -> None:
    with create_run(tmp_path, "evaluate", {}, seed=0) as run:
        for stream, seed in (("s0", 0), ("s1", 1), ("s2", 0)):
            run.record(InstrumentStarted(stream=stream, design="d", seed=seed, taps=TAPS))
        assert set(control.running_trainings(stored(run))) == {"s1", "s2"}


def test_no_answer(tmp_path: Path) -> None:
    with create_run(tmp_path, "evaluate", {}, seed=0) as run:
        run.record(InstrumentStarted(stream="s0", design="d", seed=0, taps=TAPS))
        with pytest.raises(RunFailedError, match="did not answer within"):
            control.set_learning_rate(stored(run), 0.1, wait_s=0.1)
        assert len(Commands(run.path / CONTROL_FILE, "s0").pending(0)) == 1, "it is done when the training looks"


def test_lines_that_are_torn_or_for_others_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / CONTROL_FILE
    commands = Commands(file, "s0")
    assert commands.pending(0) == []
    line = b'{"id":"1","streams":["s0"],"verb":"learning_rate","value":0.5}\n'
    file.write_bytes(b"nonsense\n" + line.replace(b"s0", b"s1") + b'{"id":"2","verb":"explode","streams":["s0"]}\n')
    assert commands.pending(0) == []
    with file.open("ab") as end:
        end.write(line[:20])
        end.flush()
        assert commands.pending(0) == []
        end.write(line[20:])
        end.flush()
        assert [command.value for command in commands.pending(0)] == [0.5]
    assert commands.pending(0) == []


def test_damaged_answers_are_not_repeated() -> None:
    request = {"id": "1", "streams": [], "verb": "sample", "tap": "hidden", "every": 3}
    answers = [
        InstrumentAnswer(stream="s", command="1", ok=True, step=4, request=content)
        for content in ({}, request | {"verb": "odd"}, request, request | {"id": 7})
    ]
    assert [command.id for command in control.Repeated(answers).pending(9)] == ["1"]
