"""MAC units have the same bits on the card as on the CPU. By hand: `pytest -m gpu tests/gpu` with a CUDA device."""

import pytest
import torch
from torch import Tensor

from presilicon.formats import Float, Key, MacUnit, has_tensor_cores, matmul, parse, quantize, tensor_core

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen")]

KEY = Key(seed=3, step=5, tensor="product")
IBM, FLOAT16, FLOAT32 = Float(6, 9), parse("float16"), parse("float32")
SIZES = [(1, 1, 1), (70, 33, 129)]
KINDS = ["bits", "wide", "float16", "e5m2"]
UNITS = [
    MacUnit(accumulate=FLOAT16, chunk=64),
    MacUnit(accumulate=parse("bfloat16")),
    MacUnit(accumulate=FLOAT16, fused=False, chunk=33),
    MacUnit(accumulate=IBM, chunk=64),
    MacUnit(accumulate=Float(4, 3, specials="fn"), chunk=16),
    MacUnit(accumulate=IBM, chunk=64, rounding="stochastic"),
    MacUnit(accumulate=FLOAT16, rounding="stochastic(bits=8)"),
    MacUnit(accumulate=Float(3, 3, overflow="saturate"), chunk=50, rounding="toward-zero"),
    MacUnit(accumulate=FLOAT16, rounding="nearest-away"),
    MacUnit(accumulate=IBM, rounding="down"),
    MacUnit(accumulate=IBM, partial=FLOAT32, chunk=64),
    MacUnit(accumulate=FLOAT16, partial=FLOAT32, chunk=64, rounding="stochastic"),
    MacUnit(order="systolic", rows=50),
]
ROUNDED_CHUNKS = [
    tensor_core(FLOAT16, FLOAT16, split=64, accumulate=IBM),
    tensor_core(parse("bfloat16"), FLOAT16, split=48, accumulate=Float(5, 2)),
    tensor_core(parse("e5m2"), parse("e4m3fn"), promotion=128, accumulate=FLOAT16),
    tensor_core(parse("tf32"), parse("tf32"), split=32, accumulate=FLOAT32),
    tensor_core(FLOAT16, FLOAT16, split=64, accumulate=IBM, rounding="stochastic"),
    tensor_core(FLOAT16, FLOAT16, split=256, accumulate=FLOAT16, rounding="toward-zero"),
    tensor_core(FLOAT16, FLOAT16, split=64, accumulate=IBM, rounding="up"),
]


def operand(kind: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Numbers of a format; float16 of many exponents, with sums beyond every small range; or any bits at all."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "bits":
        return torch.randint(-(2**31), 2**31, shape, generator=generator).to(torch.int32).view(torch.float32)
    x = torch.randn(shape, generator=generator)
    if kind == "wide":
        return quantize(x * 2.0 ** torch.randint(-12, 12, shape, generator=generator), FLOAT16)
    return quantize(x, parse(kind))


def differing(found: Tensor, expected: Tensor) -> int:
    found = found.cpu()
    same = (found.view(torch.int32) == expected.view(torch.int32)) | (found.isnan() & expected.isnan())
    return int((~same).sum())


@pytest.mark.parametrize("mac", UNITS, ids=str)
def test_every_rounding_is_that_of_the_cpu(mac: MacUnit) -> None:
    for seed, (rows, columns, depth) in enumerate(SIZES):
        for kind in KINDS:
            a, b = operand(kind, (1, rows, depth), seed), operand(kind, (depth, columns), seed + 9)
            expected = matmul(a, b, mac, key=KEY)
            assert differing(matmul(a.cuda(), b.cuda(), mac, key=KEY), expected) == 0, (kind, rows)
    huge, zeros = torch.full((2, 3), 1e30), torch.zeros(3, 5)
    assert differing(matmul(huge.cuda(), zeros.cuda(), mac, key=KEY), matmul(huge, zeros, mac, key=KEY)) == 0
    other = MacUnit(accumulate=Float(5, 2))
    assert differing(matmul(a.cuda(), b.cuda(), other, key=KEY), expected) > 0


@pytest.mark.parametrize("mac", ROUNDED_CHUNKS, ids=str)
@pytest.mark.skipif(
    not torch.cuda.is_available() or not has_tensor_cores(torch.device("cuda")), reason="no Hopper card is seen"
)
def test_sums_of_tensor_cores_are_rounded_at_chunk_boundaries(mac: MacUnit) -> None:
    from presilicon.formats.mac.chunked_gpu import chunk_instructions

    assert chunk_instructions(mac) is not None
    for seed, (rows, columns, depth) in enumerate([(70, 33, 129), (64, 64, 128)]):
        for kind in ("e5m2", "wide"):
            a, b = operand(kind, (1, rows, depth), seed), operand(kind, (depth, columns), seed + 9)
            expected = matmul(a, b, mac, key=KEY)
            found = matmul(a.cuda(), b.cuda(), mac, key=KEY)
            assert differing(found, expected) == 0, (kind, rows)
    coarse = MacUnit(**{**{f: getattr(mac, f) for f in mac.__struct_fields__}, "accumulate": Float(5, 1)})
    a, b = operand("e4m3fn", (1, 64, 128), 1), operand("e4m3fn", (128, 64), 10)
    assert differing(matmul(a.cuda(), b.cuda(), coarse, key=KEY), matmul(a, b, mac, key=KEY)) > 0
