"""What `presilicon rtl mac` writes: complete, and its testbench passes."""

import json
import re

import pytest
from click.testing import CliRunner

from presilicon.base import ConfigError, RunFailedError
from presilicon.cli.rtl import command
from presilicon.formats import MacUnit, parse
from presilicon.rtl.arithmetic.write_mac import write_mac
from presilicon.rtl.testbench import run_testbench
from presilicon.rtl.verilator import run_verilator

UNIT = MacUnit(accumulate=parse("float16"), chunk=8, rounding="stochastic(bits=8, source=lfsr)")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    write_mac(parse("e4m3"), parse("e5m2"), UNIT, directory, outputs=24)
    return directory


def test_lists_name_every_source(written) -> None:
    sources = {f"rtl/{path.name}" for path in (written / "rtl").glob("*.sv")}
    for name in ("mac.f", "vivado.tcl", "quartus.qip"):
        assert set(re.findall(r"rtl/\w+\.sv", (written / name).read_text())) == sources
    assert [path.name for path in (written / "rtl").glob("*.svh")] == ["presilicon_format.svh"]


def test_the_testbench_passes_and_can_fail(written) -> None:
    assert run_testbench(written, "mac") == "PASS: 24 sums as expected"
    expected = written / "tb" / "expected.hex"
    right = expected.read_text()
    lines = right.splitlines()
    lines[7] = f"{int(lines[7], 16) ^ 1:x}"
    expected.write_text("\n".join(lines) + "\n")
    try:
        with pytest.raises(RunFailedError, match="sum 7 is"):
            run_testbench(written, "mac")
    finally:
        expected.write_text(right)


def test_the_top_is_clean(written) -> None:
    run_verilator(["--lint-only", "-Wall", "-f", "mac.f", "--top-module", "mac_top"], cwd=written)


def test_the_command_writes_the_unit_of_a_product(tmp_path) -> None:
    arguments = ["mac", "edge-fp8", "--product", "input_grad", "--outputs", "4", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["left"], document["right"]) == ("e5m2", "e4m3")
    assert all((tmp_path / name).exists() for name in document["files"])
    assert "torch.matmul" in (tmp_path / "README.md").read_text(), "emulation adds this unit's sums in another order"


@pytest.mark.parametrize(
    ("layer", "left", "note"),
    [
        ("last", "bfloat16", ""),
        ("fc2", "float16", ""),
        (None, "e4m3", 'layers "last", "fc2" have numerics of their own'),
        ("fc3", "e4m3", "numerics change from step 9 on, which this leaves out"),
    ],
)
def test_the_command_writes_the_unit_of_a_layer(tmp_path, layer: str | None, left: str, note: str) -> None:
    text = 'name = "mixed"\nbase = "edge-fp8"\n[[numerics.overrides]]\nlayers = "last"\nactivation = "bfloat16"\n'
    text += '[[numerics.overrides]]\nlayers = "fc2"\nactivation = "float16"\n'
    text += '[[numerics.schedule]]\nlayers = "fc3"\nfrom_step = 9\nactivation = "float16"\n'
    (tmp_path / "mixed.toml").write_text(text)
    chosen = [] if layer is None else ["--layer", layer]
    arguments = ["mac", str(tmp_path / "mixed.toml"), "--out", str(tmp_path / "out"), "--json", *chosen]
    result = CliRunner().invoke(command, arguments)
    assert json.loads(result.stdout)["left"] == left
    assert note in result.stderr
    assert bool(note) == bool(result.stderr)
    with pytest.raises(ConfigError, match=r'--layer nosuch: .*own: "last", "fc2", "fc3"\)'):
        CliRunner().invoke(command, [*arguments, "--layer", "nosuch"], catch_exceptions=False)


def test_an_fmac_has_a_testbench_too(tmp_path) -> None:
    unit = MacUnit(order="aligned", width=4, chunk=4, align_bits=8, slice_bits=2)
    write_mac(parse("bfp(4, group=4)"), parse("bfp(3, group=4)"), unit, tmp_path, outputs=6)
    assert run_testbench(tmp_path, "mac") == "PASS: 6 sums as expected"


def test_what_cannot_be_written(tmp_path) -> None:
    with pytest.raises(ConfigError, match="outputs must be from 1 to 4096, not 0"):
        write_mac(parse("e4m3"), parse("e4m3"), UNIT, tmp_path, outputs=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        write_mac(parse("e4m3"), parse("e4m3"), UNIT, tmp_path / "file")
    with pytest.raises(ConfigError, match="try order=aligned"):
        CliRunner().invoke(
            command,
            ["mac", "edge-fp8", "--set", "numerics.mac.order=pairwise", "--out", str(tmp_path)],
            catch_exceptions=False,
        )
