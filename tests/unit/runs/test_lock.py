"""At most one process owns a run."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from presilicon.base import ConfigError, RunFailedError
from presilicon.records import DesignEvent, LockEvent
from presilicon.runs import create_run, load_run, lock, resume_run
from presilicon.runs.lock import LOCK_FILE, Owner, acquire, is_locked, read_owner

SOURCE = Path(lock.__file__).parents[2]


def test_a_lock_is_held_until_it_is_released(tmp_path):
    held = acquire(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(ConfigError, match=rf"in use by another process \(process {os.getpid()}\)"):
        acquire(tmp_path)
    held.release()
    assert is_locked(tmp_path) is None
    acquire(tmp_path).release()


def test_the_lock_names_no_machine(tmp_path):
    held = acquire(tmp_path)
    assert os.uname().nodename not in (tmp_path / LOCK_FILE).read_text()
    held.release()


def test_of_many_that_want_a_stale_lock_one_gets_it(tmp_path):
    gone = Owner(pid=2**22 + 1, process_start="1", machine=lock._machine(), token="t")
    (tmp_path / LOCK_FILE).write_bytes(msgspec.json.encode(gone))
    assert not is_locked(tmp_path)

    def take(_):
        try:
            return acquire(tmp_path)
        except ConfigError:
            return None

    with ThreadPoolExecutor(16) as pool:
        locks = [held for held in pool.map(take, range(64)) if held is not None]
    assert len(locks) == 1
    assert locks[0].took_over == f"the lock of process {2**22 + 1}, which no longer exists, was taken over"
    locks[0].release()
    assert [path.name for path in tmp_path.iterdir()] == []


def test_an_owner_on_another_machine_is_judged_by_how_old_its_lock_is(tmp_path):
    far = Owner(pid=1, process_start="1", machine="elsewhere", token="t")
    path = tmp_path / LOCK_FILE
    path.write_bytes(msgspec.json.encode(far))
    assert is_locked(tmp_path)
    with pytest.raises(ConfigError, match="in use by another process:"):
        acquire(tmp_path)
    old = time.time() - 2 * lock.STALE_S
    os.utime(path, (old, old))
    assert not is_locked(tmp_path)
    acquire(tmp_path).release()


def test_an_owner_that_lost_its_lock_writes_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "REFRESH_S", 0.01)
    run = create_run(tmp_path, "evaluate", {}, seed=0)
    other = msgspec.structs.replace(read_owner(run.path / LOCK_FILE), token="other")
    (run.path / LOCK_FILE).write_bytes(msgspec.json.encode(other))
    run._lock._refresher.join(timeout=30)
    with pytest.raises(RunFailedError, match="this process no longer owns the run"):
        run.record(DesignEvent(design="a", config={}))
    with pytest.raises(RunFailedError, match="no longer owns"):
        run.end("finished")
    assert (run.path / LOCK_FILE).exists()  # it belongs to the other process


def test_the_lock_is_refreshed_while_it_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "REFRESH_S", 0.01)
    held = acquire(tmp_path)
    os.utime(tmp_path / LOCK_FILE, (1, 1))
    deadline = time.monotonic() + 30
    while (tmp_path / LOCK_FILE).stat().st_mtime == 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (tmp_path / LOCK_FILE).stat().st_mtime > 1
    held.release()


KILLED = """
import os, sys
from pathlib import Path
from presilicon.runs import create_run
create_run(Path(sys.argv[1]), "evaluate", {}, seed=0)
os.kill(os.getpid(), 9)
"""


def test_a_killed_run_is_taken_over_and_says_so(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment).returncode == -9
    stored = load_run(tmp_path, "latest")
    assert stored.status == "interrupted"
    with resume_run(stored.path, stored.record, stored.record.config) as run:
        assert "was taken over" in run.took_over
        with pytest.raises(ConfigError, match="in use by another process"):
            resume_run(stored.path, stored.record, stored.record.config)
    [event] = load_run(tmp_path, "latest").events(LockEvent)
    assert event.message == run.took_over
