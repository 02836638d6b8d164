import os
import subprocess
import sys
from pathlib import Path

import pytest

from presilicon.base import RunFailedError
from presilicon.records import EvaluationEvent
from presilicon.runs import EventLog, events, read_events, read_plain_events


def evaluation(step, design="d"):
    return EvaluationEvent(design=design, seed=0, step=step, value=0.5, loss=1.0)


def test_events_come_back_in_order_with_their_time(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    for step in range(3):
        log.append(evaluation(step))
    events = list(read_events(log.path))
    assert [event.step for event in events] == [0, 1, 2]
    assert "" < events[0].time <= events[2].time


def test_no_file_has_no_events(tmp_path):
    assert list(read_events(tmp_path / "none.jsonl")) == []


def test_a_torn_last_line_is_passed_over_until_it_is_whole(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.append(evaluation(1, "é"))
    whole = log.path.read_bytes()
    log.append(evaluation(2, "é"))
    both = log.path.read_bytes()
    for end in range(len(whole), len(both) - 1):
        log.path.write_bytes(both[:end])
        assert [event.step for event in read_events(log.path)] == [1]
    log.path.write_bytes(both)
    assert [event.step for event in read_events(log.path)] == [1, 2]


def test_lines_that_are_not_valid_events_are_skipped(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.path.write_bytes(
        b'[1]\n{"time": "x"}\n{"event": 3}\n{"event": "torn{"event": "x"}\n\xff\xfe\n\n{"event": "of the future"}\n'
        b'{"event": "evaluation", "design": "d", "seed": "0", "step": 1, "value": 0.5}\n'
        b'{"event": "evaluation", "design": "d", "seed": 0, "step": 1, "value": null, "extra": 1}\n'
    )
    assert list(read_events(log.path)) == [EvaluationEvent(design="d", seed=0, step=1, value=None)]
    assert [event["event"] for event in read_plain_events(log.path)] == ["of the future", "evaluation", "evaluation"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not on this machine: /dev/full")
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunFailedError, match=r"events\.jsonl: cannot be written \(No space left on device\)"):
        EventLog(tmp_path / "events.jsonl").append(evaluation(1))


WRITER = """
import sys
from pathlib import Path
from presilicon.records import EvaluationEvent
from presilicon.runs import EventLog
log = EventLog(Path(sys.argv[1]))
for step in range(200):
    filler = "x" * (37 * (step % 7))
    log.append(EvaluationEvent(design=filler, seed=int(sys.argv[2]), step=step, value=0.5))
"""


def test_several_processes_append_whole_lines(tmp_path):
    path = tmp_path / "events.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(Path(events.__file__).parents[2])}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(writer)], env=environment) for writer in range(3)
    ]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        count = len(list(read_events(path)))
        assert count >= seen
        seen = count
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    found = list(read_events(path))
    assert path.read_bytes().count(b"\n") == len(found) == 600
    for writer in range(3):
        assert [event.step for event in found if event.seed == writer] == list(range(200))
