"""Block formats lie along each product's reduction axis, and MAC units add up every product, in training."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import Numerics, ProductNumerics, RoleFormat, load_design
from presilicon.emulation import emulate_
from presilicon.formats import MacUnit, UserFormat, matmul, parse, quantize

BLOCK = parse("bfp(mantissa=3, group=4)")


def linear(numerics: Numerics, rows: int = 6, inner: int = 8, cols: int = 5):
    """Output, weight gradient and input gradient of a linear layer under `numerics`, with what went in."""
    torch.manual_seed(0)
    layer = nn.Linear(inner, cols, bias=False)
    x, error = torch.randn(rows, inner, requires_grad=True), torch.randn(rows, cols)
    emulate_(layer, numerics)
    out = layer(x)
    out.backward(error)
    return out.detach(), layer.weight.grad, x.grad, x.detach(), layer.weight.detach(), error


def along(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    return quantize(tensor, BLOCK.along(axis))


def test_blocks_follow_the_reduction_axis_of_each_product() -> None:
    role = RoleFormat(BLOCK)
    out, weight_grad, input_grad, x, w, e = linear(Numerics(weight=role, activation=role, error=role))
    assert torch.equal(out, along(x, 1) @ along(w, 1).t())
    assert torch.equal(input_grad, along(e, 1) @ along(w, 0))
    assert torch.equal(weight_grad, along(e, 0).t() @ along(x, 0))
    assert not torch.equal(along(w, 0), along(w, 1))


def test_a_fixed_grouping_keeps_one_copy() -> None:
    role = RoleFormat(BLOCK)
    numerics = Numerics(weight=role, activation=role, error=role, grouping="fixed")
    out, weight_grad, input_grad, x, w, e = linear(numerics)
    assert torch.equal(out, along(x, 1) @ along(w, 1).t())
    assert torch.equal(input_grad, along(e, 1) @ along(w, 1))
    assert torch.equal(weight_grad, along(e, 1).t() @ along(x, 1))


def test_square_tiles_need_no_second_copy() -> None:
    tile = parse("bfp(mantissa=3, group=4, square=true)")
    role = RoleFormat(tile)
    out, weight_grad, input_grad, x, w, e = linear(Numerics(weight=role, activation=role, error=role))
    rounded = {name: quantize(tensor, tile) for name, tensor in (("x", x), ("w", w), ("e", e))}
    assert torch.equal(out, rounded["x"] @ rounded["w"].t())
    assert torch.equal(input_grad, rounded["e"] @ rounded["w"])
    assert torch.equal(weight_grad, rounded["e"].t() @ rounded["x"])


def test_biases_add_up_errors_that_block_formats_leave_to_the_products() -> None:
    errors = torch.randn(6, 5)
    for spelling in ("mxfp4", "nvfp4", "scaled(element=e5m2)", "e5m2"):
        layer = emulate_(nn.Linear(8, 5), Numerics(error=spelling))
        layer(torch.randn(6, 8)).backward(errors)
        summed = quantize(errors, parse("e5m2")) if spelling == "e5m2" else errors
        assert torch.equal(layer.bias.grad, summed.sum(0))


def test_blocks_of_a_grouped_convolution_stay_inside_their_group() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(12, 12, 3, groups=2, bias=False)
    x = torch.randn(2, 12, 5, 5)
    emulate_(layer, Numerics(activation=RoleFormat(BLOCK)))
    halves = [quantize(half.contiguous(), BLOCK.along(1)) for half in x.chunk(2, dim=1)]
    expected = torch.cat(
        [nn.functional.conv2d(half, w) for half, w in zip(halves, layer.weight.chunk(2), strict=True)], dim=1
    )
    assert torch.allclose(layer(x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("spelling", ["nvfp4(square=true)", "scaled(e4m3fn, per=tile, block=8)"])
def test_square_tiles_of_a_convolution_lie_over_the_matrix_of_its_kernels(spelling: str) -> None:
    torch.manual_seed(0)
    layer, x = nn.Conv2d(6, 20, 3, bias=False), torch.randn(2, 6, 5, 5)
    fmt = parse(spelling)
    kernels = quantize(layer.weight.flatten(1), fmt).view(layer.weight.shape)
    assert not torch.equal(kernels, quantize(layer.weight, fmt))
    assert torch.equal(emulate_(layer, Numerics(weight=RoleFormat(fmt)))(x), functional.conv2d(x, kernels))


MAC = MacUnit(accumulate=parse("float(exponent=6, mantissa=9)"), order="chunked", chunk=4)


@pytest.mark.parametrize("phase", ["forward", "input_grad", "weight_grad"])
def test_each_product_has_its_own_mac_unit(phase: str) -> None:
    plain = linear(Numerics())
    out, weight_grad, input_grad, x, w, e = linear(Numerics(**{phase: ProductNumerics(mac=MAC)}))
    expected = {"forward": plain[0], "weight_grad": plain[1], "input_grad": plain[2]}
    expected[phase] = {
        "forward": lambda: matmul(x, w.t(), MAC),
        "input_grad": lambda: matmul(e, w, MAC),
        "weight_grad": lambda: matmul(e.t(), x, MAC),
    }[phase]()
    assert torch.equal(out, expected["forward"])
    assert torch.equal(weight_grad, expected["weight_grad"])
    assert torch.equal(input_grad, expected["input_grad"])
    assert not torch.equal(
        expected[phase], {"forward": plain[0], "weight_grad": plain[1], "input_grad": plain[2]}[phase]
    )


def test_convolutions_run_through_the_mac_unit() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3, stride=2, padding=1)
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    native = layer(x)
    native.square().sum().backward()
    native_grads = [x.grad.clone(), layer.weight.grad.clone()]
    x.grad = layer.weight.grad = None
    emulate_(layer, Numerics(mac=MAC))
    out = layer(x)
    out.square().sum().backward()
    for found, exact in [
        (out.detach(), native.detach()),
        (x.grad, native_grads[0]),
        (layer.weight.grad, native_grads[1]),
    ]:
        assert not torch.equal(found, exact)
        assert torch.allclose(found, exact, rtol=0.03, atol=0.03 * float(exact.abs().max()))
    # The unit adds up all channels of an element of the kernel before the next element.
    columns = nn.functional.unfold(x.detach(), 3, padding=1, stride=2).view(2, 3, 9, 9).permute(0, 3, 2, 1)
    kernels = layer.weight.detach().view(4, 3, 9).mT.reshape(4, 27)
    expected = matmul(columns.reshape(-1, 27), kernels.t(), MAC)
    expected = expected.view(2, 9, 4).transpose(1, 2).reshape(2, 4, 3, 3) + layer.bias.detach().view(1, 4, 1, 1)
    assert torch.equal(out.detach(), expected)


def test_a_design_file_names_block_formats_and_mac_units(tmp_path) -> None:
    path = tmp_path / "bfp4.toml"
    path.write_text(
        """
