"""Each of the three products of a layer may have formats, roundings and Hadamard transforms of its own."""

import copy
import tomllib

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from presilicon.base import ConfigError, Source, decode_config
from presilicon.designs import Numerics, Override, ProductNumerics, RoleFormat, decode_format, write_numerics
from presilicon.emulation import coverage, emulate_
from presilicon.emulation.ops import hadamard
from presilicon.formats import Key, Stochastic, parse, quantize
from presilicon.records import PRODUCT_PHASES

FORMATS = {
    ("forward", "activation"): "e4m3fn",
    ("forward", "weight"): "e3m4",
    ("input_grad", "error"): "e5m2",
    ("input_grad", "weight"): "float(exponent=5, mantissa=3)",
    ("input_grad", "activation"): "float(exponent=5, mantissa=1)",
    ("weight_grad", "activation"): "float(exponent=4, mantissa=2)",
    ("weight_grad", "error"): "bfloat16",
}


def by_product() -> Numerics:
    """Every operand of every product in another format; the roles' own formats are never used."""
    tables = {phase: {role: FORMATS[p, role] for p, role in FORMATS if p == phase} for phase in PRODUCT_PHASES}
    products = {phase: ProductNumerics(**table) for phase, table in tables.items()}
    return Numerics(weight="mxfp4", activation="mxfp4", error="mxfp4", **products)


def rounded(tensor: Tensor, phase: str, role: str) -> Tensor:
    return quantize(tensor.detach(), parse(FORMATS[phase, role]))


def test_a_linear_layer_rounds_each_operand_of_each_product() -> None:
    torch.manual_seed(0)
    layer, x, error = nn.Linear(8, 5), torch.randn(6, 8, requires_grad=True), torch.randn(6, 5)
    out = emulate_(layer, by_product())(x)
    out.backward(error)
    expected = functional.linear(
        rounded(x, "forward", "activation"), rounded(layer.weight, "forward", "weight"), layer.bias
    )
    assert torch.equal(out, expected)
    assert x.grad is not None
    assert torch.equal(x.grad, rounded(error, "input_grad", "error") @ rounded(layer.weight, "input_grad", "weight"))
    a, e = rounded(x, "weight_grad", "activation"), rounded(error, "weight_grad", "error")
    assert torch.equal(layer.weight.grad, e.t() @ a)
    assert torch.equal(layer.bias.grad, rounded(error, "input_grad", "error").sum(0))


def test_a_convolution_rounds_each_operand_of_each_product() -> None:
    torch.manual_seed(0)
    layer, x = nn.Conv2d(3, 4, 3, bias=False), torch.randn(2, 3, 6, 6, requires_grad=True)
    error = torch.randn(2, 4, 4, 4)
    out = emulate_(layer, by_product())(x)
    out.backward(error)
    weight = layer.weight
    assert torch.equal(
        out, functional.conv2d(rounded(x, "forward", "activation"), rounded(weight, "forward", "weight"))
    )
    expected = nn.grad.conv2d_input(
        x.shape, rounded(weight, "input_grad", "weight"), rounded(error, "input_grad", "error")
    )
    assert torch.equal(x.grad, expected)
    expected = nn.grad.conv2d_weight(
        rounded(x, "weight_grad", "activation"), weight.shape, rounded(error, "weight_grad", "error")
    )
    assert torch.equal(weight.grad, expected)


