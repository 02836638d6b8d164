"""Modules that are one operator with a given cost."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import presilicon as ps
from presilicon.designs import load_design
from presilicon.ops import enter, module_op, withdraw
from presilicon.records import StepGraph
from presilicon.simulation.fusion.parts import style_of


class _Online(torch.autograd.Function):
    """A normalization that goes through the samples one by one, as hardware for single samples does."""

    @staticmethod
    def forward(ctx, x, gain):
        mean, rows = torch.zeros_like(x[0]), []
        for sample in x:
            mean = 0.9 * mean + 0.1 * sample
            rows.append(gain * (sample - mean))
        ctx.save_for_backward(x, gain)
        return torch.stack(rows)

    @staticmethod
    def backward(ctx, error):
        x, gain = ctx.saved_tensors
        return torch.stack([gain * row for row in error]), (error * x).sum(0)


class OnlineNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Online.apply(x, self.gain)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), OnlineNorm(16), nn.ReLU(), nn.Linear(16, 4))


@pytest.fixture
def declared() -> Iterator[None]:
    enter(module_op("online_norm", OnlineNorm, "normalization", results=5, statistics="batch", style="norm",
                    gradient={"results": 8}))  # fmt: skip
    yield
    withdraw("online_norm")


def of_layer(graph: StepGraph, layer: str) -> list[ps.records.Op]:
    return [op for op in graph.ops if op.layer == layer and op.phase != "update"]


def test_its_python_is_captured_unless_it_is_declared() -> None:
    assert len(of_layer(ps.capture(model(), torch.empty(32, 8)), "1")) > 100


def test_it_is_an_op_forward_and_an_op_backward(declared: None) -> None:
    graph = ps.capture(model(), torch.empty(32, 8))
    forward, backward = of_layer(graph, "1")
    assert (forward.operator, forward.kind, forward.phase, forward.flops) == (
        "presilicon.online_norm", "normalization", "forward", 5 * 32 * 16,
    )  # fmt: skip
    assert [(tensor.role, tensor.shape) for tensor in forward.inputs] == [("activation", (32, 16)), ("weight", (16,))]
    assert (backward.operator, backward.phase, backward.flops) == (
        "presilicon.online_norm_backward", "input_grad", 8 * 32 * 16,
    )  # fmt: skip
    assert {tensor.role for tensor in backward.outputs} == {"error", "gradient"}
    assert backward.differentiates == forward.name
    assert style_of(forward) == "norm"


def test_the_rest_of_the_step_is_as_with_any_module(declared: None) -> None:
    """The same ops in the other layers as with a norm of torch's own in its place, in the same order of data."""
    own = ps.capture(model(), torch.empty(32, 8))
    other = ps.capture(
        nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16, bias=False), nn.ReLU(), nn.Linear(16, 4)), torch.empty(32, 8)
    )

    def rest(graph: StepGraph) -> list[tuple[str, int]]:
        return [(op.name, op.flops) for op in graph.ops if op.layer not in ("1", "")]

    assert rest(own) == rest(other)


@pytest.mark.parametrize("name", ["edge-bf16", "caterpillar-small", "h200", "xeon-8t"])
def test_its_cost_is_the_given_one_on_every_machine(declared: None, name: str) -> None:
    cost = ps.simulate(ps.capture(model(), torch.empty(32, 8)), load_design(name))
    flops = {op.name: op.flops for op in cost.ops}
    assert flops["1.forward.online_norm"] == 5 * 32 * 16
    assert cost.unknown_operators == ()
