"""The systolic array equals the emulator's bits and the simulator's cycles, and an MLP trains on it as in emulation."""

import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from arrays import array_design, codes_of, emulated, operands, simulated_cycles, train_emulated, train_on_array
from msgspec.structs import replace
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import Hardware, Instrument, ProductNumerics, Tap
from presilicon.formats import MacUnit, decode, parse
from presilicon.records import PRODUCT_PHASES
from presilicon.rtl.array.circuit import array_circuit
from presilicon.rtl.array.model import ArrayModel
from presilicon.rtl.sources import SOURCES
from presilicon.simulation import simulate
from presilicon.simulation.systolic.reference import run_array, run_in_place
from presilicon.workloads import capture

SUMS = MacUnit(
    accumulate=parse("float(6, 9)"),
    partial=parse("float(5, 10)"),
    multiply=parse("float(6, 7)"),
    rounding="toward-zero",
)
WATCHED = Instrument(
    hardware=Hardware(lanes=4, ranges=2, element=parse("float16"), buffer=16, taps=4, chains=8, controls=1),
    taps=(
        Tap(name="in", layers="*", aggregation="summary", every=1, vectors="all"),
        Tap(name="back", layers="*", role="error", aggregation="sparsity", every=2, vectors="all"),
    ),
)
LAYERS = ("0", "2")
"""Linear layers of the MLP, around a ReLU."""


NARROW = MacUnit(accumulate=parse("float(6, 9)"))
"""Sums that are rounded often."""


def small():
    """Tiles of 4 x 4, with the instrument that training needs; compiled once for all tests."""
    return replace(array_design(4, 4, NARROW), instrument=WATCHED)


def check(design, samples: int, inputs: int, outputs: int, *, gap: float = 0.0, layers=(), sources=SOURCES) -> None:
    circuit = array_circuit(design, layers, samples=16, features=16)
    codes = operands(circuit, samples, inputs, outputs)
    run = ArrayModel(circuit, gap=gap, sources=sources).run(PRODUCT_PHASES, **codes)
    for phase, expected in emulated(design, circuit, codes).items():
        np.testing.assert_array_equal(run.products[phase], expected, phase)
    assert run.cycles == simulated_cycles(design, samples, inputs, outputs)


@pytest.mark.parametrize("size", [(5, 10, 7), (1, 3, 2), (9, 4, 9), (16, 16, 16)])
def test_products_have_the_emulators_bits_and_the_simulators_cycles(size) -> None:
    check(small(), *size, gap=0.2 if size[0] == 5 else 0.0, layers=LAYERS)


@pytest.mark.parametrize("fusion", ["none", "ops", "resident"])
def test_the_products_of_a_step_are_priced_at_the_circuits_cycles(fusion) -> None:
    """The last layer's input gradient finds its weights in the array, and those of other layers do not."""
    widths, samples = (10, 7, 5, 3), 6
    design = small()
    design = replace(design, machine=replace(design.machine, fusion=fusion), instrument=None)
    linear = [nn.Linear(*sizes) for sizes in pairwise(widths)]
    model = nn.Sequential(linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2])
    graph = capture(model, torch.empty(samples, widths[0]))
    priced = {
        (op.layer, op.phase): cost.cycles
        for op, cost in zip(graph.ops, simulate(graph, design).ops, strict=False)
        if op.gemm
    }
    circuit = array_circuit(design, samples=16, features=16)
    array, taken = ArrayModel(circuit), {}

    def run(layer: int, *phases: str, resident: bool = False) -> None:
        found = array.run(phases, **operands(circuit, samples, *widths[layer : layer + 2]), resident=resident)
        taken.update({(str(2 * layer), phase): found.cycles[phase] for phase in phases})

    for layer in (0, 1, 2):
        run(layer, "forward")
    run(2, "input_grad", "weight_grad", resident=True)
    run(1, "input_grad", "weight_grad")
    run(0, "weight_grad")
    assert priced == taken


def test_a_product_that_the_circuit_cannot_count_is_refused() -> None:
    circuit = array_circuit(small(), LAYERS, samples=16, features=16)
    array = ArrayModel(circuit)
    for sizes, reason in (
        ((16, 17, 16), "17 inputs: this array counts 1 to 16"),
        ((16, 16, 17), "17 outputs: this array counts 1 to 16"),
        ((17, 16, 16), "17 samples: this array counts 1 to 16"),
    ):
        with pytest.raises(ConfigError, match=reason):
            array.run(PRODUCT_PHASES, **operands(circuit, *sizes))
    codes = operands(circuit, 4, 6, 5)
    with pytest.raises(ConfigError, match="operands do not fit"):
        array.run(PRODUCT_PHASES, **(codes | {"error": codes["error"][:3]}))