class Scores(nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k


def test_both_gradients_of_a_product_of_activations_are_input_gradients() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(6, 8, requires_grad=True), torch.randn(8, 5, requires_grad=True)
    error = torch.randn(6, 5)
    emulate_(Scores(), by_product())(q, k).backward(error)
    e = rounded(error, "input_grad", "error")
    assert torch.equal(q.grad, e @ rounded(k, "input_grad", "activation").t())
    assert torch.equal(k.grad, rounded(q, "input_grad", "activation").t() @ e)


class Left(nn.Module):
    """Weights as the left factor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight @ x


def test_the_gradient_of_weights_on_the_left_is_a_weight_gradient() -> None:
    torch.manual_seed(0)
    layer, x, error = Left(), torch.randn(8, 6, requires_grad=True), torch.randn(5, 6)
    emulate_(layer, by_product())(x).backward(error)
    a, e = rounded(x, "weight_grad", "activation"), rounded(error, "weight_grad", "error")
    assert torch.equal(layer.weight.grad, e @ a.t())
    assert torch.equal(
        x.grad, rounded(layer.weight, "input_grad", "weight").t() @ rounded(error, "input_grad", "error")
    )


def test_a_rounding_holds_in_its_product_only() -> None:
    torch.manual_seed(0)
    drawn = ProductNumerics(error=RoleFormat(parse("e5m2"), rounding="stochastic"))
    layer, x, error = nn.Linear(8, 5, bias=False), torch.randn(6, 8, requires_grad=True), torch.randn(6, 5)
    emulate_(layer, Numerics(error="e5m2", weight_grad=drawn), seed=3)(x).backward(error)
    nearest = quantize(error, parse("e5m2"))
    assert torch.equal(x.grad, nearest @ layer.weight.detach())
    key = Key(3, 0, "/0/error/weight_grad")
    at_random = quantize(error, parse("e5m2"), rounding=Stochastic(), key=key)
    assert torch.equal(layer.weight.grad, at_random.t() @ x.detach())
    assert not torch.equal(at_random, nearest)


def test_an_override_of_a_role_holds_in_every_product() -> None:
    numerics = by_product()
    half = Override(layers="last", weight="bfloat16", activation="bfloat16", error="bfloat16")
    last = numerics.changed(half.changes())
    assert {str(last.operand(role, phase)) for phase, role in FORMATS} == {"bfloat16"}
    kept = numerics.changed(Override(layers="last", weight_grad=ProductNumerics(error="float16")).changes())
    assert str(kept.operand("error", "weight_grad")) == "float16"
    assert str(kept.operand("activation", "weight_grad")) == FORMATS["weight_grad", "activation"]


def test_numerics_by_product_are_written_and_read() -> None:
    numerics = by_product()
    again = decode_config(tomllib.loads(write_numerics(numerics)), Numerics, Source("numerics"), decode_format)
    assert again == numerics


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"weight_grad": {"hadamard": 12}}, "hadamard: must be a power of two, not 12"),
        ({"forward": {"gradient": "bfloat16"}}, "gradient"),
        ({"weight": {"format": "e4m3fn", "amax_history": 4}}, "delayed scaling needs one scale per tensor"),
        (
            {"overrides": [{"layers": "fc", "input_grad": {"hadamard": 3}}]},
            "overrides[0].input_grad: hadamard: must be a power of two",
        ),
    ],
)
def test_bad_tables_are_explained(table: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        decode_config(table, Numerics, Source("numerics"), decode_format)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_coverage_names_the_formats_of_each_product() -> None:
    listing = coverage(nn.Linear(8, 5), by_product(), torch.randn(6, 8))
    products = [op for op in listing.ops if op.status == "emulated" and op.stage != "update"]
    assert products[0].formats == "activation e4m3fn, weight e3m4"
    assert "error e5m2" in products[-1].formats
    assert "error bfloat16" in products[-1].formats


# Hadamard transforms


def matrix(length: int, seed: int) -> Tensor:
    """The transform of one block as a matrix in float64, by Sylvester's recursion."""
    h = torch.ones(1, 1, dtype=torch.float64)
    while h.shape[0] < length:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    signs = hadamard.transform(torch.eye(length), 0, length, seed)[0].sign().double()
    return h * signs / length**0.5


@pytest.mark.parametrize(
    ("shape", "axis", "length"), [((64, 100), 0, 16), ((3, 32, 5), 1, 8), ((2, 3, 48), -1, 16), ((0, 16), 1, 16)]
)
def test_compiled_transforms_have_the_bits_of_those_in_torch(shape, axis, length, monkeypatch) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 1e3
    compiled = hadamard.transform(x, axis, length, 3)
    strided = hadamard.transform(x.mT.contiguous().mT, axis, length, 3)
    monkeypatch.setattr(hadamard, "has_numba", lambda: False)
    plain = hadamard.transform(x, axis, length, 3)
    assert torch.equal(compiled.view(torch.int32), plain.contiguous().view(torch.int32))
    assert torch.equal(strided, plain)


@pytest.mark.parametrize(("shape", "axis"), [((32, 5), 0), ((3, 48), 1), ((2, 16, 4), -2), ((64,), 0)])
@pytest.mark.parametrize("length", [1, 2, 16])
def test_a_transform_is_the_product_with_an_orthogonal_matrix(shape, axis, length) -> None:
    x = torch.randn(shape)
    out = hadamard.transform(x, axis, length, seed=7)
    block = matrix(length, 7) if length > 1 else torch.ones(1, 1, dtype=torch.float64)
    assert torch.allclose(block @ block.t(), torch.eye(length, dtype=torch.float64))
    blocks = x.double().movedim(axis, -1).unflatten(-1, (-1, length)) @ block.t()
    assert torch.allclose(out.double(), blocks.flatten(-2).movedim(-1, axis), rtol=0, atol=1e-6)


def test_seeds_have_signs_of_their_own() -> None:
    x = torch.randn(16, 3)
    assert torch.equal(hadamard.transform(x, 0, 16, 1), hadamard.transform(x, 0, 16, 1))
    assert len({hadamard.transform(x, 0, 16, seed).numpy().tobytes() for seed in range(8)}) == 8


@pytest.mark.parametrize("phase", PRODUCT_PHASES)
@pytest.mark.parametrize("layer", [nn.Linear(32, 16), nn.Conv2d(16, 32, 3, groups=2), nn.Conv2d(16, 8, 3)])
def test_transforms_alone_change_a_layer_by_rounding_errors_only(phase, layer) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 16, 5, 5) if isinstance(layer, nn.Conv2d) else torch.randn(48, 32)
    grads = []
    for numerics in (Numerics(), Numerics(**{phase: ProductNumerics(hadamard=16)})):
        model, inputs = copy.deepcopy(layer), x.clone().requires_grad_()
        out = emulate_(model, numerics)(inputs)
        out.square().sum().backward()
        grads.append((out.detach(), inputs.grad, model.weight.grad, model.bias.grad))
    for plain, transformed in zip(*grads, strict=True):
        assert torch.allclose(plain, transformed, rtol=1e-4, atol=1e-4 * float(plain.abs().max()))
    assert not all(torch.equal(plain, transformed) for plain, transformed in zip(*grads, strict=True))


def test_transformed_operands_are_rounded_after_the_transform() -> None:
    torch.manual_seed(0)
    layer, x, error = nn.Linear(8, 16, bias=False), torch.randn(32, 8), torch.randn(32, 16)
    numerics = Numerics(weight="nvfp4", activation="nvfp4", error="nvfp4", weight_grad=ProductNumerics(hadamard=16))
    emulate_(layer, numerics, seed=5)(x).backward(error)
    fmt = parse("nvfp4").along(0)
    a, e = (quantize(hadamard.transform(tensor, 0, 16, 5), fmt) for tensor in (x, error))
    assert torch.equal(layer.weight.grad, e.t() @ a)
