"""The array of a design: what it is made of, and what is refused."""

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import ProductNumerics, load_design
from presilicon.formats import MacUnit
from presilicon.rtl import array_circuit
from presilicon.rtl.array.top import TOP, files_of, top_text
from presilicon.rtl.sources import SOURCES
from presilicon.rtl.verilator import run_verilator

EXAMPLE = "examples/array.toml"
LAYERS = ("0", "2")


def circuit_of(*settings: str, layers=LAYERS, **sizes):
    return array_circuit(load_design(EXAMPLE, settings), layers, **sizes)


def test_cells_hold_every_operand_and_sizes_count_what_is_asked_for() -> None:
    circuit = circuit_of(samples=100, features=70)
    assert (str(circuit.operand), circuit.sample_bits, circuit.group_bits) == ("float(exponent=5, mantissa=3)", 7, 3)
    assert circuit.most_samples == 128
    assert [(tap.layer, tap.role) for tap in circuit.taps] == [(0, "activation"), (1, "error")]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["machine.transpose=free"], 'transpose must be "in-place", not "free"'),
        (["machine.dataflow.weight_grad=weight-stationary"], 'weight_grad must be "output-stationary"'),
        (["machine.rows=1", "numerics.input_grad.mac.order=chunked", "numerics.input_grad.mac.chunk=1",
          "numerics.mac.rows=1"], "at least 2 rows"),
        (["numerics.weight_grad.mac.order=pairwise"], "one after another"),
        (["numerics.weight_grad.mac.accumulate=float16"], "share the cells' adder"),
        (["numerics.mac.rounding=stochastic(bits=8, source=lfsr)"], "cells have no shift registers"),
        (["numerics.weight=bfp(4)"], "scales of groups"),
        (["numerics.weight=int8"], "one multiplier"),
        (["numerics.weight_grad.activation=bfloat16"], "activation must have one format"),
        (["numerics.forward.hadamard=16", "numerics.input_grad.hadamard=16"], "does not transform its operands"),
        (["instrument.hardware.lanes=8"], "set lanes = 16"),
        (["instrument.hardware.taps=3"], "set taps = 2"),
        (["instrument.hardware.element=e5m2"], "does not hold every number of e4m3"),
        (["machine.cores.count=4"], "cores.count must be 1"),
        (["machine.sparsity.zeros=weights"], "sparsity.zeros must be"),
    ],
)  # fmt: skip
def test_what_the_hardware_cannot_do_is_refused_with_the_reason(settings, reason) -> None:
    with pytest.raises(ConfigError, match=reason):
        circuit_of(*settings)


def test_a_unit_must_name_an_order_since_torch_has_one_of_its_own() -> None:
    design = load_design("fp8-systolic", ["machine.transpose=in-place"])
    with pytest.raises(ConfigError, match=r"numerics.mac: .*an order of its own.*try order=systolic, rows=128"):
        array_circuit(design)
    mac = MacUnit(order="systolic", rows=128)
    numerics = replace(design.numerics, mac=mac, weight_grad=ProductNumerics(mac=MacUnit()))
    with pytest.raises(ConfigError, match=r"numerics.weight_grad.mac: .*try order=sequential"):
        array_circuit(replace(design, numerics=numerics))
    assert array_circuit(replace(design, numerics=replace(design.numerics, mac=mac))).chunk == 128


def test_taps_need_layers_that_exist_and_tensors_that_pass_the_edges() -> None:
    with pytest.raises(ConfigError, match="name the layers"):
        circuit_of(layers=())
    with pytest.raises(ConfigError, match="matches no layer"):
        circuit_of(layers=("0", "1"))
    with pytest.raises(ConfigError, match="samples must be from 1"):
        circuit_of(samples=0)
    with pytest.raises(ConfigError, match="has no systolic array"):
        array_circuit(load_design("h200"))


@pytest.mark.parametrize(
    "settings",
    [(), ("machine.fold_overlap=false", "machine.reduction=columns", "numerics.weight_grad.mac.chunk=3")],
)
def test_lint_of_the_top_level_is_clean(settings, tmp_path) -> None:
    sides = ("machine.rows", "machine.cols", "numerics.mac.rows", "instrument.hardware.lanes")
    circuit = circuit_of(*(f"{side}=4" for side in sides), *settings)
    top = tmp_path / f"{TOP}.sv"
    top.write_text(top_text(circuit, "an array"))
    files = [path for path in SOURCES.rglob("*.sv") if path.name in files_of(circuit)]
    run_verilator(["--lint-only", "-Wall", f"-I{SOURCES}", "--top-module", TOP, *map(str, [*files, top])])
