"""Ctrl-C belongs to the process that starts workers, from their first moment on."""

import os
import signal
import subprocess
import sys
import time

import pytest

import presilicon

SLOW = """
import pathlib, time
pathlib.Path("importing").touch()
time.sleep(1.5)
"""

PARENT = """
import sys
from concurrent.futures import ProcessPoolExecutor
from presilicon.study.processes import process_context, starting_workers

if __name__ == "__main__":
    try:
        with ProcessPoolExecutor(2, mp_context=process_context(["slow"])) as pool, starting_workers():
            print(sum(pool.map(abs, [-1, -2])))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture
def start(tmp_path):
    def start() -> subprocess.Popen[str]:
        (tmp_path / "slow.py").write_text(SLOW)
        (tmp_path / "parent.py").write_text(PARENT)
        source = os.path.dirname(os.path.dirname(presilicon.__file__))
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{source}"}
        return subprocess.Popen(
            [sys.executable, "parent.py"], cwd=tmp_path, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


@pytest.mark.skipif(sys.platform != "linux", reason="not on this machine: forked workers")
def test_ctrl_c_while_workers_import_prints_nothing(start, tmp_path):
    parent = start()
    while not (tmp_path / "importing").exists():
        assert parent.poll() is None
        time.sleep(0.02)
    os.killpg(parent.pid, signal.SIGINT)
    out, err = parent.communicate(timeout=60)
    assert (parent.returncode, out, err) == (130, "", "")


def test_without_ctrl_c_they_work(start):
    parent = start()
    assert parent.communicate(timeout=60) == ("3\n", "")
