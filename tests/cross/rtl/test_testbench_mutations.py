"""Delivered testbenches find at least nine in ten of a fixed list of faults, in Icarus Verilog."""

import shutil
import subprocess
from pathlib import Path

import pytest
from test_simulators import PROJECTS

ALU = "rtl/presilicon_alu_lane.sv"
PACKETS = "rtl/presilicon_packetizer.sv"
LOADER = "rtl/presilicon_loader.sv"
SELECTION = "rtl/presilicon_selection.sv"
SEQUENCER = "rtl/presilicon_sequencer.sv"
PACK = "rtl/presilicon_float_pack.sv"
UNPACK = "rtl/presilicon_unpack.sv"
MAC = "rtl/presilicon_mac.sv"
CONTROL = "rtl/presilicon_linear_control.sv"
CELL = "rtl/presilicon_cell.sv"
Fault = tuple[str, str, str]

CORE: dict[str, Fault] = {
    "saturation removed": (ALU, "wire fits = total[WORD] == total[WORD-1];", "wire fits = 1'b1;"),
    "saturation is not sticky": (ALU, "x_end ? x : s_end ? s ^ {WORD{sub}} : saturated", "saturated"),
    "checksums of images ignored": (LOADER, "crc != 32'hDEBB20E3", "1'b0"),
    "refusals not counted": (LOADER, "refused <= refused + 16'd1", "refused <= refused"),
    "refusals without a code": (LOADER, "refusal <= code", "refusal <= 8'd0"),
    "images not counted": (LOADER, "taken <= taken + 16'd1", "taken <= taken"),
    "conditions of commits ignored": (SEQUENCER, "do_commit ? chain[6:5] : 2'd0", "chain[6:5]"),
    "conditions of sums ignored": (SEQUENCER, "do_alu ? chain[18:16] : 3'd0", "chain[18:16]"),
    "ranges open above": (
        "rtl/presilicon_filter_lane.sv", "key > $signed(row_keys[m*KEY+:WORD+1])",
        "key >= $signed(row_keys[m*KEY+:WORD+1])",
    ),
    "no forwarding": ("rtl/presilicon_vector_alu.sv", ".fetch_forward(newest)", ".fetch_forward('0)"),
    "packer loses the second block": ("rtl/presilicon_packer.sv", "gives : gives_two;", "gives : 1'b0;"),
}  # fmt: skip
STREAM: dict[str, Fault] = {
    **CORE,
    "back pressure ignored": (PACKETS, "wire step = !out_valid || out_ready;", "wire step = 1'b1;"),
    "another checksum": (PACKETS, "16'h1021", "16'h1020"),
    "packets not numbered": (PACKETS, "number <= number + 8'd1", "number <= number"),
    "frames not numbered": (SELECTION, "number[32*t+:32] + 32'd1", "number[32*t+:32]"),
    "drops not counted": (SELECTION, "+ 32'(drops[t])", "+ 32'd0"),
    "drops not reported": (PACKETS, "if (changed) told <= 1'b0;", ""),
    "frames never end": (PACKETS, "number, tap, block_last, 7'd1", "number, tap, 1'b0, 7'd1"),
}
BARE: dict[str, Fault] = {
    **CORE,
    "back pressure ignored": (
        "rtl/presilicon_packer.sv", "      .out_valid,\n      .out_ready,",
        "      .out_valid,\n      .out_ready(1'b1),",
    ),
    "input held back never": (
        "rtl/presilicon_bare.sv", "assign in_ready = core_ready && !hold;", "assign in_ready = 1'b1;",
    ),
}  # fmt: skip
MAC_FAULTS: dict[str, Fault] = {
    "NaN removed": (PACK, "if (nan_1) chosen = NAN;", "if (1'b0) chosen = NAN;"),
    "infinity removed": (PACK, "else if (infinity_1 || (too_large", "else if (1'b0 || (too_large"),
    "overflow removed": (PACK, "(too_large && !stops)", "1'b0"),
    "ties away": (PACK, "half && (rest || code[0])", "half"),
    "truncation": (PACK, "NEAREST_EVEN: away = half && (rest || code[0]);", "NEAREST_EVEN: away = 1'b0;"),
    "NaN of operands removed": (UNPACK, "SPECIALS == IEEE ? magnitude > INFINITY", "SPECIALS == IEEE ? 1'b0"),
    "infinity of operands removed": (UNPACK, "&& magnitude == INFINITY;", "&& 1'b0;"),
    "subnormals are zeros": (UNPACK, "MANTISSA{!is_flushed}", "MANTISSA{|field}"),
    "subnormals have the wrong exponent": (UNPACK, "12'(|field ? field : FIELD'(1))", "12'(field)"),
    "sums begin with the last one": (MAC, "begins_1 ? '0 : partial", "partial"),
    "bubbles are added": (MAC, "if (valid_1) partial <= sum;", "if (1'b1) partial <= sum;"),
    "sums never end": (MAC, "valid_1 && ends_1;", "valid_1;"),
}

