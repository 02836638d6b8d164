"""In CI a test that is skipped for want of a tool fails; one that this machine cannot run is skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"
TESTS = """
import pytest

def test_wants_a_package():
    pytest.importorskip("nothing_of_that_name")

def test_wants_a_program():
    pytest.skip("not here: iverilog")

@pytest.mark.skipif(True, reason="Triton is not installed")
def test_is_marked():
    pass

@pytest.mark.skipif(True, reason="not on this machine: a GPU")
def test_wants_another_machine():
    pass

def test_wants_another_machine_when_it_runs():
    pytest.skip("not on this machine: Linux")

@pytest.mark.xfail
def test_is_expected_to_fail():
    raise AssertionError

def test_passes():
    pass
"""
MODULE = "import pytest\npytest.importorskip('nothing_of_that_name')\n\ndef test_never_runs():\n    pass\n"


@pytest.mark.parametrize(("ci", "outcome"), [("1", "2 failed, 1 passed, 2 skipped, 1 xfailed, 2 errors"),
                                             ("", "1 passed, 6 skipped, 1 xfailed")])  # fmt: skip
def test_want_of_a_tool_fails_in_ci_alone(ci: str, outcome: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"))
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_whole_module.py").write_text(MODULE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--continue-on-collection-errors"],
        cwd=tmp_path, env=os.environ | {"CI": ci}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout.splitlines()[-1].startswith(outcome), run.stdout
    assert ("with CI set, no test may be skipped for want of a tool" in run.stdout) is bool(ci)
