"""Grouped products are emulated, and every other product is emulated or named."""

import warnings

import pytest
import torch
from ml_dtypes import float8_e4m3fn, float8_e5m2
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation import UncoveredWarning, coverage, emulate_, emulate_optimizer_
from presilicon.formats import MacUnit, matmul, parse, quantize
from presilicon.workloads import capture

NUMERICS = Numerics(weight="e4m3", activation="e5m2", error="float(exponent=5, mantissa=1)", gradient="bfloat16")
ENDS = torch.tensor([3, 3, 8, 10], dtype=torch.int32)  # the second expert has no token


class Experts(nn.Module):
    def __init__(self, call=functional.grouped_mm) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 8, 16))
        self.call = call

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return self.call(x, self.weight, offs=ends)


def on(tensor: torch.Tensor, role: str) -> torch.Tensor:
    return quantize(tensor.detach(), getattr(NUMERICS, role).format)


def fallback(x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    pytest.importorskip("transformers.integrations.moe")
    return torch.ops.transformers.grouped_mm_fallback(x, weight, offs=offs)


@pytest.mark.parametrize("call", [functional.grouped_mm, torch._grouped_mm, fallback])
@pytest.mark.parametrize("unit", [None, MacUnit(accumulate=parse("bfloat16"))])
def test_each_expert_is_an_emulated_product(call, unit: MacUnit | None) -> None:
    numerics = NUMERICS if unit is None else Numerics(weight="e4m3", activation="e5m2", mac=unit)
    model = emulate_(Experts(call), numerics)
    x = torch.randn(10, 8, requires_grad=True)
    out = model(x, ENDS)
    multiply = torch.matmul if unit is None else lambda a, b: matmul(a, b, unit)
    rows = [(0, 3), (3, 3), (3, 8), (8, 10)]
    a, w = on(x, "activation"), on(model.weight, "weight")
    for expert, (start, stop) in enumerate(rows):
        if stop > start:
            assert torch.equal(out[start:stop], multiply(a[start:stop], w[expert]))
    if unit is not None:
        return
    error = torch.randn_like(out)
    out.backward(error)
    e = on(error, "error")
    for expert, (start, stop) in enumerate(rows):
        assert torch.equal(model.weight.grad[expert], on(a[start:stop].t() @ e[start:stop], "gradient"))
        assert torch.equal(x.grad[start:stop], e[start:stop] @ w[expert].t())


@pytest.mark.parametrize(
    ("a", "b", "ends"),
    [((4, 5, 8), (4, 8, 6), None), ((5, 10), (10, 6), [2, 2, 10]), ((3, 5, 8), (8, 10), [1, 4, 10])],
)
def test_every_arrangement_of_groups(a: tuple[int, ...], b: tuple[int, ...], ends: list[int] | None) -> None:
    class Grouped(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch._grouped_mm(x, y, offs=None if ends is None else torch.tensor(ends, dtype=torch.int32))

    x, y = torch.randn(a), torch.randn(b)
    out = emulate_(Grouped(), NUMERICS)(x, y)
    x, y = on(x, "activation"), on(y, "activation")
    if ends is None:
        expected = x @ y
    elif len(a) == len(b):
        expected = torch.stack([x[:, :2] @ y[:2], x[:, 2:2] @ y[2:2], x[:, 2:] @ y[2:]])
    else:
        expected = torch.cat([x[0] @ y[:, :1], x[1] @ y[:, 1:4], x[2] @ y[:, 4:]], 1)
    assert torch.equal(out, expected)


def test_grouped_products_are_covered_and_their_flops_are_those_of_products() -> None:
    x = torch.randn(12, 8)
    ends = torch.tensor([3, 6, 9, 12], dtype=torch.int32)
    # Torch's own gradients of a grouped product are again grouped products.
    listing = coverage(Experts(), NUMERICS, (x, ends), loss=lambda out: out.square().sum(), strict=True)
    assert listing.share("uncovered") == 0
    graph = capture(Experts(), (x, ends), loss=lambda out: out.square().sum())
    products = [op for op in graph.ops if op.gemm]
    assert [op.phase for op in products] == ["forward", "weight_grad"]
    assert {op.flops for op in products} == {2 * 12 * 8 * 16}
    assert products[0].gemm.count == 4
    assert [tensor.role for tensor in products[0].inputs[:2]] == ["activation", "weight"]


@torch.library.custom_op("presilicon_tests::mix", mutates_args=())
def mix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, error):
        x, w = ctx.saved_tensors
        return error @ w.t(), x.t() @ error


class OwnWithContext(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    backward = Own.backward


class Unknown(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.kind:
            case "cdist":
                out = torch.cdist(x, self.weight)
            case "sparse":
                out = torch.sparse.addmm(x, torch.eye(len(x)).to_sparse(), x @ self.weight)
            case "custom function":
                out = Own.apply(x, self.weight)
            case "custom function with setup_context":
                out = OwnWithContext.apply(x, self.weight)
            case "custom op":
                out = mix(x, self.weight.detach())
            case _:
                out = torch.linalg.solve(self.weight + 9 * torch.eye(8), x.t()).t()
        return out + self.weight.sum()


@pytest.mark.parametrize(
    "kind", ["cdist", "sparse", "custom function", "custom function with setup_context", "custom op", "solve"]
)
def test_products_that_are_not_emulated_are_named_and_refused(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 8)
    with pytest.warns(UncoveredWarning, match="float32"):
        emulate_(Unknown(kind), NUMERICS)(x)
    listing = coverage(Unknown(kind), NUMERICS, x)
    assert listing.share("uncovered") > 0
    with pytest.raises(ConfigError, match="not emulated"):
        coverage(Unknown(kind), NUMERICS, x, strict=True)


def test_vecdot_is_a_product() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.vecdot(x, self.weight.expand(5, 8).t(), dim=0)

    model, x = emulate_(Scores(), NUMERICS), torch.randn(8, 5)
    expected = on(x, "activation").t().double() @ on(model.weight, "weight").double()
    torch.testing.assert_close(model(x).double(), expected, rtol=1e-6, atol=1e-6)


def test_functions_that_do_not_multiply_are_not_named() -> None:
    class Harmless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = functional.gelu(self.fc(x)).cumsum(0)
            x = torch.where(x > 0, x, x.roll(1, 0)).sort(0).values
            grid = x[:4, :2].tanh().reshape(1, 2, 2, 2)
            image = functional.grid_sample(x[:1].reshape(1, 1, 2, 4), grid, align_corners=False)
            found = torch.searchsorted(x[:, 0].detach().contiguous(), x[:, 1].detach().contiguous())
            return torch.stack([image.mean(), found.float().mean()])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emulate_(Harmless(), NUMERICS)(torch.randn(5, 8)).sum().backward()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon")
def test_products_of_an_optimizer_are_not_called_emulated() -> None:
    numerics = Numerics(weight="e4m3", activation="e4m3", master="bfloat16", state="bfloat16")

    def muon(parameters):
        return torch.optim.Muon(parameters, lr=0.1)

    listing = coverage(nn.Linear(8, 8, bias=False), numerics, torch.randn(5, 8), optimizer=muon)
    update = {(op.operator, op.status) for op in listing.ops if op.stage == "update" and "mm" in op.operator}
    assert update
    assert {status for _, status in update} == {"uncovered"}
    model = emulate_(nn.Linear(8, 8, bias=False), numerics)
    optimizer = emulate_optimizer_(muon(model.parameters()), numerics, model=model)
    model(torch.randn(5, 8)).sum().backward()
    with pytest.warns(UncoveredWarning, match="Muon"):
        optimizer.step()


class OperandSpy(TorchDispatchMode):
    """Collects the products that have an operand outside of the 8-bit formats."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.wide = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        if name in ("mm", "bmm", "addmm", "baddbmm", "_grouped_mm", "grouped_mm_fallback"):
            self.products += 1
            factors = args[1:3] if name in ("addmm", "baddbmm") else args[:2]
            if not all(is_narrow(factor) for factor in factors):
                self.wide.append(f"{name} {[tuple(factor.shape) for factor in factors]}")
        return func(*args, **(kwargs or {}))


def is_narrow(tensor: torch.Tensor) -> bool:
    array = tensor.detach().numpy()
    return any((array == array.astype(kind).astype("float32")).all() for kind in (float8_e4m3fn, float8_e5m2))


@pytest.mark.parametrize("experts", ["grouped_mm", "batched_mm", "eager"])
def test_every_product_of_a_mixture_of_experts_has_narrow_operands(experts: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=50, hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config)
    model.set_experts_implementation(experts)
    ids = torch.randint(0, 50, (2, 8))
    spies = {}
    for name in ("plain", "emulated"):
        if name == "emulated":
            emulate_(model, Numerics(weight="e4m3fn", activation="e4m3fn", error="e5m2", gradient="bfloat16"))
        with OperandSpy() as spies[name]:
            model(input_ids=ids, labels=ids).loss.backward()
    assert len(spies["plain"].wide) > 0.9 * spies["plain"].products  # the check can fail
    assert spies["emulated"].products >= spies["plain"].products
    assert spies["emulated"].wide == []
