"""Operators in place of whole functions of torch: by name or pattern of layers, in design files, captured, priced."""

import copy
import math
import warnings
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional

import operator_library as library
import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Numerics, Operators, OperatorSpec, load_design
from presilicon.emulation import coverage
from presilicon.ops import operator
from presilicon.ops.custom import calls

LIBRARY = Path(library.__file__)


@operator("linear")
def linear(x: "... i", weight: "o i") -> "... o":
    return sum(x[..., k] * weight[o, k] for k in range(I))


@operator("relu")
def nothing(x):
    return 0.0 * x


@pytest.fixture(autouse=True)
def _in_torch(monkeypatch) -> None:
    monkeypatch.setattr(calls, "has_numba", lambda: False)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16, 6), nn.LayerNorm(6), nn.GELU(), nn.Softmax(1),
    )  # fmt: skip


def test_every_function_of_a_network_can_be_replaced() -> None:
    plain = network()
    model = copy.deepcopy(plain)
    chosen = [library.conv2d, library.batch_norm, library.relu, library.max_pool2d, linear, library.layer_norm,
              library.gelu, library.softmax]  # fmt: skip
    ps.emulate_(model, Numerics(), operators=chosen)
    x = torch.randn(3, 1, 8, 8)
    for mode in (True, False):
        outs = [net.train(mode)(x) for net in (plain, model)]
        torch.testing.assert_close(outs[1], outs[0], rtol=1e-4, atol=1e-5)
        for net, out in zip((plain, model), outs, strict=True):
            net.zero_grad()
            out.square().sum().backward()
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(model[1].running_var, plain[1].running_var)


def test_a_pattern_replaces_in_its_layers_only() -> None:
    model = nn.ModuleDict({"a": nn.ReLU(), "b": nn.ReLU()})

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts["a"](x), self.parts["b"](x), x.relu()

    both = ps.emulate_(Both(), Numerics(), operators=[nothing.replacing("parts.a.relu")])
    assert [float(out.sum()) for out in both(torch.ones(3))] == [0.0, 3.0, 3.0]
    ps.restore_(both)
    ps.emulate_(both, Numerics(), operators=[nothing, library.relu.replacing("parts.b.relu")])
    assert [float(out.sum()) for out in both(torch.ones(3))] == [0.0, 3.0, 0.0]
    with pytest.raises(ConfigError, match=r"parts\.c\*\.relu"):
        ps.emulate_(ps.restore_(both), Numerics(), operators=[nothing.replacing("parts.c*.relu")])


def test_sums_and_products_of_tensors_are_replaced_however_they_are_written() -> None:
    @operator("add")
    def first(a, b):
        return a + 0.0 * b

    class Sums(nn.Module):
        def forward(self, x, y):
            return x + y, torch.add(x, y), x.clone().add_(y), x @ y.T, torch.matmul(x, y.T)

    @operator("matmul")
    def negated(a: "m k", b: "k n") -> "m n":
        return -sum(a[m, i] * b[i, n] for i in range(K))

    model = ps.emulate_(Sums(), Numerics(), operators=[first, negated])
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    outs = model(x, y)
    for out, wanted in zip(outs, (x, x, x, -x @ y.T, -x @ y.T), strict=True):
        torch.testing.assert_close(out, wanted)


def test_softmax_is_replaced_inside_attention_and_along_any_axis() -> None:
    @operator("softmax")
    def uniform(x: "r n") -> "r n":
        return 1 / N + 0 * x[r, n]

    class Attention(nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x, x, x), functional.softmax(x, 1)

    x = torch.randn(2, 3, 4, 5)
    mixed, along = ps.emulate_(Attention(), Numerics(), operators=[uniform])(x)
    torch.testing.assert_close(mixed, x.mean(2, keepdim=True).expand_as(x))
    torch.testing.assert_close(along, torch.full_like(x, 1 / 3))


def test_the_exact_backward_is_that_of_the_function() -> None:
    model = ps.emulate_(nn.ReLU(), Numerics(), operators=[operator("relu", backward="exact")(nothing.function)])
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    out = model(x)
    out.sum().backward()
    assert out.tolist() == [0.0, 0.0]
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0]


