import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from presilicon.base import DOCUMENT_SCHEMA
from presilicon.cli.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        document = json.loads(self.out)
        assert document["schema"] == DOCUMENT_SCHEMA
        return document

    @property
    def design(self) -> Any:
        """The only design of the document."""
        (design,) = self.document["designs"]
        return design


@pytest.fixture
def invoke(capsys, tmp_path, monkeypatch):
    """Runs the command line in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return Outcome(ended.value.code, captured.out, captured.err)

    return call


@pytest.fixture
def python():
    """Runs a piece of Python in a fresh interpreter and gives what it printed."""

    def run(code: str, cwd: Path | None = None) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
