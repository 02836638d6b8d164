import os
import subprocess
import sys
from pathlib import Path

from presilicon.runs import EventLog, events, read_events


def test_events_come_back_in_order_with_their_time(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    for step in range(3):
        log.append("evaluation", step=step)
    events = list(read_events(log.path))
    assert [event["step"] for event in events] == [0, 1, 2]
    assert events[0]["time"] <= events[2]["time"]


def test_no_file_has_no_events(tmp_path):
    assert list(read_events(tmp_path / "none.jsonl")) == []


def test_a_torn_last_line_is_passed_over_until_it_is_whole(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.append("evaluation", step=1, note="é")
    whole = log.path.read_bytes()
    log.append("evaluation", step=2, note="é")
    both = log.path.read_bytes()
    for end in range(len(whole), len(both) - 1):
        log.path.write_bytes(both[:end])
        assert [event["step"] for event in read_events(log.path)] == [1]
    log.path.write_bytes(both)
    assert [event["step"] for event in read_events(log.path)] == [1, 2]


def test_lines_that_are_no_events_are_passed_over(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.path.write_bytes(
        b'[1]\n{"time": "x"}\n{"event": 3}\n{"event": "torn{"event": "x"}\n\xff\xfe\n\n{"event": "good"}\n'
    )
    assert list(read_events(log.path)) == [{"event": "good"}]


WRITER = """
import sys
from pathlib import Path
from presilicon.runs import EventLog
log = EventLog(Path(sys.argv[1]))
for step in range(200):
    log.append("evaluation", writer=int(sys.argv[2]), step=step, filler="x" * (37 * (step % 7)))
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
        assert [event["step"] for event in found if event["writer"] == writer] == list(range(200))
