"""Other numerics for some layers and some steps: emulation and simulation see the same."""

from dataclasses import replace as changed

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from presilicon.base import ConfigError, Source, decode_config, parse_toml, to_plain, to_toml
from presilicon.designs import Change, Numerics, Override, RoleFormat, load_design
from presilicon.designs.numerics import decode_format
from presilicon.emulation import emulate_, emulate_optimizer_, next_step, train
from presilicon.formats import MacUnit, parse, quantize
from presilicon.records import StepFacts
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload

FP8, BF16 = RoleFormat(parse("e5m2")), RoleFormat(parse("bfloat16"))
LOW = Numerics(weight=FP8, activation=FP8, error=FP8, gradient=FP8)
ENDS_WIDE = tuple(
    Override(layers=end, weight=BF16, activation=BF16, error=BF16, gradient=BF16) for end in ("first", "last")
)

FIRST = """layers = "first"
weight = "bfloat16"
mac = { accumulate = "float(exponent=6, mantissa=9)" }"""

TEXT = f"""
weight = "e5m2"
[[overrides]]
{FIRST}
[[schedule]]
from_step = 10
layers = "*"
error = {{ format = "e5m2", rounding = "stochastic" }}
"""


def read(text: str) -> Numerics:
    data, source = parse_toml(text, "test")
    return decode_config(data, Numerics, source, decode_format)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))


