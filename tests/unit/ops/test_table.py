"""The op table: what it knows, what a missing entry breaks, and what users add."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Numerics, RoleFormat, load_design
from presilicon.emulation import coverage
from presilicon.emulation.operators.replacement import product_functions
from presilicon.emulation.training.record import TrainingRecord
from presilicon.formats import parse
from presilicon.ops import (
    Captured,
    OpEntry,
    all_entries,
    compile_formula,
    describe_operator,
    enter,
    entry_named,
    facts_of_op_named,
    find,
    function,
    functions,
    operands,
    withdraw,
)
from presilicon.ops.lookup import forget
from presilicon.programs import evaluate
from presilicon.records import StepGraph
from presilicon.simulation.fusion.parts import style_of

FORMAT = RoleFormat(parse("bfloat16"))
STEPS = Numerics(activation=FORMAT, error=FORMAT, vector="round-steps")


class Softmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(functional.gelu(functional.softmax(self.first(x), -1)))


def captured() -> StepGraph:
    return ps.capture(Softmax(), torch.empty(32, 8))


def outcome() -> dict[str, object]:
    """What each consumer makes of the softmax of a step."""
    graph = captured()
    [op] = [op for op in graph.ops if "_softmax" in op.operator and op.phase == "forward" and op.layer == ""]
    listed = {one.operator for one in coverage(Softmax(), STEPS, torch.randn(4, 8)).ops if one.stage == "forward"}
    [price] = [one for one in ps.simulate(graph, load_design("edge-bf16")).ops if one.name == op.name]
    return {
        "capture": (op.kind, op.flops),
        "coverage": "softmax.exp" in listed,
        "steps": "softmax.div" in listed,
        "fusion": style_of(op),
        "price": price.flops,
    }


@pytest.fixture
def without_softmax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = importlib.import_module("presilicon.ops.entries.softmax")
    monkeypatch.setattr(module, "ENTRIES", [entry for entry in module.ENTRIES if entry.name != "softmax"])
    forget()
    yield
    monkeypatch.undo()
    forget()


def everything_else() -> dict[str, object]:
    """What the table says of every operator of torch but softmax."""
    names = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}
    known = {}
    for name in sorted(names):
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
        for overload in [] if packet is None else packet.overloads():
            function = getattr(packet, overload)
            if "softmax" not in name:
                known[str(function)] = (describe_operator(function), facts_of_op_named(str(function), "other"))
    return known


def test_a_missing_entry_breaks_its_operator_and_no_other(request: pytest.FixtureRequest) -> None:
    whole, others = outcome(), everything_else()
    vectors = set(functions().values())
    request.getfixturevalue("without_softmax")
    broken = outcome()
    assert [key for key in whole if whole[key] == broken[key]] == [], "each consumer asks the table"
    assert (broken["fusion"], broken["steps"]) == ("alone", False)
    assert everything_else() == others
    assert vectors - set(functions().values()) == {"softmax"}
    cost = ps.simulate(captured(), load_design("edge-bf16"))
    assert [name for name in cost.unknown_operators if "softmax" in name] == [
        "aten._softmax.default", "aten._softmax_backward_data.default",
    ]  # fmt: skip


def test_names_are_unique_and_found() -> None:
    names = [entry.name for entry in all_entries()]
    assert len(set(names)) == len(names) > 300
    for entry in all_entries():
        for part, is_gradient in ((entry.forward, False), (entry.backward, True)):
            for name in () if part is None else part.names:
                met = find(name)
                assert met is not None
                assert (met.entry.name, met.is_gradient) == (entry.name, is_gradient), "no operator has two entries"


def test_all_spellings_of_an_operator_are_one() -> None:
    aten = torch.ops.aten
    for one, other in (
        (aten.relu.default, aten.relu_.default),
        (aten.masked_fill.Scalar, aten.masked_fill_.Scalar),
        (aten.rsub.Scalar, aten.rsub.Tensor),
        (aten.gelu.default, aten.gelu_.default),
        (aten.addbmm.default, aten.addbmm_.default),
    ):
        assert describe_operator(one).captured == describe_operator(other).captured, one


POINTS = [-4.0, -1.5, -0.3, 0.0, 0.2, 1.0, 3.7]


def called(name: str, option: str) -> tuple[torch.Tensor, list[object]]:
    """The operator of ATen on the points, with 0.1 for its numbers."""
    function = getattr(torch.ops.aten, name).default
    given = []
    for argument in function._schema.arguments:
        text = str(argument.type)
        if text == "Tensor":
            given.append(torch.tensor(POINTS, dtype=torch.float64) + 0.25 * len(given))
        elif text == "bool":
            given.append(False)
        elif "str" not in text:
            given.append(0.1)
    return function(*given, **({"approximate": option} if option else {})), given


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (part.names[0], option)
        for entry in all_entries()
        for part in (entry.forward, entry.backward)
        if part is not None and part.formula is not None
        for option in ([""] if callable(part.formula) else part.formula)
    ],
)
def test_a_formula_is_what_torch_computes(name: str, option: str) -> None:
    met = find(name)
    assert met is not None
    formula = met.captured.formula if not option else met.captured.formula[option]
    expected, given = called(name, option)
    names = operands(formula)
    program = compile_formula(formula)
    for place in range(len(POINTS)):
        numbers = [float(value[place]) if isinstance(value, torch.Tensor) else float(value) for value in given]
        [found] = evaluate(program, dict(zip(names, numbers, strict=True)))
        torch.testing.assert_close(found, float(expected[place]), rtol=1e-12, atol=1e-12, equal_nan=True)


def test_what_is_no_entry_is_refused() -> None:
    with pytest.raises(ConfigError, match="OpEntry"):
        enter("softmax")  # type: ignore[arg-type]


def test_an_entry_of_the_users_own_replaces_what_is_known() -> None:
    own = OpEntry(name="relu", forward=describe_operator(torch.ops.aten.exp.default).captured)
    enter(own)
    try:
        assert entry_named("relu") is own
    finally:
        withdraw("relu")
    assert entry_named("relu") is not own


def doubled(x: float) -> float:
    return x * 2


def tripled(x: float) -> float:
    return x * 3


def test_entries_of_the_users_own_are_part_of_a_training() -> None:
    record = TrainingRecord.of_design(load_design("edge-fp32"), ps.load_workload("digits-mlp"))
    plain = record.describe()["code"]
    codes = []
    for formula in (doubled, tripled, doubled):
        enter(function("i0e", aten="special_i0e", backward="", formula=formula))
        codes.append(record.describe()["code"]["ops"])
    withdraw("i0e")
    assert codes[0] == codes[2] != codes[1]
    assert record.describe()["code"] == plain, "and of no other"


def test_products_that_can_be_replaced_are_those_of_the_table_now() -> None:
    before = dict(product_functions())
    enter(OpEntry(name="kron", functions=("kron",), signature="input other", is_product=True))
    try:
        assert product_functions()[torch.kron] == "kron"
    finally:
        withdraw("kron")
    assert product_functions() == before


@pytest.mark.parametrize(
    ("captured", "message"),
    [
        (Captured(names=("relu",), kind="activation"), 'unknown kind of op "activation"'),
        (Captured(names="relu", kind="elementwise"), r"names are a tuple, as \('relu',\)"),
    ],
)
def test_an_entry_that_would_hide_others_or_has_no_price_is_refused(captured: Captured, message: str) -> None:
    for forward, backward in ((captured, None), (None, captured)):
        with pytest.raises(ConfigError, match=message):
            enter(OpEntry(name="own", forward=forward, backward=backward))
    assert find("r") is None


@torch.library.custom_op("presilicon_tests::folded", mutates_args=())
def folded(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@folded.register_fake
def folded_shape(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Folding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return x + folded(x).detach()


def test_an_entry_for_an_operator_of_a_package_holds_for_capture_and_for_prices() -> None:
    enter(function("folded", "normalization", backward="", results=7, style="samples", statistics="sample"))
    try:
        [op] = [op for op in ps.capture(Folding(), torch.empty(2, 4)).ops if "folded" in op.operator]
        facts = facts_of_op_named(op.operator, op.kind)
        assert (op.kind, op.flops) == ("normalization", 7 * 8)
        assert facts.captured is describe_operator(torch.ops.presilicon_tests.folded.default).captured
        assert (facts.entry, style_of(op)) == (entry_named("folded"), "samples")
    finally:
        withdraw("folded")


def looping(x: float) -> float:
    import math

    return [x, math.pi][0]


@pytest.mark.parametrize(
    ("facts", "message"),
    [({"results": "many"}, "whole number"), ({"results": -1}, "whole number"), ({"formula": looping}, "language")],
)
def test_facts_that_cannot_be_are_refused_when_they_are_entered(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        enter(function("i0e", aten="special_i0e", backward="", **facts))
    assert entry_named("i0e") is None


def test_shares_of_equal_terms_are_steps_too() -> None:
    """A maximum that halves the error of equal terms leaves no op of its gradient in float32."""

    class Magnitude(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x).abs().amax(-1)

    coverage(Magnitude(), STEPS, torch.randn(4, 8), strict=True)
