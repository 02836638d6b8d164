"""Products on tensor cores have the bits of the CPU's model. By hand: `pytest -m gpu tests/gpu` on a Hopper card."""

import copy

import pytest
import torch
from torch import Tensor, nn

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_
from presilicon.formats import MacUnit, has_tensor_cores, matmul, parse, quantize, tensor_core
from presilicon.study import replay

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or not has_tensor_cores(torch.device("cuda")), reason="no Hopper card is seen"
    ),
    pytest.mark.filterwarnings("ignore::presilicon.emulation.TensorCoreWarning"),
]
TENSOR, ROW, BLOCK = (f"scaled(e4m3fn, per={per})" for per in ("tensor", "row", "block"))
DRAWN = RoleFormat(parse("e5m2"), rounding="stochastic")
NUMERICS = {
    "bf16": Numerics(weight="bfloat16", activation="bfloat16", error="bfloat16"),
    "fp16": Numerics(weight="float16", activation="float16", error="bfloat16"),
    "fp8": Numerics(weight="e4m3fn", activation="e4m3fn", error="e5m2", gradient="bfloat16"),
    "fp8 at random": Numerics(weight="e4m3fn", activation="e4m3fn", error=DRAWN),
    "mxfp8": Numerics(weight="mxfp8_e4m3", activation="mxfp8_e4m3", error="mxfp8_e5m2"),
    "scaled tensors": Numerics(weight=TENSOR, activation=TENSOR, error="scaled(e5m2)"),
    "scaled rows": Numerics(weight=ROW, activation=ROW, error=ROW),
    "scaled blocks": Numerics(weight="scaled(e4m3fn, per=tile)", activation=BLOCK, error=BLOCK),
    "nvfp4": Numerics(weight="nvfp4", activation="nvfp4", error="nvfp4"),
    "bfp": Numerics(weight="bfp(mantissa=4, group=16)", activation="bfp(mantissa=4, group=16)", error="bfloat16"),
}


class Mixer(nn.Module):
    """A linear layer, and a product of activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(200, 96), nn.Linear(96, 40, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return self.last((x @ x.mT) @ x)


CONVOLUTIONS = {
    "convolution": (lambda: nn.Conv2d(24, 16, 3, bias=False), (24, 9, 9), (16, 7, 7)),
    "with a stride": (lambda: nn.Conv2d(64, 32, 3, 2, 1), (64, 9, 9), (32, 5, 5)),
    "of groups": (lambda: nn.Conv2d(64, 64, 3, groups=2, dilation=2), (64, 9, 9), (64, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(24, 16, 3, 2), (24, 5, 5), (16, 11, 11)),
    "1-D": (lambda: nn.Conv1d(24, 16, 3, padding=1), (24, 9), (16, 9)),
    "3-D": (lambda: nn.Conv3d(4, 16, 3), (4, 5, 5, 5), (16, 3, 3, 3)),
}


def step(model: nn.Module, x: Tensor, error: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = model(x)
    out.backward(error)
    # The gradient of a bias is a sum outside of all products, in an order of the device's own.
    weights = [parameter.grad for parameter in model.parameters() if parameter.dim() > 1]
    return [tensor.detach().cpu() for tensor in (out, x.grad, *weights)]


CASES = [("mixer", name) for name in NUMERICS] + [
    (kind, name) for kind in CONVOLUTIONS for name in ("bf16", "fp8", "mxfp8", "scaled tensors", "nvfp4")
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_model_has_the_same_bits_on_the_card(name: str, kind: str) -> None:
    torch.manual_seed(0)
    if kind == "mixer":
        model, x, error = Mixer(), torch.randn(3, 50, 200) / 8, torch.randn(3, 50, 40)
    else:
        model, shape, results = CONVOLUTIONS[kind]
        model, x, error = model(), torch.randn(4, *shape), torch.randn(4, *results)
    numerics = Numerics(
        **{field: getattr(NUMERICS[name], field) for field in ("weight", "activation", "error")}, sums="tensor-core"
    )
    here = step(emulate_(copy.deepcopy(model), numerics, seed=3), x, error)
    there = step(emulate_(copy.deepcopy(model).cuda(), numerics, seed=3), x.cuda(), error.cuda())
    assert all(map(torch.equal, here, there))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (100, 70, 33), (64, 128, 5000), (300, 16, 129), (128, 256, 256)])
@pytest.mark.parametrize(
    "pair", [("bfloat16", "bfloat16"), ("e4m3fn", "e5m2"), ("float16", "e4m3fn"), ("tf32", "bfloat16")]
)
def test_products_of_any_size_have_the_bits_of_the_model(sizes, pair) -> None:
    torch.manual_seed(0)
    m, n, k = sizes
    a, b = quantize(torch.randn(m, k), parse(pair[0])), quantize(torch.randn(k, n), parse(pair[1]))
    unit = tensor_core(*map(parse, pair))
    expected = matmul(a, b, unit)
    for left in (a.cuda(), a.t().contiguous().t().cuda()):
        assert torch.equal(matmul(left, b.cuda(), unit).cpu(), expected)
    other = MacUnit(**{**{f: getattr(unit, f) for f in unit.__struct_fields__}, "align_bits": 9})
    if k > 32:
        assert not torch.equal(matmul(a, b, other), expected)


def test_a_replay_has_the_same_hash() -> None:
    numerics = NUMERICS["fp8 at random"]
    here, there = (replay(numerics, steps=20, every=20, device=device).points[-1] for device in ("cpu", "cuda"))
    assert here == there
