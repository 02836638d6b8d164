import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from hopper import COUNT, START, bare
from interpreter import Interpreter

_FORMATS = Path(__file__).parent / "formats"
sys.path.insert(0, str(_FORMATS))
collect_ignore = [] if find_spec("triton") else ["formats/draw_kernel.py"]


_PATH = os.pathsep.join([str(_FORMATS), str(_FORMATS.parents[1]), os.environ.get("PYTHONPATH", "")])
Run = Callable[[str], str]


def _run(interpreter: Interpreter, code: str) -> str:
    outcome = interpreter.run(code)
    assert outcome.status == 0, outcome.status
    return outcome.out.strip()


@pytest.fixture(scope="session")
def interpret() -> Iterator[Run]:
    """Runs Python code where Triton interprets its kernels, and returns what it prints.

    The interpreter must be asked for before Triton is imported: that needs a process of its own.
    """
    with Interpreter(os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": _PATH}) as interpreter:
        yield partial(_run, interpreter)


@pytest.fixture(scope="session", params=["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def run_kernels(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs code whose kernels are interpreted, or compiled for an H200 and not run (see `hopper`)."""
    if request.param == "interpreted":
        yield request.getfixturevalue("interpret")
        return
    with Interpreter(os.environ | {"PYTHONPATH": _PATH}) as interpreter:
        _run(interpreter, START)
        yield lambda code: _run(interpreter, bare(code))
        assert int(_run(interpreter, COUNT)) > 0