name = "bfp4-systolic"
[machine]
kind = "systolic"
rows = 128
cols = 128
clock_ghz = 0.5
[numerics]
weight = "bfp(mantissa=4, exponent=8, group=16)"
activation = "bfp(mantissa=4, exponent=8, group=16)"
error = { format = "bfp(mantissa=4, exponent=8, group=16)", rounding = "stochastic" }
master = "float32"
[numerics.mac]
accumulate = "float(exponent=6, mantissa=9)"
order = "chunked"
chunk = 64
[numerics.weight_grad.mac]
accumulate = "float32"
"""
    )
    numerics = load_design(path).numerics
    assert numerics.mac_of("forward").chunk == 64
    assert numerics.mac_of("weight_grad").is_float32
    assert numerics.error.is_stochastic


def test_tensors_that_no_product_reduces_lie_as_the_format_says() -> None:
    role = RoleFormat(parse("bfp(mantissa=3, group=4, axis=0)"))
    _, weight_grad, *_ = linear(Numerics(gradient=role))
    _, plain, *_ = linear(Numerics())
    assert torch.equal(weight_grad, along(plain, 0))
    model = nn.Linear(8, 5)
    emulate_(model, Numerics(master=RoleFormat(parse("bfp(mantissa=3, group=4, axis=1)"))))
    assert torch.equal(model.bias.data, along(model.bias.data, -1))


def test_float64_models_need_units_that_can_multiply_them() -> None:
    with pytest.raises(ConfigError, match="MAC units multiply float32"):
        emulate_(nn.Linear(2, 2).double(), Numerics(mac=MAC))


def test_the_order_of_a_systolic_unit_is_that_of_the_machine() -> None:
    settings = ["machine.rows=8", "numerics.mac.order=systolic"]
    with pytest.raises(ConfigError, match="rows = 8"):
        load_design("fp32-systolic", [*settings, "numerics.mac.rows=4"])
    assert load_design("fp32-systolic", [*settings, "numerics.mac.rows=8"]).numerics.mac.rows == 8


def test_evaluation_draws_its_own_random_numbers() -> None:
    layer = nn.Linear(8, 5, bias=False)
    emulate_(layer, Numerics(weight=RoleFormat(parse("e5m2"), "stochastic")))
    x = torch.randn(3, 8)
    trained = layer(x).detach()
    layer.eval()
    assert not torch.equal(layer(x), trained)
    assert torch.equal(layer(x), layer(x))


def log_of_code(code):
    """A coarse logarithm: the position of the leading one, in quarters."""
    position = 0
    while code > 1:
        code >>= 1
        position += 1
    return 4 * position


def quarter_value(code):
    return code * 0.25


def test_a_user_formats_own_log_is_what_the_model_computes() -> None:
    class Logarithm(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x) + x.log()

    fmt = UserFormat("quarters_with_log", (("m", 8),), quarter_value, log=log_of_code)
    model = emulate_(Logarithm(), Numerics(activation=RoleFormat(fmt)))
    x = torch.tensor([0.25, 1.0, 2.1, 60.0], requires_grad=True)
    out = model(x)
    expected = [2 * quarter_value(log_of_code(round(float(value) * 4))) for value in x.detach()]
    assert out.tolist() == expected
    out.sum().backward()
    assert torch.equal(x.grad, 2 / quantize(x.detach(), fmt))  # at the values that the steps have


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.project(x)
        return functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Attention(), (2, 5, 8)),
        (nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(inplace=True)), (2, 5, 8)),
        (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(inplace=True)), (2, 3, 6, 6)),
        (nn.Sequential(nn.ConvTranspose1d(3, 8, 3, bias=False), nn.SiLU(inplace=True)), (2, 3, 6)),
    ],
)
def test_results_of_mac_units_may_be_changed_in_place(model: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    gradients = []
    for numerics in (Numerics(), Numerics(mac=MacUnit(accumulate=parse("float(exponent=8, mantissa=22)")))):
        net = emulate_(copy.deepcopy(model), numerics)
        net(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in net.parameters()])
    for plain, emulated in zip(*gradients, strict=True):
        torch.testing.assert_close(emulated, plain)
