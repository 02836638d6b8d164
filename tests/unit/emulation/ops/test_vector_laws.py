"""Gradients of vector ops on inputs that are not rounded: those of torch, and finite where those are."""

import math

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.designs import Numerics, ProductNumerics, RoleFormat
from presilicon.formats import parse, quantize
from presilicon.ops import functions as vector_functions

WIDE = RoleFormat(parse("float32"))
EXACT = ProductNumerics(weight=WIDE, activation=WIDE, error=WIDE)
TARGETS, GROUPS = torch.tensor([0, 2, 1, 2]), torch.tensor([0, 1, 0, 2, 1, 2])


def numerics(fmt: str, mode: str = "round-results") -> Numerics:
    """Only the results of vector ops are rounded, so that those of products are not."""
    role = RoleFormat(parse(fmt))
    return replace(Numerics(), activation=role, vector=mode, forward=EXACT, input_grad=EXACT, weight_grad=EXACT)


class OfProduct(nn.Module):
    """A function of the result of a product."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("identity", torch.eye(6))

    def forward(self, x: torch.Tensor):
        return self.function(x @ self.identity)


def slope(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    leaf = x.clone().requires_grad_()
    out = model(leaf)
    outs = [part for part in (out if isinstance(out, tuple) else (out,)) if part.requires_grad]
    errors = [torch.randn(part.shape, generator=torch.Generator().manual_seed(5)) for part in outs]
    return torch.autograd.grad(outs, leaf, errors)[0], outs


def similarity(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = (part.double().flatten() / part.abs().amax() for part in (a, b))
    return float(a @ b / (a.norm() * b.norm()))


def scattered(form: str, reduce: str):
    return lambda x: getattr(torch.zeros(4, 3), form)(1, GROUPS.expand(4, 6), x, reduce, include_self=False)


EXTREMES = {
    "max": torch.max,
    "min": torch.min,
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(1, keepdim=True),
    "max along": lambda x: x.max(0)[0],
    "norm": lambda x: x.norm(math.inf),
    "vector norm": lambda x: torch.linalg.vector_norm(x, -math.inf, 1),
    "square norm": lambda x: x.norm(dim=1),
    "distance": lambda x: torch.dist(x, x.detach() * 0.5, math.inf),
    "pairs": lambda x: functional.pairwise_distance(x, x.detach() * 0.5, math.inf),
    **{
        f"{form} {reduce}": scattered(form, reduce)
        for form in ("scatter_reduce", "scatter_reduce_")
        for reduce in ("amax", "amin", "sum", "mean")
    },
    "index": lambda x: torch.zeros(4, 3).index_reduce(1, GROUPS, x, "amax", include_self=False),
    "index in place": lambda x: torch.zeros(4, 3).index_reduce_(1, GROUPS, x, "amin", include_self=False),
    "segments": lambda x: torch.segment_reduce(x.T.contiguous(), "max", lengths=torch.tensor([2, 3, 1])),
    "sum of powers": lambda x: x.logsumexp(1),
    "sums of powers": lambda x: x.logcumsumexp(1),
    "softmax by hand": lambda x: (lambda powers: powers / powers.sum(-1, True))(torch.exp(x - x.amax(-1, True))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*reduce.* is in beta")
@pytest.mark.parametrize("fmt", ["bfloat16", "float(exponent=5, mantissa=5)"])
@pytest.mark.parametrize("name", EXTREMES)
def test_the_gradient_of_an_extreme_reaches_its_input(name: str, fmt: str) -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    expected, _ = slope(OfProduct(EXTREMES[name]), x)
    found, outs = slope(ps.emulate_(OfProduct(EXTREMES[name]), numerics(fmt)), x)
    assert similarity(found, expected) > 0.98
    assert all(torch.equal(out.detach(), quantize(out.detach(), parse(fmt))) for out in outs)


ALONE = [lambda f, x: f(x), lambda f, x: f(x, -1), lambda f, x: f(x, 0.7)]
WITH_OTHERS = [lambda f, x: f(x, x.detach().flip(0) + 0.5), lambda f, x: f(x, x.detach() + 0.1, x.detach() * 0.5)]
PICTURES = [lambda f, x: f(x.reshape(1, 2, 12), 2), lambda f, x: f(x.reshape(1, 2, 3, 4), 2)]
PICTURES += [lambda f, x: f(x.repeat(2, 1).reshape(1, 2, 2, 3, 4), 2), lambda f, x: f(x.reshape(1, 1, 4, 6), 2.0, 2)]
NORMS = [lambda f, x: f(x, [6]), lambda f, x: f(x, None, None, training=True), lambda f, x: f(x[None], 2)]
CLASSES = [lambda f, x: f(x, TARGETS), lambda f, x: f(x.sigmoid(), torch.full((4, 6), 0.75))]
CLASSES += [lambda f, x: f(x, torch.full((4, 6), 0.3), torch.ones(4, 6))]
INDEXED = [
    lambda f, x: f(torch.zeros(4, 6), 1, GROUPS.expand(4, 6), x),
    lambda f, x: f(torch.zeros(4, 6), 1, GROUPS, x),
]
CALLS = [*ALONE, *WITH_OTHERS, *PICTURES, *NORMS, *CLASSES, *INDEXED]
NUMBERS = {
    "mixed": torch.randn(4, 6, generator=torch.Generator().manual_seed(1)),
    "small": torch.rand(4, 6, generator=torch.Generator().manual_seed(2)) * 0.3 + 0.2,
    "above one": torch.rand(4, 6, generator=torch.Generator().manual_seed(3)) + 1.2,
    "large": torch.randn(4, 6, generator=torch.Generator().manual_seed(4)).sign() * 200,
}
NAMES = dict.fromkeys(vector_functions().values())
FUNCTIONS = {
    name: next(
        getattr(home, name)
        for home in (functional, torch, torch.Tensor, torch.linalg, torch.special, torch._C._nn)
        if hasattr(home, name)
    )
    for name in NAMES
}
UNTRIED = (
    *("ceil", "floor", "round", "trunc", "sign", "gumbel_softmax", "margin_ranking_loss", "triplet_margin_loss"),
    *("scatter_reduce", "index_reduce", "segment_reduce", "feature_dropout", "instance_norm", "lp_pool1d", "lp_pool3d"),
    *("ctc_loss", "grid_sample", "fold", "__rdiv__", "cross", "outer", "ger", "prelu", "multilabel_margin_loss"),
    "cosine_embedding_loss",
)
"""Functions without a gradient or with one near a tie, those tried above, and those whose arguments no call has."""
QUICK = (
    *("amax", "max", "min", "norm", "vector_norm", "std", "var", "logsumexp", "softmax", "cumprod", "prod", "clamp"),
    *("normalize", "layer_norm", "batch_norm", "max_pool2d", "sigmoid", "gelu", "div", "pow", "l1_loss"),
)


def tried(function, mode: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The gradient of torch and the emulated one, for each call and each kind of numbers that torch can compute."""
    found = {}
    for number, call in enumerate(CALLS):
        for kind, x in NUMBERS.items():
            x = quantize(x, parse("bfloat16")) if mode == "round-steps" else x  # which reads its inputs rounded
            try:
                expected, _ = slope(OfProduct(lambda x, call=call: call(function, x)), x)
            except Exception:  # torch refuses these arguments
                continue
            if expected.any() and (kind == "large" or expected.isfinite().all()):
                model = ps.emulate_(OfProduct(lambda x, call=call: call(function, x)), numerics("bfloat16", mode))
                found[f"{kind} {number}"] = expected, slope(model, x)[0]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["round-results", "round-steps"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES if name not in UNTRIED],
)
def test_every_vector_op_has_the_gradient_of_torch(name: str, mode: str) -> None:
    found = tried(FUNCTIONS[name], mode)
    assert found, "no call of this function has a gradient"
    for call, (expected, emulated) in found.items():
        assert emulated[expected.isfinite()].isfinite().all(), call
        if not call.startswith("large"):
            assert similarity(expected, emulated) > 0.98, call


def test_a_layer_that_rounds_results_alone_is_not_left_to_torch() -> None:
    x = torch.linspace(-3, 3, 24).reshape(4, 6)
    out = ps.emulate_(OfProduct(torch.tanh), numerics("bfloat16"))(x)
    assert torch.equal(out, quantize(torch.tanh(x), parse("bfloat16")))