ARRAY_FAULTS: dict[str, Fault] = {
    "weights are loaded again": (CONTROL, "(state == IDLE ? resident : has_tile)", "1'b0"),
    "rest of rows ignored": (CONTROL, "row_group == last_row ? rest_rows :", "1'b0 ? rest_rows :"),
    "rest of columns ignored": (CONTROL, "column_group == last_column ? rest_columns :", "1'b0 ? rest_columns :"),
    "the wrong sums": (CELL, "mode == SUMS_RIGHT ? sum_left : sum_above", "mode == SUMS_RIGHT ? sum_above : sum_left"),
    "sums that stay are not begun": (CELL, "moving[WORD] ? '0 : sum", "sum"),
    "stalls ignored": (CELL, "if (enable) begin\n      sum   <= summed;", "begin\n      sum   <= summed;"),
    "weights of the next row": (CONTROL, "ROW'(ROWS - 1) - ROW'(tick);\n  assign weights_row_group",
                                "ROW'(tick);\n  assign weights_row_group"),
    "one idle cycle": (CONTROL, "TICK'(ROWS + COLS - 3)", "TICK'(ROWS + COLS - 2)"),
    "NaN removed": (PACK, "if (nan_1) chosen = NAN;", "if (1'b0) chosen = NAN;"),
    "subnormals have the wrong exponent": (UNPACK, "12'(|field ? field : FIELD'(1))", "12'(field)"),
}  # fmt: skip
LISTS = {
    "instrument, narrow": ("instrument", STREAM),
    "bare core": ("instrument", BARE),
    "mac, many outputs": ("mac", MAC_FAULTS),
    "array": ("array", ARRAY_FAULTS),
}


def passes(name: str, directory: Path) -> bool:
    """Whether a project's testbench passes in Icarus Verilog."""
    lines = (directory / f"{name}.f").read_text().split()[1:]
    command = ["iverilog", "-g2012", "-I", "rtl", "-s", f"{name}_tb", "-o", "bench.vvp", *lines, f"tb/{name}_tb.sv"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    try:
        done = subprocess.run(["vvp", "-n", "bench.vvp"], cwd=directory, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and "PASS" in done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("project", LISTS)
def test_a_delivered_testbench_finds_nine_of_ten_faults(project: str, tmp_path: Path) -> None:
    if shutil.which("iverilog") is None:
        pytest.skip("not here: iverilog (Icarus Verilog)")
    name, faults = LISTS[project]
    PROJECTS[project][1](tmp_path / "right")
    assert passes(name, tmp_path / "right")
    survivors = []
    for fault, (file, right, wrong) in faults.items():
        directory = tmp_path / "wrong"
        shutil.copytree(tmp_path / "right", directory)
        text = (directory / file).read_text()
        assert text.count(right) >= 1, fault
        (directory / file).write_text(text.replace(right, wrong, 1))
        if passes(name, directory):
            survivors.append(fault)
        shutil.rmtree(directory)
    assert len(survivors) <= len(faults) / 10, survivors
