"""A tapped design is the user's: equal by Yosys' proof, with its attributes, instances and clocks, or refused."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from circuits import make

from presilicon.base import ConfigError
from presilicon.rtl.sources import SOURCES
from presilicon.rtl.tap import Signal, list_signals, tap_design
from presilicon.rtl.yosys import YosysError, run_yosys

HARDWARE = make(4, 4, "int8", 12)
BOXES = """(* blackbox *)
module pll #(parameter DIV = 2, parameter MODE = "FAST", parameter real RATIO = 1.5) (input i, output o);
endmodule
(* blackbox *)
module fifo #(parameter W = 8, parameter MODE = "FAST") (input clk, input [W-1:0] i, output [W-1:0] o);
endmodule
module stub #(parameter W = 8) (input clk, input [W-1:0] i, output [W-1:0] o);
endmodule
"""
DESIGN = """module leaf (input clk, input [7:0] d, output [7:0] q);
  (* ASYNC_REG = "TRUE", dont_touch = "yes" *) reg [7:0] meta, sync;
  always @(posedge clk) begin meta <= d; sync <= meta; end
  assign q = sync;
endmodule
(* keep_hierarchy *)
module kept (input clk, input [7:0] d, output reg [7:0] q);
  always @(posedge clk) q <= d;
endmodule
module top (input clk, input rst, input other, input choose, input [7:0] d, output [7:0] q, output p, output [7:0] k,
            output reg [31:0] m, output reg [7:0] flags);
  leaf l (.clk(clk), .d(d), .q(q));
  pll #(.DIV(5), .MODE("SLOW")) p0 (.i(clk), .o(p));
  pll p1 (.i(clk), .o());
  wire [11:0] wide;
  wire [7:0] narrow;
  fifo #(.W(12)) f0 (.clk(clk), .i({4'b0, d}), .o(wide));
  stub #(.W(8)) s0 (.clk(clk), .i(d), .o(narrow));
  (* mark_debug = "true" *) kept kk (.clk(clk), .d(q), .q(k));
  (* ram_style = "block" *) reg [7:0] mem [0:15];
  (* keep = "true" *) wire [7:0] foo = d ^ q;
  (* dont_touch = "yes" *) reg [7:0] nobody_reads;
  always @(posedge clk) begin
    nobody_reads <= d;
    mem[d[3:0]] <= q;
    m <= rst ? 0 : m + mem[q[3:0]];
    flags <= wide[7:0] ^ narrow;
  end
  wire gated = clk & choose;
  wire selected = choose ? clk : other;
  wire buffered = !(!clk);
  reg [31:0] by_gated, by_selected, by_buffered, by_pll;
  always @(posedge gated) by_gated <= m;
  always @(posedge selected) by_selected <= m;
  always @(posedge buffered) by_buffered <= m;
  always @(posedge p) by_pll <= m;
  wire [31:0] through_kept = {24'b0, k ^ 8'd1};
  wire [31:0] through_box = {24'b0, wide[7:0]};
endmodule
"""


@pytest.fixture
def design(tmp_path) -> Path:
    path = tmp_path / "design.v"
    path.write_text(BOXES + DESIGN)
    return path


def tap(path, top, signal, directory, **options):
    return tap_design([path], top, [Signal.parse(signal)], HARDWARE, directory, frame_length=4, **options)


def netlist(source: str, top: str, directory: Path):
    (directory / "read.v").write_text(source)
    run_yosys(
        f"read_verilog -sv read.v\nhierarchy -top {top}\nproc\nflatten\nmemory_collect\nwrite_json read.json\n",
        directory,
    )
    return json.loads((directory / "read.json").read_text())["modules"][top]


OWN = {"src", "hdlname", "top", "module_not_derived"}


def named_attributes(module):
    """Attributes of nets and instances by their names, and which nets are registers."""
    registers = {
        tuple(cell["connections"]["Q"]) for cell in module["cells"].values() if cell["type"] in ("$dff", "$sdff")
    }
    found = {}
    for kind in ("netnames", "cells"):
        for name, item in module[kind].items():
            attributes = {key: value for key, value in item["attributes"].items() if key not in OWN}
            if attributes and not item.get("hide_name") and item.get("type", "") != "$scopeinfo":
                is_register = kind == "netnames" and tuple(item["bits"]) in registers
                found[name] = attributes, is_register
    return found


DEFAULTS = {"fifo": {"MODE": "FAST"}}
"""Parameters that Yosys writes with their default values."""


def instances(module):
    cells = [(name, cell) for name, cell in module["cells"].items() if cell["type"][0] != "$"]
    return {name: (cell["type"], DEFAULTS.get(cell["type"], {}) | cell["parameters"]) for name, cell in cells}


def test_attributes_and_instances_stay(design, tmp_path) -> None:
    tap(design, "top", "m:1", tmp_path / "out")
    before = netlist(BOXES + DESIGN, "top", tmp_path)
    after = netlist(BOXES + (tmp_path / "out" / "rtl" / "top_tapped.v").read_text(), "top", tmp_path)
    wanted = named_attributes(before)
    assert wanted.keys() >= {"l.meta", "l.sync", "foo", "nobody_reads", "mem", "kk"}
    assert wanted["l.sync"] == ({"ASYNC_REG": "TRUE", "dont_touch": "yes"}, True)
    assert named_attributes(after) == wanted
    assert instances(after) == instances(before)
    assert instances(before).keys() == {"kk", "p0", "p1", "f0", "s0"}


def prove_equal(sources, top: str, tapped: Path, boxes: str, directory: Path) -> None:
    """Prove by induction that the tapped design without its taps is the design."""
    for index, source in enumerate(sources):
        shutil.copy(source, directory / f"gold{index}.sv")
    (directory / "gate.v").write_text(boxes + tapped.read_text())
    reads = "\n".join(f"read_verilog -sv gold{index}.sv" for index in range(len(sources)))
    both = []
    for name, read in (("gold", reads), ("gate", "read_verilog -sv gate.v")):
        both.append(
            f"{read}\nhierarchy -check -top {top}\nproc\nsetattr -mod -unset keep_hierarchy *\n"
            "flatten\nmemory\nasync2sync\n"
        )
        both.append("delete -output o:presilicon_*\nopt_clean\n" if name == "gate" else "opt_clean\n")
        both.append(f"rename {top} {name}\ndesign -stash {name}\n")
    compare = "".join(f"design -copy-from {name} -as {name} {name}\n" for name in ("gold", "gate"))
    compare += "equiv_make gold gate equiv\nhierarchy -top equiv\nequiv_struct -icells\n"
    compare += "equiv_simple -undef -seq 3\nequiv_induct -undef -seq 3\n"
    run_yosys("".join(both) + compare + "equiv_status -assert\n", directory)


@pytest.mark.slow
def test_the_rest_of_the_design_is_equal(design, tmp_path) -> None:
    tap(design, "top", "m:1", tmp_path / "out")
    written = tmp_path / "out" / "rtl" / "top_tapped.v"
    prove_equal([design], "top", written, BOXES, tmp_path)
    changed = written.read_text()
    assert "m + " in changed
    written.write_text(changed.replace("m + ", "m - ", 1))
    with pytest.raises(YosysError):
        prove_equal([design], "top", written, BOXES, tmp_path)


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        pytest.param("by_gated:1", "belongs to the clock gated, .*--other-clock 0", marks=pytest.mark.slow),
        ("by_gated:choose", "belongs to the clock gated, .*--other-clock 0"),
        ("by_selected:1", "belongs to the clock selected, .*--other-clock 0"),
        pytest.param("by_pll:1", "belongs to the clock p, .*--other-clock 0", marks=pytest.mark.slow),
        ("through_kept:1", 'through the instance "kk" of kept, whose clock is unknown'),
        pytest.param("through_box:1", 'through the instance "f0" of fifo, whose', marks=pytest.mark.slow),
    ],
)
def test_a_signal_whose_clock_is_not_the_instruments_is_refused(signal, message, design, tmp_path) -> None:
    with pytest.raises(ConfigError, match=message):
        tap(design, "top", signal, tmp_path / "out")


def test_a_gated_or_selected_clock_crosses_and_a_buffered_one_is_the_same(design, tmp_path) -> None:
    for name in ("by_gated", "by_selected"):
        tap(design, "top", f"{name}:1", tmp_path / name, other_clock=[0])
        assert "presilicon_tap0_clock" in (tmp_path / name / "rtl" / "top_instrumented.sv").read_text()
    tap(design, "top", "by_buffered:1", tmp_path / "out")


UNREADABLE = {
    "a reference into an instance": (
        "module e (input clk, input d, output q); reg a0; always @(posedge clk) a0 <= d; assign q = a0; endmodule\n"
        "module bad (input clk, input rst, input seed, output y, output reg [31:0] z);\n"
        "  e e0 (.clk(clk), .d(seed), .q()); assign y = e0.a0 ^ seed; always @(posedge clk) z <= z + y;\nendmodule\n",
        "design's e0.a0: Yosys does not follow",
    ),
    "an array of structs": (
        "module bad (input clk, input rst, input [7:0] d, output [31:0] z);\n"
        "  typedef struct packed { logic [7:0] a; logic [7:0] b; } pair_t;\n  pair_t [1:0] arr;\n"
        "  always_ff @(posedge clk) begin arr[0].a <= d; arr[0].b <= d; arr[1].a <= d; arr[1].b <= d; end\n"
        "  assign z = arr;\nendmodule\n",
        r"design's arr\[0\].a, .*Yosys does not follow",
    ),
    "a net without a driver": (
        "module bad (input clk, input rst, output reg [31:0] z);\n  wire [31:0] nothing;\n"
        "  always @(posedge clk) z <= nothing;\nendmodule\n",
        "design's bad.nothing.*: it has no driver",
    ),
    "a real parameter": (
        BOXES + "module bad (input clk, input rst, output reg [31:0] z, output o);\n"
        "  pll #(.RATIO(2.25)) p (.i(clk), .o(o)); always @(posedge clk) z <= z + 1;\nendmodule\n",
        "design's p.RATIO: Yosys cannot write this real parameter",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_yosys_would_change_is_refused_by_name(name, tmp_path) -> None:
    text, message = UNREADABLE[name]
    path = tmp_path / "bad.sv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        list_signals([path], "bad")


# ---- the queue between two clocks


@pytest.mark.parametrize("periods", [(10, 10), (10, 80), (10, 200), (200, 10), (30, 20), (7, 140)])
@pytest.mark.parametrize("side", ["in", "out"])
def test_a_reset_of_one_cycle_of_either_side_empties_the_queue(periods, side, tmp_path) -> None:
    if shutil.which("iverilog") is None:
        pytest.skip("not here: iverilog (Icarus Verilog)")
    sources = [Path(__file__).with_name("crossing_bench.sv"), SOURCES / "presilicon_async_fifo.sv"]
    values = {"IN_PERIOD": periods[0], "OUT_PERIOD": periods[1], "SIDE": int(side == "out")}
    for phase in (0, 3):
        given = [f"-Pcrossing_bench.{name}={value}" for name, value in {**values, "PHASE": phase}.items()]
        built = tmp_path / "bench.vvp"
        command = ["iverilog", "-g2012", "-s", "crossing_bench", *given, "-o", built, *sources]
        subprocess.run(command, check=True, capture_output=True)
        done = subprocess.run(["vvp", "-n", built], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1].endswith("filled, 0 stale, 50 fresh")
