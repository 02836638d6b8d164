"""Every state that a lock can be in: who may take it, what the others see, and what the clocks say."""

import itertools
import os
import subprocess
import sys
import time

import msgspec
import pytest

from presilicon.base import ConfigError, RunFailedError
from presilicon.records import DesignEvent, LockEvent
from presilicon.runs import create_run, load_run, lock, resume_run
from presilicon.runs.lock import LOCK_FILE, STALE_S, Owner, acquire, is_locked, process_start, read_owner

HELD, STALE, BY_AGE = "held", "stale", "by age"
GONE = 2**22 + 1


def owners() -> dict[str, tuple[Owner | bytes, str]]:
    """Owners of locks, and whether theirs is held, stale, or stale by its age."""
    mine = {"machine": lock._machine(), "token": "t"}
    own = os.getpid()
    return {
        "alive": (Owner(pid=own, process_start=process_start(own), **mine), HELD),
        "alive, of an unknown start": (Owner(pid=own, process_start=None, **mine), HELD),
        "gone": (Owner(pid=GONE, process_start="1", **mine), STALE),
        "gone, of an unknown start": (Owner(pid=GONE, process_start=None, **mine), STALE),
        "another process of the same number": (Owner(pid=own, process_start="1", **mine), STALE),
        "on another machine": (Owner(pid=own, process_start=process_start(own), machine="far", token="t"), BY_AGE),
        "unreadable": (b"{", BY_AGE),
        "empty": (b"", BY_AGE),
    }


@pytest.mark.parametrize("name", owners())
@pytest.mark.parametrize("clock_s", [0.0, 1e6, -1e6])
def test_a_lock_is_taken_exactly_when_it_is_stale(name: str, clock_s: float, tmp_path, monkeypatch) -> None:
    owner, state = owners()[name]
    real, path, guard = time.time, tmp_path / LOCK_FILE, tmp_path / f"{LOCK_FILE}.takeover"
    monkeypatch.setattr(lock.time, "time", lambda: real() + clock_s)  # this machine's clock; files have another
    for age_s, guard_age_s in itertools.product((0, STALE_S - 5, STALE_S + 5), (None, 0, STALE_S + 5)):
        path.write_bytes(owner if isinstance(owner, bytes) else msgspec.json.encode(owner))
        os.utime(path, (real() - age_s,) * 2)
        if guard_age_s is not None:
            guard.touch()
            os.utime(guard, (real() - guard_age_s,) * 2)
        is_stale = state == STALE or (state == BY_AGE and age_s > STALE_S)
        before = path.read_bytes(), path.stat().st_mtime
        assert is_locked(tmp_path) is not is_stale
        if is_stale and guard_age_s != 0:
            held = acquire(tmp_path)
            number = f"process {owner.pid}" if isinstance(owner, Owner) else "an unknown process"
            assert held.took_over == f"the lock of {number}, which no longer exists, was taken over"
            assert read_owner(path).pid == os.getpid()
            assert is_locked(tmp_path)
            held.check()
            held.release()
            assert list(tmp_path.iterdir()) == []
        else:
            with pytest.raises(ConfigError, match="being taken over" if is_stale else "in use by another process"):
                acquire(tmp_path)
            assert (path.read_bytes(), path.stat().st_mtime) == before
            guard.unlink(missing_ok=True)


def test_without_a_lock_nothing_is_taken_over(tmp_path) -> None:
    assert is_locked(tmp_path) is None
    held = acquire(tmp_path)
    assert held.took_over == ""
    held.release()
    held.release()


def test_the_age_is_by_this_machines_clock_only_where_files_cannot_be_written(tmp_path, monkeypatch) -> None:
    path, real = tmp_path / LOCK_FILE, time.time
    path.write_bytes(b"{")
    monkeypatch.setattr(lock.Path, "touch", lambda self: (_ for _ in ()).throw(PermissionError()))
    for passed_s, is_held in ((0, True), (STALE_S - 5, True), (STALE_S + 5, False)):
        monkeypatch.setattr(lock.time, "time", lambda passed_s=passed_s: real() + passed_s)
        assert is_locked(tmp_path) is is_held


def test_a_lock_that_changed_hands_while_it_was_looked_at_is_left(tmp_path, monkeypatch) -> None:
    path = tmp_path / LOCK_FILE
    gone, other = owners()["gone"][0], owners()["alive"][0]
    path.write_bytes(msgspec.json.encode(gone))
    create = lock._create

    def create_beside(guard, owner):
        path.write_bytes(msgspec.json.encode(other))  # another process was quicker
        return create(guard, owner)

    monkeypatch.setattr(lock, "_create", lambda at, owner: False if at == path else create_beside(at, owner))
    with pytest.raises(ConfigError, match="just taken over"):
        acquire(tmp_path)
    assert read_owner(path) == other
    assert [entry.name for entry in tmp_path.iterdir()] == [LOCK_FILE]


def test_both_sides_see_a_takeover_and_the_loser_leaves_the_lock_alone(tmp_path, monkeypatch) -> None:
    """A process that stood still for too long finds its run taken over when it goes on."""
    monkeypatch.setattr(lock, "REFRESH_S", 0.02)
    machine = lock._machine
    monkeypatch.setattr(lock, "_machine", lambda: "elsewhere")
    first = create_run(tmp_path, "evaluate", {}, seed=0)
    monkeypatch.setattr(lock, "_machine", machine)
    first.record(DesignEvent(design="a", config={}))
    stop = (time.time() - 2 * STALE_S,) * 2
    real_utime, path = os.utime, first.path / LOCK_FILE
    monkeypatch.setattr(lock.os, "utime", lambda *_: None)  # it stands still
    real_utime(path, stop)
    second = resume_run(first.path, first.state, first.state.config)
    assert "was taken over" in second.took_over
    first._lock._refresher.join(timeout=30)
    assert not first._lock._refresher.is_alive()
    monkeypatch.setattr(lock.os, "utime", real_utime)
    for forbidden in (lambda: first.record(DesignEvent(design="b", config={})), lambda: first.end("finished")):
        with pytest.raises(RunFailedError, match="no longer owns"):
            forbidden()
    assert read_owner(path) == second._lock._owner
    assert load_run(tmp_path, "latest").status == "running"
    second.record(DesignEvent(design="c", config={}))
    second.end("finished")
    stored = load_run(tmp_path, "latest")
    assert stored.status == "finished"
    assert [event.design for event in stored.events(DesignEvent)] == ["a", "c"]
    assert len(stored.events(LockEvent)) == 1
    assert not path.exists()


LIVE = "import sys; print('here', flush=True); sys.stdin.read()"


def test_a_process_is_alive_until_it_has_ended_even_if_nobody_waits_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", LIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        start = process_start(child.pid)
        assert lock.is_alive(child.pid, start)
        assert lock.is_alive(child.pid, None)
        assert not lock.is_alive(child.pid, str(int(start) + 1))
        child.stdin.close()
        child.stdin = None
        deadline = time.monotonic() + 30
        while lock.is_alive(child.pid, start) and time.monotonic() < deadline:
            time.sleep(0.01)  # it becomes a zombie
        assert not lock.is_alive(child.pid, start)
        assert process_start(child.pid) is None
