"""Modules that are one operator with a given cost."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.ops import Captured, OpEntry, enter, facts_of_op, module_op, withdraw
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


class Norm(nn.LayerNorm):
    """torch's own, which may be declared: as one op it is captured as torch's is."""


@pytest.fixture
def norm() -> Iterator[None]:
    enter(module_op("an.own.norm", Norm, "normalization", results=7, gradient={"results": 9}))
    yield
    withdraw("an.own.norm")


class Checkpointed(nn.Module):
    def __init__(self, norm: type[nn.LayerNorm], *, is_reentrant: bool) -> None:
        super().__init__()
        self.first, self.norm, self.is_reentrant = nn.Linear(8, 16), norm(16), is_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.norm, self.first(x), use_reentrant=self.is_reentrant)


class OfWeights(nn.Module):
    """Normalizes its weights."""

    def __init__(self, norm: type[nn.LayerNorm]) -> None:
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.ones(8, 16)), norm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.norm(self.weight)


class Frozen(nn.Module):
    def __init__(self, norm: type[nn.LayerNorm]) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), norm(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.norm(self.first(x))
        return self.last(x)


SURROUNDINGS = {
    "checkpointed": lambda norm: Checkpointed(norm, is_reentrant=False),
    "checkpointed, reentrant": lambda norm: Checkpointed(norm, is_reentrant=True),
    "of weights": OfWeights,
    "frozen": Frozen,
    "wrapped": lambda norm: nn.DataParallel(nn.Sequential(nn.Linear(8, 16), norm(16))),
    "compiled": lambda norm: torch.compile(nn.Sequential(nn.Linear(8, 16), norm(16))),
    "twice": lambda norm: nn.Sequential(nn.Linear(8, 16), *[norm(16)] * 2),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # of the import of torch.compile
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_it_is_where_a_module_of_torchs_own_would_be(norm: None, surroundings: str) -> None:
    """In phases, layers and roles, whether it is recomputed, of weights alone, or without a gradient."""
    steps = []
    for kind in (Norm, nn.LayerNorm):
        graph = ps.capture(SURROUNDINGS[surroundings](kind), torch.empty(32, 8))
        ops = [op for op in graph.ops if op.phase != "update"]
        steps.append([(op.kind, op.phase, op.layer, op.outputs[0].role, op.flops) for op in ops])
    assert steps[0] == steps[1]


def test_the_facts_about_its_ops_are_those_of_its_entry_whatever_its_name_is(norm: None) -> None:
    graph = ps.capture(nn.Sequential(nn.Linear(8, 16), Norm(16)), torch.empty(32, 8))
    assert [facts_of_op(op).captured.results for op in graph.ops if "an.own.norm" in op.operator] == [7, 9]


class Mixing(nn.Linear):
    pass


def test_a_parametrized_module_is_the_module_that_it_was() -> None:
    enter(module_op("mixing", Mixing, "other"))
    try:
        graph = ps.capture(nn.Sequential(nn.Linear(8, 8), weight_norm(Mixing(8, 8))), torch.empty(32, 8))
    finally:
        withdraw("mixing")
    assert [op.operator for op in graph.ops if op.layer == "1" and op.phase != "update"] == [
        "presilicon.mixing", "presilicon.mixing_backward",
    ]  # fmt: skip


def test_a_module_without_a_cost_for_a_pass_is_refused() -> None:
    enter(OpEntry(name="half_known", module=Norm, forward=Captured(names=(), kind="normalization")))
    try:
        with pytest.raises(ConfigError, match="half_known has no backward pass"):
            ps.capture(Norm(8), torch.empty(32, 8))
    finally:
        withdraw("half_known")


def test_the_name_of_a_function_is_not_taken_from_it() -> None:
    with pytest.raises(ConfigError, match="layer_norm is the op table's name of a function"):
        enter(module_op("layer_norm", Norm, "normalization"))


class Watched(nn.Module):
    """Has a second output that is detached, as a statistic is."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = x * self.gain
        return out, out.detach().mean()


class Watching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.watched = nn.Linear(8, 16), Watched()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.watched(self.first(x))


def test_what_a_module_detaches_stays_detached() -> None:
    steps = []
    for is_declared in (False, True):
        if is_declared:
            enter(module_op("watched", Watched, "other"))
        graph = ps.capture(Watching(), torch.empty(4, 8))
        steps.append([op.name for op in graph.ops if op.layer == ""])
    withdraw("watched")
    assert steps[0] == steps[1]
    assert [op.operator for op in of_layer(graph, "watched")] == ["presilicon.watched", "presilicon.watched_backward"]
