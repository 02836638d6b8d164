"""What `presilicon rtl instrument` writes: complete, and its testbench passes."""

import json
import re

import pytest
from click.testing import CliRunner

from presilicon.base import ConfigError
from presilicon.cli.rtl import command
from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.rtl.generate import write_instrument
from presilicon.rtl.testbench import run_testbench
from presilicon.rtl.verilator import run_verilator

SMALL = {"lanes": 2, "ranges": 2, "range_rows": 1, "scratchpad_rows": 2, "chains": 4, "buffer": 4}
TWO_TAPS = Hardware(**SMALL, element=parse("fixed(4, 4)"), taps=2)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    write_instrument(TWO_TAPS, directory, other_clock=[1])
    return directory


def test_lists_name_every_source(written) -> None:
    sources = {f"rtl/{path.name}" for path in (written / "rtl").glob("*.sv")}
    for name in ("instrument.f", "vivado.tcl", "quartus.qip"):
        text = (written / name).read_text()
        assert set(re.findall(r"rtl/\w+\.sv", text)) == sources
    assert "tap1_clock" in (written / "constraints.md").read_text()


def test_the_testbench_passes(written) -> None:
    assert run_testbench(written).startswith("PASS")


def test_the_testbench_can_fail(written, tmp_path) -> None:
    expected = written / "tb" / "expected.hex"
    right = expected.read_text()
    lines = right.splitlines()
    lines[40] = f"{int(lines[40], 16) ^ 1:x}"
    expected.write_text("\n".join(lines) + "\n")
    try:
        with pytest.raises(Exception, match="byte 40"):
            run_testbench(written)
    finally:
        expected.write_text(right)


def test_tops_are_clean(written) -> None:
    for top in ("instrument_top", "instrument_uart_top"):
        run_verilator(["--lint-only", "-Wall", "-f", "instrument.f", "--top-module", top], cwd=written)


def test_the_bare_core_has_a_testbench_too(tmp_path) -> None:
    hardware = Hardware(**SMALL, element=parse("e5m2"))
    write_instrument(hardware, tmp_path)
    assert not (tmp_path / "rtl" / "presilicon_packetizer.sv").exists()
    assert run_testbench(tmp_path).startswith("PASS")
    run_verilator(["--lint-only", "-Wall", "-f", "instrument.f", "--top-module", "instrument_top"], cwd=tmp_path)


def test_the_command(tmp_path) -> None:
    config = tmp_path / "c.json"
    config.write_text(json.dumps({**SMALL, "element": "int8", "taps": 2}))
    result = CliRunner().invoke(command, ["instrument", str(config), "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert "rtl/instrument_top.sv" in document["files"]
    assert all((tmp_path / "out" / name).exists() for name in document["files"])


def test_what_cannot_be_written(tmp_path) -> None:
    with pytest.raises(ConfigError, match="taps 0 to 1"):
        write_instrument(TWO_TAPS, tmp_path, other_clock=[2])
    with pytest.raises(ConfigError, match="bare core"):
        write_instrument(Hardware(**SMALL), tmp_path, other_clock=[0])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        write_instrument(TWO_TAPS, tmp_path / "file")
    with pytest.raises(ConfigError, match="no \\[instrument\\]"):
        CliRunner().invoke(command, ["instrument", "bf16-systolic", "--out", str(tmp_path)], catch_exceptions=False)
