import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from interpreter import Interpreter

_FORMATS = Path(__file__).parent / "formats"
sys.path.insert(0, str(_FORMATS))
collect_ignore = [] if find_spec("triton") else ["formats/draw_kernel.py"]


@pytest.fixture(scope="session")
def interpret() -> Iterator[Callable[[str], str]]:
    """Runs Python code where Triton interprets its kernels, and returns what it prints.

    The interpreter must be asked for before Triton is imported: that needs a process of its own.
    """
    path = os.pathsep.join([str(_FORMATS), str(_FORMATS.parents[1]), os.environ.get("PYTHONPATH", "")])
    with Interpreter(os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}) as interpreter:

        def run(code: str) -> str:
            outcome = interpreter.run(code)
            assert outcome.status == 0, outcome.status
            return outcome.out.strip()

        yield run
