"""What `presilicon rtl array` writes: complete, and its testbench passes."""

import json
import re

import pytest
from click.testing import CliRunner

from presilicon.base import ConfigError, RunFailedError
from presilicon.cli.rtl import command
from presilicon.rtl.testbench import run_testbench

SMALL = [f"{field}=2" for field in ("machine.rows", "machine.cols", "numerics.mac.rows", "instrument.hardware.lanes")]
ARGUMENTS = ["array", "examples/array.toml", "--layers", "0,2", *(f"--set={text}" for text in SMALL)]
RANGES = "--set=instrument.hardware.ranges=1"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    result = CliRunner().invoke(command, [*ARGUMENTS, RANGES, "--out", str(directory), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["array"] == [2, 2]
    assert all((directory / name).exists() for name in document["files"])
    return directory


def test_lists_name_every_source(written) -> None:
    sources = {f"rtl/{path.name}" for path in (written / "rtl").glob("*.sv")}
    for name in ("array.f", "vivado.tcl", "quartus.qip"):
        assert set(re.findall(r"rtl/\w+\.sv", (written / name).read_text())) == sources


def test_the_readme_names_every_port(written) -> None:
    readme = (written / "README.md").read_text()
    ports = re.findall(
        r"^    (?:in|out)put +logic (?:\[\d+:0\] )?(\w+)", (written / "rtl/array_top.sv").read_text(), re.M
    )
    assert len(ports) > 40
    assert all(f"| `{port}` |" in readme for port in ports)
    assert "- tap 1: error of layer 1 (`2`)" in readme


def test_the_testbench_passes_and_can_fail(tmp_path) -> None:
    """Without an instrument, and with sums that leave the cells after two of four samples."""
    fields = ("machine.rows", "machine.cols", "numerics.mac.rows")
    settings = ["machine.transpose=in-place", "numerics.mac.order=systolic", *(f"{field}=2" for field in fields)]
    arguments = ["array", "fp8-systolic", *(f"--set={text}" for text in settings), "--out", str(tmp_path), "--simulate"]
    result = CliRunner().invoke(command, arguments)
    # 3 x 3 weights: four folds of 2 + 6 cycles, the first of the input gradient without a load, eight of 2 + 4.
    assert "testbench: PASS: 24 vectors as expected, 110 cycles of the array" in result.output
    expected = tmp_path / "tb" / "expected.hex"
    right = expected.read_text()
    lines = right.splitlines()
    lines[0] = f"{int(lines[0], 16) ^ 1:x}"
    expected.write_text("\n".join(lines) + "\n")
    with pytest.raises(RunFailedError, match="product 0, line 0, group 0, lane 0 is"):
        run_testbench(tmp_path, "array")


def test_the_test_in_cocotb_is_python(written) -> None:
    compile((written / "tb/test_array.py").read_text(), "test_array.py", "exec")


def test_what_cannot_be_written(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        CliRunner().invoke(
            command, [*ARGUMENTS, RANGES, "--out", str(tmp_path / "file" / "in")], catch_exceptions=False
        )
    with pytest.raises(ConfigError, match="name the layers"):
        CliRunner().invoke(command, ["array", "examples/array.toml", "--out", str(tmp_path)], catch_exceptions=False)
