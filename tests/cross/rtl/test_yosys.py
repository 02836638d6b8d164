"""Yosys reads the same circuit as Verilator: what it writes back passes the testbench."""

import subprocess

import pytest
from circuits import make

from presilicon.rtl.generate import write_instrument
from presilicon.rtl.testbench import BENCH
from presilicon.rtl.verilator import build_program
from presilicon.rtl.yosys import run_yosys


@pytest.mark.parametrize(("element", "bits"), [("fixed(4, 4)", 12), ("e5m2", 11)])
def test_a_circuit_that_yosys_wrote(element, bits, tmp_path) -> None:
    write_instrument(make(2, 2, element, bits, taps=2), tmp_path, other_clock=[1])
    run_yosys(
        "read_verilog -sv -Irtl rtl/*.sv\nhierarchy -check -top instrument_top\nproc\nflatten\nopt\nmemory_collect\n"
        "opt_clean -purge\ncheck -assert\nwrite_verilog -noattr netlist.v\n",
        tmp_path,
    )
    program = build_program(BENCH, [tmp_path / "netlist.v", tmp_path / "tb" / f"{BENCH}.sv"], [])
    done = subprocess.run([str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "PASS" in done.stdout, done.stdout
