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
