"""Scaled formats as inputs of the card's FP8 products. By hand: `pytest -m gpu tests/gpu` on a Hopper card or later."""

import pytest
import torch
from torch import Tensor

from presilicon.formats import BlockCodes, Scaled, encode, parse, quantize

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen"),
]

M, K, N = 256, 512, 384


def operands() -> tuple[Tensor, Tensor]:
    """Rows of different magnitude; both operands have their reduction axis last."""
    generator = torch.Generator().manual_seed(0)
    return tuple(
        (torch.randn(rows, K, generator=generator) * torch.exp2(torch.randn(rows, 1, generator=generator) * 4)).cuda()
        for rows in (M, N)
    )  # type: ignore[return-value]


def codes_and_scales(x: Tensor, fmt: Scaled) -> tuple[Tensor, Tensor]:
    codes = encode(x, fmt)
    assert isinstance(codes, BlockCodes)
    return codes.elements.view(torch.float8_e4m3fn), codes.scales


def multiply(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], per_a: str, per_b: str) -> Tensor:
    """The card's product; blocks go through the interface that names how operands are scaled."""
    a_scale, b_scale = a[1], b[1]
    if per_a == "tensor":
        return torch._scaled_mm(a[0], b[0].mT, a_scale, b_scale, out_dtype=torch.float32)
    if per_a == "row":
        return torch._scaled_mm(a[0], b[0].mT, a_scale, b_scale.mT.contiguous(), out_dtype=torch.bfloat16)
    scaled_mm = getattr(torch.nn.functional, "scaled_mm", None)
    if scaled_mm is None or torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("block scales in float32 need torch.nn.functional.scaled_mm and a Hopper card")
    recipes = torch.nn.functional.ScalingType
    kinds = {"block": recipes.BlockWise1x128, "tile": recipes.BlockWise128x128}
    # Scales of 1x128 blocks lie along the rows, those of tiles along the reduction axis.
    a_scale = a_scale.mT.contiguous().mT
    b_scale = b_scale.mT if per_b == "tile" else b_scale.mT.contiguous().mT
    return scaled_mm(
        a[0], b[0].mT, a_scale, kinds[per_a], b_scale, kinds[per_b], output_dtype=torch.bfloat16
    )  # fmt: skip


@pytest.mark.parametrize(
    ("per_a", "per_b"), [("tensor", "tensor"), ("row", "row"), ("block", "tile"), ("block", "block")]
)
@pytest.mark.parametrize("scale", ["float32", "e8m0"])
def test_the_card_multiplies_our_codes_and_scales(per_a: str, per_b: str, scale: str) -> None:
    x, w = operands()
    formats = [parse(f"scaled(e4m3fn, per={per}, scale={scale})") for per in (per_a, per_b)]
    a, b = (codes_and_scales(tensor, fmt) for tensor, fmt in zip((x, w), formats, strict=True))  # type: ignore[arg-type]
    values = [quantize(tensor, fmt).double() for tensor, fmt in zip((x, w), formats, strict=True)]
    exact = values[0] @ values[1].mT
    # Sums of 32 products keep 13 bits on Hopper; the result may be bfloat16.
    bound = values[0].abs() @ values[1].abs().mT * (K / 32 * 2.0**-13) + exact.abs() * 2.0**-8
    product = multiply(a, b, per_a, per_b).double()
    assert ((product - exact).abs() <= bound).all()
    wrong = multiply((a[0], a[1].flip(0) if a[1].dim() else a[1] * 2), b, per_a, per_b).double()
    assert ((wrong - exact).abs() > bound).any()


@pytest.mark.parametrize("per", ["tensor", "row", "block", "tile"])
def test_codes_are_those_of_the_cast_of_torch(per: str) -> None:
    x, _ = operands()
    fmt = parse(f"scaled(e4m3fn, per={per})")
    assert isinstance(fmt, Scaled)
    codes, scales = codes_and_scales(x, fmt)
    forward, back = fmt.factors(fmt.amax_of(x))
    assert torch.equal(scales, back)
    factor = forward
    if per == "block":
        factor = forward.repeat_interleave(128, 1)
    elif per == "tile":
        factor = forward.repeat_interleave(128, 0).repeat_interleave(128, 1)
    cast = (x * factor).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(codes.view(torch.uint8), cast.view(torch.uint8))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_scale_from_outside_stays_on_the_card() -> None:
    x, _ = operands()
    fmt = Scaled("e4m3fn", margin=1)
    amax = fmt.amax_of(x) / 3
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        rounded = fmt.round_with(x, amax)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(rounded.cpu(), fmt.round_with(x.cpu(), amax.cpu()))
