"""Prices of steps that methods change: added ops, formats as facts, memory of grown batches."""

from dataclasses import replace
from typing import ClassVar

import pytest
from msgspec import Struct, structs

from presilicon.designs import AttachedMethod, Design, Method, Numerics, RoleFormat, load_design
from presilicon.formats import parse
from presilicon.records import LayerFact, MethodFact, Op, Role, StepFacts, TensorRef
from presilicon.simulation import simulate
from presilicon.study import StepGraphs, StepPrices, evaluate
from presilicon.study.join.prices import unpriced_methods
from presilicon.workloads import capture_workload, load_workload

WORKLOAD = load_workload("digits-mlp")
LAYERS = ("hidden1", "relu1", "hidden2", "relu2", "output")


class Added(Method, Struct, frozen=True, kw_only=True, tag_field="name", tag="added"):
    """Adds one large op to a phase."""

    phase: str
    elements: ClassVar[int] = 10_000_000

    def rewrite(self, graph, facts, capture):
        weight = graph.parameters[0]
        op = Op(
            index=len(graph.ops), name="own", kind="elementwise", operator="own", phase=self.phase, layer="",
            inputs=(weight,), outputs=(weight,), flops=self.elements,
        )  # fmt: skip
        return structs.replace(graph, ops=(*graph.ops, op))


@pytest.mark.parametrize("phase", ["forward", "input_grad", "weight_grad", "update"])
def test_ops_that_a_method_adds_run_whatever_is_skipped(phase) -> None:
    design = structs.replace(load_design("bf16-systolic"), methods=(Added(phase=phase),))
    prices = StepPrices(StepGraphs(WORKLOAD, design.methods), design)
    skipping = StepFacts(backward_skipped=True, update_skipped=True)
    names = [op.name for op in prices(skipping).ops]
    assert names[-1] == "own"
    assert not any(".weight_grad." in name or ".update." in name for name in names)


def with_format(base: str, changes: dict[Role, str]) -> tuple[Design, StepFacts]:
    """A design with other formats, and the facts of a step in which the base has come to use them."""
    roles = {role: RoleFormat(parse(text)) for role, text in changes.items()}
    design = load_design(base)
    facts = StepFacts(
        layers=tuple(
            LayerFact(layer=layer, role=role, format=str(role_format.format))
            for layer in ("", *LAYERS)
            for role, role_format in roles.items()
        )
    )
    return structs.replace(design, numerics=structs.replace(design.numerics, **roles)), facts


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        ("fp32-systolic", {"weight": "bfloat16"}),
        ("bf16-systolic", {"weight": "float32"}),
        (
            "bf16-systolic",
            dict.fromkeys(("weight", "activation", "error"), "bfp(mantissa=4, group=16)"),
        ),
    ],
)
def test_formats_as_facts_are_priced_like_the_same_formats_in_the_design(base, changes) -> None:
    graph = capture_workload(WORKLOAD)
    changed, facts = with_format(base, changes)
    ours, theirs = simulate(graph, load_design(base), facts), simulate(graph, changed)
    assert ours.time_s == pytest.approx(theirs.time_s)
    # Leakage is that of the die, which is built for the formats of the design.
    energies = [
        {name: joules for name, joules in cost.energy_by_component_j.items() if name != "leakage"}
        for cost in (ours, theirs)
    ]
    assert energies[0] == pytest.approx(energies[1])
    assert ours.memory_bytes == theirs.memory_bytes


def test_memory_and_time_of_a_step_are_those_of_the_steps_that_ran() -> None:
    method = "batch-growth"
    design = load_design("bf16-systolic", methods=[f"{method}.window=2", f"{method}.improvement=0.9"])
    workload = replace(WORKLOAD, target=1.0, max_steps=60, sustain=3)
    result = evaluate(design, workload, seeds=1)
    [seed] = result.seeds
    plain = structs.replace(design, methods=())
    assert result.memory_bytes == simulate(capture_workload(workload, 8 * 32), plain).memory_bytes
    assert result.time_per_step_s == pytest.approx((seed.time_s or 0) / seed.steps)
    assert result.time_per_step_s > simulate(capture_workload(workload), plain).time_s


