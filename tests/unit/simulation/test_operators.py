"""Operators in place of functions, on the vector unit."""

import msgspec
import pytest
import torch
from torch import nn

import presilicon as ps
from presilicon.designs import Operators, OperatorSpec, curve_pj, load_design, load_technology
from presilicon.records import OperatorCost
from presilicon.simulation import area
from presilicon.simulation.operators import SPECIAL_STEPS, operator_j

MODEL = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.SiLU(), nn.Softmax(-1))
GRAPH = ps.capture(MODEL, torch.randn(32, 8))
PLAIN = load_design("fp32-systolic")
LANES = PLAIN.machine.vector_lanes


def design(**operators: OperatorSpec) -> ps.Design:
    numerics = msgspec.structs.replace(PLAIN.numerics, operators=Operators(**operators))
    return msgspec.structs.replace(PLAIN, numerics=numerics)


def cycles(chosen: ps.Design, operator: str) -> int:
    (found,) = [op.cycles for op, at in zip(ps.simulate(GRAPH, chosen).ops, GRAPH.ops, strict=False)
                if at.operator == f"aten.{operator}.default"]  # fmt: skip
    return found


def table(**more: object) -> OperatorSpec:
    return OperatorSpec(kind="table", low=-4, high=4, entries=33, **more)  # type: ignore[arg-type]


def test_an_operator_takes_its_cycles_in_every_lane() -> None:
    turns = -(-32 * 16 // LANES)
    assert cycles(PLAIN, "tanh") == turns
    assert cycles(design(tanh=table(cycles=5)), "tanh") == 5 * turns
    assert cycles(design(tanh=table(cycles=5, pipelined=True)), "tanh") == turns + 4


def test_a_costlier_operator_makes_the_step_longer_and_hungrier() -> None:
    # Much bandwidth: the vector unit is what the step waits for.
    wide = msgspec.structs.replace(PLAIN.machine, dram_gb_s=1e6, vector_lanes=1)
    costs = []
    for entries, count in ((17, 2), (4097, 40)):
        spec = OperatorSpec(kind="table", low=-4, high=4, entries=entries, cycles=count)
        costs.append(ps.simulate(GRAPH, msgspec.structs.replace(design(tanh=spec), machine=wide)))
    assert costs[0].time_s < costs[1].time_s
    assert costs[0].energy_by_component_j["vector"] < costs[1].energy_by_component_j["vector"]


def test_the_backward_pass_is_priced_when_it_is_derived_from_the_operator() -> None:
    linear = OperatorSpec(kind="table", low=-4, high=4, entries=33, interpolation="linear")
    assert cycles(design(tanh=linear), "tanh_backward") > cycles(PLAIN, "tanh_backward")
    exact = msgspec.structs.replace(linear, backward="exact")
    assert cycles(design(tanh=exact), "tanh_backward") == cycles(PLAIN, "tanh_backward")


@pytest.mark.parametrize(
    ("name", "operator", "elements"),
    [("softmax_exp", "_softmax", 32 * 16), ("rsqrt", "native_layer_norm", 32), ("sigmoid", "silu", 32 * 16)],
)
def test_functions_inside_others_are_replaced_too(name: str, operator: str, elements: int) -> None:
    spec = OperatorSpec(kind="table", low=1, high=4, entries=33, cycles=9)
    (op,) = [op for op in GRAPH.ops if op.operator == f"aten.{operator}.default"]
    rest = -(-(max(op.flops, op.elements_out) - elements) // LANES)
    assert cycles(design(**{name: spec}), operator) == rest + 9 * -(-elements // LANES)


def test_the_energy_of_an_operator_by_hand() -> None:
    technology = load_technology("horowitz-45nm")
    assert operator_j(OperatorCost(multipliers=2, adders=1, comparators=3), technology) == pytest.approx(
        (2 * 3.7 + 4 * 0.9) * 1e-12
    )
    special = operator_j(OperatorCost(special=1), technology)
    assert special == pytest.approx(SPECIAL_STEPS * (3.7 + 0.9) * 1e-12)
    read = curve_pj(technology.sram_64bit, 64 * 4 / 1024) / 2
    assert operator_j(OperatorCost(entries=64, reads=2), technology) == pytest.approx(2 * read * 1e-12)


def test_the_optimizer_is_left_alone() -> None:
    adam = ps.capture(MODEL, torch.randn(32, 8), optimizer=torch.optim.Adam)
    spec = OperatorSpec(kind="table", low=1, high=4, entries=33, cycles=50)
    for before, after, op in zip(
        ps.simulate(adam, PLAIN).ops, ps.simulate(adam, design(sqrt=spec)).ops, adam.ops, strict=False
    ):
        assert before.cycles == after.cycles, op.name


def test_the_area_of_operators_by_hand() -> None:
    curves = load_technology("horowitz-45nm").area
    assert curves is not None
    spec = OperatorSpec(
        kind="table", low=0, high=1, entries=2, interpolation="linear", backward="exact", format="float16"
    )
    cost = spec.make("tanh").cost
    per_lane = cost.multipliers * 1640 + (cost.adders + cost.comparators) * 1360
    per_lane += cost.entries * 16 * curves.sram_bit[0].um2
    assert area(design(tanh=spec)).parts_mm2["operators"] == pytest.approx(LANES * per_lane * 1e-6)
    assert "operators" not in area(PLAIN).parts_mm2
    both = area(design(tanh=msgspec.structs.replace(spec, backward="derived"))).parts_mm2["operators"]
    assert both > LANES * per_lane * 1e-6
