"""A Python process that runs one piece of code after another: what it imports is imported once."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_SERVER = """
import contextlib, io, json, os, sys, traceback
replies = sys.stdout
for line in sys.stdin:
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(json.loads(line), {"__name__": "code"})
        except SystemExit as end:
            status = end.code
        except BaseException:
            status = traceback.format_exc()
    print(json.dumps([status, out.getvalue(), err.getvalue()]), file=replies, flush=True)
os._exit(0)  # taking down what was imported takes a second
"""


class Outcome(NamedTuple):
    status: int | str | None
    """0, the exit status, or the traceback of an error."""
    out: str
    err: str


class Interpreter:
    """The process, until the end of a `with` block."""

    def __init__(self, environment: Mapping[str, str], directory: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=directory,
        )  # fmt: skip

    def run(self, code: str) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(code), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the process ended with {self._process.wait()}"
        return Outcome(*json.loads(line))

    def presilicon(self, *arguments: str) -> Outcome:
        """Run the command line."""
        return self.run(f"from presilicon.cli.main import main; main({list(arguments)!r})")

    def __enter__(self) -> "Interpreter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.communicate()