def test_arguments_without_a_counterpart_are_refused() -> None:
    @operator("conv2d")
    def plain(x: "b c h w", f: "o c r s") -> "b o y=H-R+1 z=W-S+1":
        return sum(x[b, i, y + u, z + v] * f[o, i, u, v] for i in range(C) for u in range(R) for v in range(S))

    model = ps.emulate_(nn.Conv2d(1, 2, 3, stride=2), Numerics(), operators=[plain])
    with pytest.raises(
        ConfigError, match=r"plain replaces conv2d, which is called with stride=.*has no constant stride"
    ):
        model(torch.randn(1, 1, 5, 5))
    with pytest.raises(ConfigError, match="replaces nothing"):
        ps.emulate_(nn.ReLU(), Numerics(), operators=[library.contraction])


def test_coverage_names_the_operator() -> None:
    specs = Operators(functions=(OperatorSpec(replaces="0.linear", source=f"{__file__}:linear"),))
    ops = coverage(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), Numerics(operators=specs), torch.randn(2, 4)).ops
    covered = {(op.layer, op.stage, op.operator) for op in ops if op.formats == "operator linear"}
    assert {("0", "forward", "presilicon.operator"), ("0", "backward", "presilicon.operator_backward")} <= covered
    assert {layer for layer, *_ in covered} == {"0"}


MODEL = nn.Sequential(nn.Linear(8, 16), nn.Softmax(-1))


def test_a_new_op_is_captured_and_priced_on_every_machine() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 16)

        def forward(self, x):
            return library.softmax(self.linear(x))

    graph = ps.capture(Rows(), torch.empty(32, 8))
    forward, backward = [op for op in graph.ops if op.work is not None]
    assert (forward.operator, forward.phase) == ("presilicon.softmax", "forward")
    assert (backward.operator, backward.phase) == ("presilicon.softmax_backward", "input_grad")
    # Per row of 16: 16 comparisons; a subtraction, exponential and addition; a subtraction, exponential and division.
    work = forward.work
    assert (work.comparisons, work.additions, work.special) == (32 * 16, 32 * 16 * 3, 32 * 16 * 3)
    assert (work.results, work.reads) == (32 * 16, 3 * 32 * 16)
    for name in ("fp32-systolic", "caterpillar-small", "h200"):
        cost = ps.simulate(graph, load_design(name))
        (op,) = [op for op in cost.ops if op.name == forward.name]
        assert op.time_s > 0
        assert op.energy_j > 0


@pytest.mark.parametrize("name", ["fp32-systolic", "caterpillar-small", "h200"])
def test_the_operators_of_a_design_change_its_price(name: str) -> None:
    from presilicon.study.join.prices import StepGraphs, StepPrices

    plain = load_design(name)
    specs = Operators(functions=(OperatorSpec(replaces="softmax", source=f"{LIBRARY}:softmax"),))
    changed = msgspec.structs.replace(plain, numerics=msgspec.structs.replace(plain.numerics, operators=specs))
    workload = ps.load_workload("shakespeare-gpt")
    graphs = StepGraphs(workload)
    names = [
        {op.operator for op in StepPrices(graphs.for_design(design), design).graph().ops} for design in (plain, changed)
    ]
    assert "presilicon.softmax" in names[1] - names[0]
    costs = [StepPrices(graphs.for_design(design), design)() for design in (plain, changed)]
    assert costs[0].energy_j != costs[1].energy_j
    flops = [StepPrices(graphs.for_design(d), d).graph().flops(matrix_only=True) for d in (plain, changed)]
    assert flops[0] == flops[1]


@pytest.mark.parametrize("name", ["caterpillar-small", "h200"])
def test_functions_of_one_number_are_priced_where_results_are_counted(name: str) -> None:
    graph = ps.capture(nn.Sequential(nn.Linear(8, 512), nn.Tanh()), torch.empty(512, 8))
    plain = load_design(name)
    costs = []
    for entries in (None, 9, 65):
        spec = (
            None
            if entries is None
            else OperatorSpec(kind="piecewise-linear", low=-4, high=4, pieces=entries, fit="minimax")
        )
        numerics = msgspec.structs.replace(plain.numerics, operators=Operators(tanh=spec))
        priced = ps.simulate(graph, msgspec.structs.replace(plain, numerics=numerics))
        costs.append(next(op for op in priced.ops if op.name.endswith("forward.tanh")))
    # The card waits for memory; its arithmetic shows in the operations per byte.
    figures = [cost.intensity if name == "h200" else cost.time_s for cost in costs]
    assert figures[0] < figures[1] < figures[2]


