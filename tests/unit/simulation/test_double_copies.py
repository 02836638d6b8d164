"""Block formats along the reduction axis of each product: tensors that two products use are kept twice."""

import pytest
import torch
from torch import nn

from presilicon.designs import Design, StepFormats, load_design
from presilicon.records import LayerFact, StepFacts
from presilicon.simulation import memory_timeline, simulate
from presilicon.workloads import capture

GRAPH = capture(
    nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False)), torch.empty(32, 64)
)
BFP = "bfp(mantissa=4, exponent=8, group=16)"


def design(*settings: str, block: str = BFP) -> Design:
    roles = [f"numerics.{role}={block}" for role in ("weight", "activation", "error")]
    return load_design("fp32-systolic", ["machine.fusion=none", *roles, *settings])


def test_what_two_products_use_is_written_twice() -> None:
    formats = StepFormats(design().numerics, StepFacts(), GRAPH)
    hidden = next(op for op in GRAPH.ops if op.operator.startswith("aten.relu")).outputs[0]
    weight = GRAPH.parameters[1]
    first = GRAPH.parameters[0]
    for tensor in (hidden, weight):
        assert formats.written_bytes(tensor, "") == 2 * formats.bytes_of(tensor, "")
    # The first layer hands back no error, so its weights are used in one product.
    assert formats.written_bytes(first, "") == formats.bytes_of(first, "")


@pytest.mark.parametrize("change", ["numerics.grouping=fixed", None])
def test_one_fixed_axis_or_square_tiles_need_one_copy(change: str | None) -> None:
    chosen = design(change) if change else design(block="bfp(mantissa=4, exponent=8, group=16, square=true)")
    formats = StepFormats(chosen.numerics, StepFacts(), GRAPH)
    hidden = next(op for op in GRAPH.ops if op.operator.startswith("aten.relu")).outputs[0]
    assert formats.written_bytes(hidden, "") == formats.bytes_of(hidden, "")


def test_traffic_and_memory_follow() -> None:
    twice, once = (simulate(GRAPH, chosen) for chosen in (design(), design("numerics.grouping=fixed")))
    bits = StepFormats(design().numerics, StepFacts(), GRAPH).format_of("activation", "").bits_per_element
    relu = [next(op for op in cost.ops if op.name.endswith("relu")) for cost in (twice, once)]
    assert relu[0].bytes_dram - relu[1].bytes_dram == 32 * 64 * bits / 8
    assert twice.memory_bytes > once.memory_bytes
    assert memory_timeline(GRAPH, design(), twice).peak_bytes == pytest.approx(twice.memory_bytes)


def test_products_with_formats_of_their_own_have_copies_and_bytes_of_their_own() -> None:
    settings = ["numerics.activation=e4m3fn", "numerics.weight_grad.activation=bfloat16", "numerics.weight=e4m3fn"]
    chosen = load_design("fp32-systolic", settings)
    formats = StepFormats(chosen.numerics, StepFacts(), GRAPH)
    hidden = next(op for op in GRAPH.ops if op.operator.startswith("aten.relu")).outputs[0]
    assert formats.written_bytes(hidden, "") == hidden.elements * (1 + 2)
    assert [formats.bytes_of(hidden, "", phase) / hidden.elements for phase in ("forward", "weight_grad")] == [1, 2]
    mixed, narrow = (simulate(GRAPH, load_design("fp32-systolic", settings[:count] + settings[2:])) for count in (2, 1))
    before = {op.name: op for op in narrow.ops}
    moves_more = {op.phase for op in mixed.ops if op.unit == "array" and op.bytes_sram > before[op.name].bytes_sram}
    assert moves_more == {"weight_grad"}


def test_a_fact_of_one_product_replaces_its_format_alone() -> None:
    fact = LayerFact(layer="0", role="activation", product="weight_grad", format="bfloat16")
    formats = StepFormats(load_design("fp8-systolic").numerics, StepFacts(layers=(fact,)), GRAPH)
    assert str(formats.format_of("activation", "0", "weight_grad")) == "bfloat16"
    assert str(formats.format_of("activation", "0", "forward")) != "bfloat16"
    assert str(formats.format_of("activation", "2", "weight_grad")) != "bfloat16"