def test_the_ring_of_several_chips_carries_each_layer_in_its_own_format() -> None:
    """8,320 gradients of the hidden layers and 650 of the output, 2 x 7 / 8 times around at 150 GB/s."""
    fp32 = structs.replace(load_design("dgx-1"), numerics=Numerics())
    settings = ['numerics.overrides=[{layers="hidden*", gradient="bfloat16"}]']
    mixed = structs.replace(fp32, numerics=load_design("dgx-1", settings, numerics="fp32").numerics)
    graph = capture_workload(WORKLOAD)
    alone = structs.replace(mixed, machine=structs.replace(mixed.machine, chips=1))
    ring_s = simulate(graph, mixed).time_s - simulate(graph, alone).time_s
    assert ring_s == pytest.approx((8320 * 2 + 650 * 4) * 1.75 / 150e9, rel=1e-6)
    skipped = StepFacts(backward_skipped=True, update_skipped=True)
    assert simulate(graph, mixed, skipped).time_s == pytest.approx(simulate(graph, alone, skipped).time_s)


class Sender(AttachedMethod):
    """Reports as many bytes as it is told to, and another number in the first step."""

    def __init__(self, sent: int | None) -> None:
        self.sent = sent

    def facts(self, step, facts):
        if self.sent is None:
            return facts
        own = MethodFact(method="sending", name="sent_bytes", value=self.sent + (step.number == 0))
        return structs.replace(facts, methods=(*facts.methods, own))


class Sending(Method, Struct, frozen=True, kw_only=True, tag_field="name", tag="sending"):
    """Sends gradients; what that costs is up to its subclasses."""

    sent: int | None = None

    def attach(self, training):
        return Sender(self.sent)


class Rewriting(Sending, frozen=True, kw_only=True, tag_field="name", tag="sending"):
    """Rewrites steps, by its facts or whatever they are."""

    reads: bool = False

    def rewrite(self, graph, facts, capture):
        [own] = facts.methods or [None]
        length = own.value if self.reads and own is not None else 5
        moved = TensorRef(10_000, (length,), "activation")
        op = Op(
            index=len(graph.ops), name="sent", kind="copy", operator="own", phase="update", layer="", inputs=(moved,),
            outputs=(moved,), flops=0,
        )  # fmt: skip
        return structs.replace(graph, ops=(*graph.ops, op))


@pytest.mark.parametrize(
    ("method", "remark"),
    [
        (Sending(sent=4800), 'nothing prices the facts of method "sending" (sent_bytes)'),
        (Sending(), 'method "sending" reported no facts and rewrites no step'),
        (Rewriting(sent=4800), 'nothing prices the facts of method "sending" (sent_bytes)'),
        (Rewriting(sent=4800, reads=True), None),
        (Rewriting(), None),
    ],
)
def test_a_method_that_nothing_prices_is_named(method, remark) -> None:
    design = structs.replace(load_design("bf16-systolic"), methods=(method,))
    result = evaluate(design, replace(WORKLOAD, target=0.2, max_steps=20, sustain=1), seeds=1)
    about = [words for words in result.remarks if "sending" in words]
    assert len(about) == (remark is not None)
    assert remark is None or about[0].startswith(remark)


def test_the_facts_of_a_method_are_named_in_their_alphabetical_order() -> None:
    design = structs.replace(load_design("bf16-systolic"), methods=(Sending(),))
    facts = StepFacts(methods=tuple(MethodFact(method="sending", name=name, value=1) for name in "hbgdface"))
    [remark] = unpriced_methods(design, {facts}, StepPrices(StepGraphs(WORKLOAD), design))
    assert "(a, b, c, d, e, f, g, h)" in remark
