"""Every circuit that is written, with its testbench, passes in Icarus Verilog (four states) and in Verilator."""

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from arrays import array_design

from presilicon.designs import Hardware, load_design
from presilicon.formats import MacUnit, parse
from presilicon.rtl.arithmetic.write_mac import write_mac
from presilicon.rtl.array.circuit import array_circuit
from presilicon.rtl.array.write_array import write_array
from presilicon.rtl.generate import write_instrument
from presilicon.rtl.testbench import run_testbench

SIZES = {"lanes": 4, "ranges": 2, "range_rows": 2, "scratchpad_rows": 3, "chains": 6, "buffer": 4}
Write = Callable[[Path], list[Path]]


def instrument(element: str, bits: int | None = None, other_clock=(), **fields) -> Write:
    hardware = Hardware(**{**SIZES, **fields}, element=parse(element), accumulator_bits=bits)
    return lambda directory: write_instrument(hardware, directory, other_clock=other_clock)


def mac(left: str, right: str, outputs: int = 6, **fields) -> Write:
    unit = MacUnit(**{"accumulate": parse("float16"), **fields})
    return lambda directory: write_mac(parse(left), parse(right), unit, directory, outputs=outputs)


def array(**fields) -> Write:
    return lambda directory: write_array(array_circuit(array_design(2, 3, **fields)), directory)


def watched_array(directory: Path) -> list[Path]:
    sizes = ["machine.rows", "machine.cols", "numerics.mac.rows", "instrument.hardware.lanes"]
    design = load_design("examples/array.toml", [*(f"{size}=2" for size in sizes), "instrument.hardware.ranges=1"])
    return write_array(array_circuit(design, ["0", "2"]), directory)


PROJECTS: dict[str, tuple[str, Write]] = {
    "instrument, two clocks": ("instrument", instrument("fixed(4, 4)", taps=2, other_clock=[1])),
    "instrument, narrow": ("instrument", instrument("fixed(4, 4)", taps=2)),
    "instrument, three taps": ("instrument", instrument("int8", 12, taps=3)),
    "instrument of floats": ("instrument", instrument("float(4, 3)", 12, lanes=2, flush="frame")),
    "bare core": ("instrument", instrument("int8")),
    "bare core of floats": ("instrument", instrument("e5m2", lanes=2)),
    "bare core of one lane": ("instrument", instrument("int8", lanes=1, ranges=1)),
    "mac": ("mac", mac("e4m3", "e5m2", chunk=8)),
    "mac, many outputs": ("mac", mac("e4m3", "e5m2", 64, chunk=8)),
    "mac, stochastic": ("mac", mac("e4m3", "e4m3", chunk=8, rounding="stochastic(bits=8, source=lfsr)")),
    "mac, aligned": ("mac", mac("e4m3", "fp4_e2m1", order="aligned", width=4, chunk=4, align_bits=12)),
    "mac, slices": (
        "mac", mac("bfp(4, group=4)", "bfp(3, group=4)", order="aligned", width=4, chunk=4, align_bits=8, slice_bits=2,
                   accumulate=parse("float32")),
    ),
    "mac, fixed": ("mac", mac("fixed(4, 4)", "fixed(2, 6)", accumulate=parse("fixed(6, 5)"))),
    "array": ("array", array()),
    "array of columns, overlapped": ("array", array(columns=True, overlap=True)),
    "array with an instrument": ("array", watched_array),
}  # fmt: skip


def icarus(name: str, directory: Path, top: str, *sources: str) -> str:
    """The last line that a circuit prints in Icarus Verilog."""
    if absent := [tool for tool in ("iverilog", "vvp") if shutil.which(tool) is None]:
        pytest.skip(f"not here: {', '.join(absent)} (Icarus Verilog)")
    run = partial(subprocess.run, cwd=directory, capture_output=True, text=True, check=False)
    built = run(["iverilog", "-g2012", "-I", "rtl", "-f", f"{name}.f", "-s", top, "-o", f"{top}.vvp", *sources])
    assert built.returncode == 0, built.stderr[-3000:]
    if not sources:
        return ""
    done = run(["vvp", "-n", f"{top}.vvp"])
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_passes_in_icarus(project: str, tmp_path: Path) -> None:
    name, write = PROJECTS[project]
    write(tmp_path)
    assert "PASS" in icarus(name, tmp_path, f"{name}_tb", f"tb/{name}_tb.sv")


def test_the_top_with_a_serial_line_is_read_by_icarus(tmp_path: Path) -> None:
    PROJECTS["instrument, three taps"][1](tmp_path)
    icarus("instrument", tmp_path, "instrument_uart_top")


@pytest.mark.slow
@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_passes_in_verilator(project: str, tmp_path: Path) -> None:
    name, write = PROJECTS[project]
    write(tmp_path)
    assert run_testbench(tmp_path, name).startswith("PASS")