def test_a_design_file_names_functions_and_patterns(tmp_path) -> None:
    head = 'base = "fp32-systolic"\nname = "mine"\n[numerics.operators]\n'
    functions = f'softmax = "{LIBRARY}:softmax"\n"0.relu" = "{LIBRARY}:relu"\n'
    (tmp_path / "design.toml").write_text(head + functions)
    design = load_design(tmp_path / "design.toml")
    assert [made.replaces for made in design.numerics.make_operators()] == ["softmax", "0.relu"]
    (tmp_path / "wrong.toml").write_text(head + f'softmaxx = "{LIBRARY}:softmax"\n')
    with pytest.raises(ConfigError, match=r'softmaxx.*did you mean "softmax"'):
        load_design(tmp_path / "wrong.toml")


@operator("layer_norm")
def bare_layer_norm(x: "... n", eps=1e-5) -> "... n":
    mean = sum(x[..., k] for k in range(N)) / N
    spread = sum((x[..., k] - mean) ** 2 for k in range(N)) / N
    return (x[..., n] - mean) / math.sqrt(spread + eps)


@operator("batch_norm")
def bare_batch_norm(x: "b c s", eps=1e-5) -> "b c s":
    mean = sum(x[i, c, j] for i in range(B) for j in range(S)) / (B * S)
    spread = sum((x[i, c, j] - mean) ** 2 for i in range(B) for j in range(S)) / (B * S)
    return (x[b, c, s] - mean) / math.sqrt(spread + eps)


NORMS = {
    "layer_norm": (bare_layer_norm, lambda w, b: lambda x: functional.layer_norm(x, (6,), w, b), 6),
    "by name": (bare_layer_norm, lambda w, b: lambda x: functional.layer_norm(x, (6,), bias=b, weight=w), 6),
    "batch_norm": (bare_batch_norm, lambda w, b: lambda x: functional.batch_norm(x, None, None, w, b, True), 4),
}


@pytest.mark.parametrize("optional", ["both", "weight", "bias", "neither"])
@pytest.mark.parametrize("name", NORMS)
def test_an_exact_operator_for_a_norm_equals_it_with_any_weights(name: str, optional: str) -> None:
    chosen, function, size = NORMS[name]
    torch.manual_seed(2)
    weight = nn.Parameter(torch.randn(size)) if optional in ("both", "weight") else None
    bias = nn.Parameter(torch.randn(size)) if optional in ("both", "bias") else None

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = weight, bias

        def forward(self, x):
            return function(self.weight, self.bias)(x)

    x = torch.randn(3, 4, 6)
    outs = []
    for operators in ([], [chosen]):
        model = ps.emulate_(Norm(), Numerics(), operators=operators)
        leaf = x.clone().requires_grad_()
        out = model(leaf)
        parameters = [part for part in (weight, bias) if part is not None]
        outs.append([out, *torch.autograd.grad(out.square().sum(), [leaf, *parameters])])
        ps.restore_(model)
    for one, other in zip(*outs, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 5), (2, 4, 5)])
def test_a_softmax_operator_takes_torch_s_axis_where_none_is_named(shape) -> None:
    class Softmax(nn.Module):
        def forward(self, x):
            return functional.softmax(x)

    x = torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates softmax without an axis
        expected = Softmax()(x)
        found = ps.emulate_(Softmax(), Numerics(), operators=[library.softmax])(x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["rsub", "__rsub__", "__radd__", "__rtruediv__"])
def test_a_function_with_its_arguments_exchanged_is_not_replaced_by_itself(name: str) -> None:
    """An operator for it would compute the function that it exchanges, with the operands the wrong way round."""
    with pytest.raises(ConfigError, match=f"{name} is (sub|add|div) with its arguments exchanged"):

        @operator(name)
        def other(a, b):
            return b - a