def test_a_file_names_overrides_and_a_schedule_and_they_survive_a_round_trip() -> None:
    numerics = read(TEXT)
    assert numerics.overrides[0].weight == BF16
    assert numerics.schedule[0].from_step == 10
    assert (
        decode_config(parse_toml(to_toml(to_plain(numerics)), "again")[0], Numerics, Source("again"), decode_format)
        == numerics
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((FIRST, 'layers = "a"'), "replaces nothing"),
        (("weight = \"bfloat16\"", 'weigth = "bfloat16"'), "did you mean"),
        (('"stochastic"', '"sloppy"'), "sloppy"),
        (("from_step = 10", "from_step = -1"), "from_step"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said(change: tuple[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(TEXT.replace(*change))


def test_a_pattern_that_matches_nothing_is_an_error_with_near_names() -> None:
    with pytest.raises(ConfigError, match=r'"layer\.1" matches none of the 4 layers; near it: "1"|near it'):
        emulate_(model(), replace(LOW, overrides=(Override(layers="layer.1", weight=BF16),)))


def weights_seen(net: nn.Module, numerics: Numerics, steps: int = 1) -> list[dict[str, bool]]:
    """At each step, whether each layer's weights were rounded to eight bits."""
    seen: list[dict[str, bool]] = [{} for _ in range(steps)]

    def observe(step: int, layer: str, role: str, tensor: torch.Tensor) -> None:
        if role == "weight":
            seen[step][layer] = torch.equal(tensor, quantize(tensor, FP8.format))

    emulate_(net, numerics, observers=[observe])
    for _ in range(steps):
        net(torch.randn(2, 6)).sum().backward()
        next_step(net)
    return seen


def test_first_and_last_layers_are_wider() -> None:
    assert weights_seen(model(), replace(LOW, overrides=ENDS_WIDE)) == [{"0": False, "1": True, "2": False}]


def test_a_schedule_changes_a_layer_at_its_step() -> None:
    numerics = replace(LOW, schedule=(Change(layers="1", from_step=2, weight=BF16),))
    assert [step["1"] for step in weights_seen(model(), numerics, 4)] == [True, True, False, False]


def test_a_layer_that_is_float32_again_is_left_to_torch() -> None:
    plain = RoleFormat(parse("float32"))
    wide = Override(layers="1", weight=plain, activation=plain, error=plain, gradient=plain)
    net = model()
    x = torch.randn(2, 6)
    expected = net[1](x)
    emulate_(net, replace(LOW, overrides=(wide,)))
    assert torch.equal(net[1](x), expected)
    assert not torch.equal(net[0](x), nn.functional.linear(x, net[0].weight, net[0].bias))


def test_training_records_the_schedule_and_the_price_follows() -> None:
    design = load_design("fp8-systolic")
    workload = replace_steps(load_workload("digits-mlp"), 12)
    change = Change(layers="hidden*", from_step=5, weight=FP8, activation=RoleFormat(parse("float32")))
    numerics = replace(design.numerics, schedule=(change,))
    trace = train(workload, numerics, seed=0)
    before, after = trace.runs
    assert (before.count, before.facts.numerics_step, after.facts.numerics_step) == (5, 0, 5)
    graph, scheduled = capture_workload(workload), replace(design, numerics=numerics)
    cheap, dear = (simulate(graph, scheduled, run.facts) for run in trace.runs)
    narrow = simulate(graph, design)
    assert cheap.time_s == narrow.time_s
    for part, joules in narrow.energy_by_component_j.items():
        # Cells that can do the wide format leak at every step; all else is as in the narrow design.
        if part == "leakage":
            assert cheap.energy_by_component_j[part] > joules
        else:
            assert cheap.energy_by_component_j[part] == pytest.approx(joules)
    assert dear.energy_j > cheap.energy_j
    override = Override(layers="hidden*", weight=FP8, activation=RoleFormat(parse("float32")))
    always = replace(design.numerics, overrides=(override,))
    assert simulate(graph, replace(design, numerics=always)).energy_j == pytest.approx(dear.energy_j)


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": BF16, "activation": BF16, "error": BF16},
        {"mac": MacUnit(accumulate=parse("float16"))},
        {"master": BF16, "state": BF16},
    ],
)
@pytest.mark.parametrize(
    ("name", "settings"), [("edge-fp8", []), ("bf16-mesh", ["machine.cores.pj_bit_hop=0.1"]), ("caterpillar-small", [])]
)
def test_a_step_after_a_change_costs_what_it_does_with_those_numerics_from_the_start(name, settings, changes) -> None:
    design = load_design(name, settings, numerics="fp8-hybrid")
    graph = capture_workload(load_workload("digits-mlp"))
    change = Change(layers="*", from_step=5, **changes)
    scheduled = replace(design, numerics=replace(design.numerics, schedule=(change,)))
    always = simulate(graph, replace(design, numerics=replace(design.numerics, **changes)))
    after = simulate(graph, scheduled, StepFacts(numerics_step=5))
    assert (after.time_s, after.memory_bytes) == (always.time_s, always.memory_bytes)
    parts = [cost.energy_by_component_j | {"leakage": 0.0} for cost in (after, always)]  # the area is that of both
    assert parts[0] == pytest.approx(parts[1])
    assert simulate(graph, scheduled).energy_j != pytest.approx(after.energy_j)


def test_static_overrides_are_priced_without_facts() -> None:
    design, graph = load_design("fp8-systolic"), capture_workload(load_workload("digits-mlp"))
    trace = train(replace_steps(load_workload("digits-mlp"), 2), replace(design.numerics, overrides=ENDS_WIDE))
    assert trace.runs[0].facts.layers == ()
    wide = simulate(graph, replace(design, numerics=replace(design.numerics, overrides=ENDS_WIDE)))
    by_name = {op.name: op.bytes_dram for op in wide.ops}
    plain = {op.name: op.bytes_dram for op in simulate(graph, design).ops}
    assert by_name["hidden1.forward.addmm"] > plain["hidden1.forward.addmm"]
    assert by_name["hidden2.forward.addmm"] == plain["hidden2.forward.addmm"]
    assert by_name["output.forward.addmm"] > plain["output.forward.addmm"]
    lost = replace(design.numerics, overrides=(Override(layers="hiden1", weight=BF16),))
    with pytest.raises(ConfigError, match="matches none"):
        simulate(graph, replace(design, numerics=lost))


def test_a_layer_may_have_a_mac_unit_of_its_own() -> None:
    mac = MacUnit(accumulate=parse("float(exponent=6, mantissa=9)"), order="chunked", chunk=4)
    net, x = model(), torch.randn(2, 6)
    expected = [layer(x) for layer in net]
    emulate_(net, Numerics(overrides=(Override(layers="1", mac=mac),)))
    assert [torch.equal(layer(x), plain) for layer, plain in zip(net, expected, strict=True)] == [True, False, True]


def replace_steps(workload, steps: int):
    from dataclasses import replace as replace_fields

    return replace_fields(workload, max_steps=steps)


@pytest.mark.parametrize("loop", ["own", "train"])
def test_a_scheduled_format_of_the_weights_begins_with_its_step(loop: str) -> None:
    """The passes of step 2 read weights in the format that is in force from step 2 on, and those of step 1 do not."""
    coarse = RoleFormat(parse("float(exponent=5, mantissa=1)"))
    scheduled = Numerics(schedule=(Change(layers="*", from_step=2, master=coarse),))
    seen: list[bool] = []

    class Watched(nn.Linear):
        def forward(self, x):
            if self.training:
                weight = self.weight.detach()
                seen.append(torch.equal(weight, quantize(weight, coarse.format)))
            return super().forward(x.flatten(1))

    torch.manual_seed(0)
    if loop == "train":
        workload = changed(load_workload("digits-mlp"), model=lambda: Watched(64, 10), max_steps=4, evaluate_every=4)
        train(workload, scheduled)
    else:
        layer = emulate_(nn.Sequential(Watched(64, 10)), scheduled)
        optimizer = emulate_optimizer_(torch.optim.SGD(layer.parameters(), lr=0.1), scheduled, model=layer)
        for _ in range(4):
            optimizer.zero_grad()
            layer(torch.randn(8, 64)).square().sum().backward()
            optimizer.step()
    assert seen[-4:] == [False, False, True, True]
