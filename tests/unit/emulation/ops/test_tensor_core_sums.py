"""`sums = "tensor-core"`: products of a model add up as the instructions of a Hopper GPU do."""

import warnings

import pytest
import torch
from torch import nn

from presilicon.designs import Numerics
from presilicon.emulation import TensorCoreWarning, emulate_
from presilicon.formats import matmul, parse, quantize, tensor_core

pytestmark = pytest.mark.filterwarnings("ignore::presilicon.emulation.TensorCoreWarning")


def on(tensor: torch.Tensor, name: str) -> torch.Tensor:
    return quantize(tensor.detach(), parse(name))


@pytest.mark.parametrize(
    ("activation", "weight", "error"),
    [
        ("bfloat16", "bfloat16", "bfloat16"),
        ("e4m3fn", "e4m3fn", "e5m2"),
        ("float16", "e4m3fn", "bfloat16"),
        ("e5m2", "e4m3fn", "e4m3fn"),
    ],
)
def test_every_product_of_a_layer_runs_on_the_instruction_of_its_operands(activation, weight, error) -> None:
    torch.manual_seed(0)
    layer, x, e = nn.Linear(200, 24, bias=False), torch.randn(40, 200, requires_grad=True), torch.randn(40, 24)
    numerics = Numerics(activation=activation, weight=weight, error=error, sums="tensor-core")
    out = emulate_(layer, numerics)(x)
    out.backward(e)
    a, w, e = on(x, activation), on(layer.weight, weight), on(e, error)
    a_fmt, w_fmt, e_fmt = parse(activation), parse(weight), parse(error)
    assert torch.equal(out, matmul(a, w.t(), tensor_core(a_fmt, w_fmt)))
    assert torch.equal(x.grad, matmul(e, w, tensor_core(e_fmt, w_fmt)))
    assert torch.equal(layer.weight.grad, matmul(e.t(), a, tensor_core(e_fmt, a_fmt)))
    assert not torch.equal(out, a @ w.t())


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "bfp(mantissa=4, group=16)"])
def test_block_formats_with_powers_of_two_run_on_bf16(fmt: str) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 24, bias=False), torch.randn(40, 64)
    out = emulate_(layer, Numerics(activation=fmt, weight=fmt, sums="tensor-core"))(x)
    unit = tensor_core(parse("bfloat16"), parse("bfloat16"))
    assert torch.equal(out, matmul(quantize(x, parse(fmt)), quantize(layer.weight, parse(fmt)).t(), unit))


def test_operands_that_no_instruction_holds_are_added_in_float32() -> None:
    layer, x = nn.Linear(64, 24, bias=False), torch.randn(40, 64)
    plain = layer(x)
    with pytest.warns(TensorCoreWarning, match="no instruction multiplies float32 by bfloat16"):
        out = emulate_(layer, Numerics(weight="bfloat16", sums="tensor-core"))(x)
    assert torch.equal(out, x @ on(layer.weight, "bfloat16").t())
    assert not torch.equal(plain, layer(x))


def test_a_convolution_runs_on_tensor_cores() -> None:
    torch.manual_seed(0)
    layer, x = nn.Conv2d(8, 6, 3, bias=False), torch.randn(2, 8, 6, 6)
    out = emulate_(layer, Numerics(weight="bfloat16", activation="bfloat16", sums="tensor-core"))(x)
    # Channels vary fastest, as in the memory of channels-last tensors.
    columns = nn.functional.unfold(on(x, "bfloat16"), 3).view(2, 8, 9, 16).permute(0, 3, 2, 1).flatten(2)
    unit = tensor_core(parse("bfloat16"), parse("bfloat16"))
    rows = matmul(columns, on(layer.weight, "bfloat16").permute(0, 2, 3, 1).reshape(6, -1).t(), unit)
    assert torch.equal(out, rows.mT.reshape(2, 6, 4, 4))