def test_loads_and_drains_hide_behind_other_folds_and_sums_run_along_rows() -> None:
    design = array_design(3, 5, SUMS, columns=True, overlap=True, error="float(5, 3)")
    for size in ((7, 11, 8), (1, 2, 3), (12, 16, 13)):
        check(design, *size, gap=0.3 if size[0] == 7 else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("sums", "formats"),
    [
        (MacUnit(), {"weight": "bfloat16", "activation": "float16", "error": "e5m2"}),
        (SUMS, {"weight": "e4m3fn", "activation": "e4m3fnuz", "error": "float(3, 4, subnormals=false)"}),
        (MacUnit(accumulate=parse("fixed(20, 4)")), {"weight": "int8", "activation": "fixed(4, 4)", "error": "int(4)"}),
        (MacUnit(fused=False, accumulate=parse("float16")), {"weight": "float16", "activation": "float16"}),
    ],
)
def test_other_formats_and_sizes(sums, formats, columns, overlap) -> None:
    for rows, cols in ((2, 2), (5, 3), (2, 6)):
        design = array_design(rows, cols, sums, columns=columns, overlap=overlap, **formats)
        for size in ((1, 1, 1), (13, 11, 16), (16, 16, 5), (2, 7, 12)):
            check(design, *size, gap=0.1)


def test_sums_that_stay_leave_at_the_end_of_every_chunk() -> None:
    design = small()
    chunks = ProductNumerics(mac=replace(NARROW, order="chunked", chunk=3))
    design = replace(design, numerics=replace(design.numerics, weight_grad=chunks), instrument=None)
    circuit = array_circuit(design, samples=16, features=16)
    codes = operands(circuit, 8, 5, 6)
    run = ArrayModel(circuit).run(("weight_grad",), **codes)
    np.testing.assert_array_equal(run.products["weight_grad"], emulated(design, circuit, codes)["weight_grad"])
    assert run.cycles["weight_grad"] == 4 * 3 * 4 + 4 * (8 + 3 * 6), "four tiles, three chunks each: drains, streams"


def test_cycles_and_sums_are_those_of_the_cell_by_cell_reference() -> None:
    """Integers, whose sums are exact in both."""
    rng = np.random.default_rng(0)
    x, w, e = (rng.integers(-8, 8, shape) for shape in ((5, 6), (6, 7), (5, 7)))
    circuit = array_circuit(small(), LAYERS, samples=16, features=16)
    formats = {"activation": x, "weight": w.T, "error": e}
    codes = {
        role: codes_of(torch.from_numpy(values).float(), getattr(circuit, role)) for role, values in formats.items()
    }
    run = ArrayModel(circuit).run(PRODUCT_PHASES, **codes)
    y, dx, forward, backward = run_in_place(x.tolist(), w.tolist(), e.tolist(), 4, 4)
    dw, weight_grad = run_array(x.T.tolist(), e.tolist(), 4, 4, "output-stationary")
    results = {
        phase: decode(torch.from_numpy(run.products[phase].copy()), NARROW.accumulate) for phase in PRODUCT_PHASES
    }
    assert run.cycles == {"forward": forward, "input_grad": backward, "weight_grad": weight_grad}
    assert torch.equal(results["forward"], torch.tensor(y))
    assert torch.equal(results["input_grad"], torch.tensor(dx))
    assert torch.equal(results["weight_grad"].T, torch.tensor(dw))


def test_an_mlp_trained_on_the_array_has_the_weights_and_the_stream_of_emulation() -> None:
    design = small()
    emulation, array = train_emulated(design, steps=4), train_on_array(design, LAYERS, steps=4)
    assert emulation.losses[-1] < emulation.losses[0]
    assert array.losses == emulation.losses
    for ours, theirs in zip(array.weights, emulation.weights, strict=True):
        assert torch.equal(ours, theirs)
    assert len(emulation.stream) > 500
    assert array.stream == emulation.stream


def test_a_flipped_rounding_bit_in_the_cells_is_found(tmp_path) -> None:
    sources = tmp_path / "sv"
    shutil.copytree(SOURCES, sources)
    file = sources / "presilicon_float_pack.sv"
    text, right = file.read_text(), "NEAREST_EVEN: away = half && (rest || code[0]);"
    assert text.count(right) == 1
    file.write_text(text.replace(right, "NEAREST_EVEN: away = half && (rest || !code[0]);"))
    design = replace(small(), instrument=None)  # the instrument adds with the same module
    emulation = train_emulated(small(), steps=4)
    array = train_on_array(design, LAYERS, steps=4, sources=sources)
    assert any(not torch.equal(ours, theirs) for ours, theirs in zip(array.weights, emulation.weights, strict=True))
    with pytest.raises(AssertionError):
        check(design, 5, 10, 7, sources=sources)
