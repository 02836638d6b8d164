import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interpreter import Interpreter

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def interpret() -> Iterator[Callable[[str], str]]:
    """Runs Python code where Triton interprets its kernels, and returns what it prints.

    The interpreter must be asked for before Triton is imported: that needs a process of its own.
    """
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with Interpreter(os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}) as interpreter:

        def run(code: str) -> str:
            outcome = interpreter.run(code)
            assert outcome.status == 0, outcome.status
            return outcome.out.strip()

        yield run