def test_a_cpu_says_that_it_is_slow() -> None:
    layer = emulate_(nn.Linear(8, 8), Numerics(weight="bfloat16", activation="bfloat16", sums="tensor-core"))
    with pytest.warns(TensorCoreWarning, match="about 30 times slower"):
        layer(torch.randn(4, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(torch.randn(4, 8))


CODE = parse("float(exponent=4, mantissa=3, specials=fn, overflow=saturate)")


def taken_apart(x: torch.Tensor, axis: int | None, block: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of e4m3fn and their scales, over the tensor or along an axis, from the definition of `scaled`."""
    lines = x.detach() if axis is None else x.detach().movedim(axis, -1)
    parts = lines.reshape(1, -1) if axis is None else lines.unflatten(-1, (-1, block or lines.shape[-1]))
    largest = parts.abs().amax(-1, keepdim=True)
    factor = torch.tensor(448.0) / largest
    codes = quantize(parts * factor, CODE).reshape(lines.shape)
    scales = (1 / factor).squeeze(-1)
    return (codes, scales) if axis is None else (codes.movedim(-1, axis), scales.movedim(-1, axis))


@pytest.mark.parametrize("per", ["tensor", "row"])
def test_scales_of_tensors_and_rows_multiply_the_sums_of_the_codes(per: str) -> None:
    torch.manual_seed(0)
    layer, x, e = nn.Linear(200, 24), torch.randn(5, 8, 200, requires_grad=True), torch.randn(5, 8, 24)
    fmt = f"scaled(e4m3fn, per={per}, apply=reciprocal)"
    out = emulate_(layer, Numerics(weight=fmt, activation=fmt, error=fmt, sums="tensor-core"))(x)
    out.backward(e)
    unit = tensor_core(CODE, CODE)
    axes = (None,) * 2 if per == "tensor" else (-1, 0)

    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        (a, sa), (b, sb) = taken_apart(left, axes[0]), taken_apart(right, axes[1])
        return matmul(a, b, unit) * (sa * sb)

    rows, errors, weight = x.detach().flatten(0, 1), e.flatten(0, 1), layer.weight.detach()
    assert torch.equal(out.flatten(0, 1), product(rows, weight.t()) + layer.bias)
    assert torch.equal(x.grad.flatten(0, 1), product(errors, weight))
    assert torch.equal(layer.weight.grad, product(errors.t(), rows))


def test_scales_of_blocks_multiply_the_sums_of_blocks() -> None:
    torch.manual_seed(0)
    layer, x, e = nn.Linear(256, 24, bias=False), torch.randn(64, 256, requires_grad=True), torch.randn(64, 24)
    fmt = "scaled(e4m3fn, per=block, block=32, apply=reciprocal)"
    out = emulate_(layer, Numerics(weight=fmt, activation=fmt, error="e5m2", sums="tensor-core"))(x)
    out.backward(e)
    single = tensor_core(CODE, CODE, promotion=None)
    (a, sa), (b, sb) = taken_apart(x, 1, 32), taken_apart(layer.weight.t(), 0, 32)
    expected = torch.zeros(64, 24)
    for k in range(8):
        part = matmul(a[:, 32 * k : 32 * k + 32], b[32 * k : 32 * k + 32], single)
        expected = expected + part * (sa[:, k : k + 1] * sb[k : k + 1])
    assert torch.equal(out, expected)
    errors = quantize(e, parse("e5m2"))
    (a, sa), expected = taken_apart(x, 0, 32), torch.zeros(24, 256)
    for k in range(2):
        part = matmul(
            errors.t()[:, 32 * k : 32 * k + 32],
            a[32 * k : 32 * k + 32],
            tensor_core(parse("e5m2"), CODE, promotion=None),
        )
        expected = expected + part * sa[k : k + 1]
    assert torch.equal(layer.weight.grad, expected)


def test_tiles_of_weights_scale_both_products_of_the_weights() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 40, bias=False), torch.randn(8, 64, requires_grad=True)
    block, tile = "scaled(e4m3fn, per=block, block=16)", "scaled(e4m3fn, per=tile, block=16)"
    out = emulate_(layer, Numerics(weight=tile, activation=block, error=block, sums="tensor-core"))(x)
    out.sum().backward()
    exact = quantize(x.detach(), parse(block)).double() @ quantize(layer.weight.detach(), parse(tile)).double().t()
    assert torch.allclose(out.double(), exact, rtol=0, atol=2e-3)
    assert not torch.equal(out.double(), exact)
    errors = quantize(torch.ones(8, 40), parse(block)).double()
    assert torch.allclose(
        x.grad.double(), errors @ quantize(layer.weight.detach(), parse(tile)).double(), rtol=0, atol=2e-3
    )


def test_nvfp4_multiplies_elements_times_block_scales_on_bf16() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 24, bias=False), torch.randn(40, 64)
    out = emulate_(layer, Numerics(weight="nvfp4", activation="nvfp4", sums="tensor-core"))(x)
    codes, scales = [], []
    for tensor in (x, layer.weight.detach()):
        scales.append(tensor.abs().max() / torch.tensor(2688.0))
        codes.append(quantize(tensor, parse("nvfp4")) / scales[-1])
        codes[-1] = on(codes[-1], "bfloat16")  # the quotient is the code but for the last bit
    expected = matmul(codes[0], codes[1].t(), tensor_core(parse("bfloat16"), parse("bfloat16"))) * (
        scales[0] * scales[1]
    )
    assert torch.equal(out, expected)


def test_a_convolution_takes_the_scales_of_tensors_out_and_says_so_of_others() -> None:
    torch.manual_seed(0)
    layer, x = nn.Conv2d(8, 6, 3), torch.randn(2, 8, 6, 6)
    fmt = "scaled(e4m3fn, apply=reciprocal)"
    out = emulate_(layer, Numerics(weight=fmt, activation=fmt, sums="tensor-core"))(x)
    (a, sa), (b, sb) = taken_apart(x, None), taken_apart(layer.weight, None)
    columns = nn.functional.unfold(a.view(2, 8, 6, 6), 3).view(2, 8, 9, 16).permute(0, 3, 2, 1).flatten(2)
    kernels = b.view(6, 8, 3, 3).permute(0, 2, 3, 1).reshape(6, -1)
    rows = matmul(columns, kernels.t(), tensor_core(CODE, CODE)) * (sa * sb).view(()) + layer.bias
    assert torch.equal(out, rows.mT.reshape(2, 6, 4, 4))
    fmt = "scaled(e4m3fn, per=row)"
    other = emulate_(nn.Conv2d(8, 6, 3), Numerics(weight=fmt, activation=fmt, sums="tensor-core"))
    with pytest.warns(TensorCoreWarning, match="sums are float32"):
        other(x)
