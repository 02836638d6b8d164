"""The same bits on a GPU as on the CPU. By hand: `pytest -m gpu tests/gpu` on a machine with a CUDA device."""

import pytest
import torch
from torch import nn

from presilicon.designs import Numerics, RoleFormat, load_design
from presilicon.emulation import emulate_
from presilicon.formats import Key, MacUnit, Stochastic, matmul, parse, quantize, typed_operand

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen"),
]

KEY = Key(seed=3, step=5, tensor="w")
MODES = [
    "nearest-even",
    "nearest-away",
    "toward-zero",
    "up",
    "down",
    Stochastic(),
    Stochastic(4),
    Stochastic(8, "lfsr"),
]
FORMATS = [
    "float32", "float16", "bfloat16", "tf32", "e5m2", "e4m3", "e4m3fn", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1",
    "fixed(8, 4)", "int8", "int(8, scale=tensor)", "int(5, scale=channel)", "float(exponent=6, mantissa=9)",
    "bfp(mantissa=4, group=16)", "bfp(mantissa=3, group=5, axis=0)", "bfp(mantissa=4, exponent=3, below=flush)",
    "bfp(mantissa=2, square=true)", "mxfp8_e5m2", "mxfp8_e4m3", "mxfp6_e3m2", "mxfp4", "mxint8", "nvfp4",
    "nvfp4(square=true)", "nvfp4(apply=reciprocal)", "nvfp4(axis=0, apply=multiply)", "nvfp(tensor_scale=false)",
    "scaled(e4m3fn)", "scaled(e4m3fn, per=row)", "scaled(e5m2, per=row, axis=0, scale=e8m0)",
    "scaled(e4m3fn, per=block, apply=divide)", "scaled(e4m3fn, per=block, axis=0, scale=e8m0, apply=divide)",
    "scaled(e4m3fn, per=tile, apply=multiply, least=1e-4)", "scaled(fixed(2, 6), per=tile, block=4, margin=1)",
    "scaled(e4m3fn, per=block, block=2048)", "posit(8, 1)", "lns(4, 3)",
]  # fmt: skip


def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    same = found.cpu().view(torch.int32) == expected.view(torch.int32)
    return bool((same | (found.cpu().isnan() & expected.isnan())).all())


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(-(2**31), 2**31, (64, 257), generator=generator, dtype=torch.int64)
    return [words.to(torch.int32).view(torch.float32), torch.randn(128, 96, generator=generator) * 3]


@pytest.mark.parametrize("name", FORMATS)
def test_rounding(name: str) -> None:
    fmt = parse(name)
    for x in inputs():
        for mode in MODES:
            expected = quantize(x, fmt, rounding=mode, key=KEY)
            assert equal(quantize(x.cuda(), fmt, rounding=mode, key=KEY), expected), mode
            strided = x.cuda().t().contiguous().t()
            assert equal(quantize(strided, fmt, rounding=mode, key=KEY), expected), mode


@pytest.mark.parametrize("name", ["e5m2", "bfp(mantissa=4)", "mxfp8_e4m3", "nvfp4", "scaled(e4m3fn, per=row, axis=1)"])
def test_the_order_of_memory_is_kept_and_changes_no_bits(name: str) -> None:
    fmt = parse(name)
    images = torch.randn(3, 8, 5, 7).contiguous(memory_format=torch.channels_last)
    for x in (images, torch.randn(4, 96, 33).mT, torch.randn(7, 6, 5).permute(1, 2, 0)):
        for mode in ("nearest-even", "stochastic"):
            found = quantize(x.cuda(), fmt, rounding=mode, key=KEY)
            assert found.stride() == x.stride() or mode == "stochastic"  # words follow the row-major index
            assert equal(found.contiguous(), quantize(x, fmt, rounding=mode, key=KEY).contiguous()), mode


@pytest.mark.parametrize(
    "name", ["mxfp8_e4m3", "mxfp4", "bfp(mantissa=4)", "bfp(mantissa=4, axis=0)", "e5m2", "bfloat16"]
)
def test_operands_of_tensor_cores_are_written_in_their_type(name: str) -> None:
    fmt = parse(name)
    x = torch.randn(96, 160)
    for mode in ("nearest-even", Stochastic()):
        typed = typed_operand(x.cuda(), fmt, mode, KEY)
        assert typed is not None
        assert typed.dtype is not torch.float32
        assert equal(typed.float(), quantize(x, fmt, rounding=mode, key=KEY)), mode
        assert torch.equal(typed_operand(x.cuda().t().contiguous().t(), fmt, mode, KEY).float(), typed.float())


@pytest.mark.parametrize("name", ["nvfp4", "nvfp4(axis=0)", "scaled(e4m3fn)", "scaled(e4m3fn, per=block, axis=0)"])
def test_codes_and_scales_come_from_one_pass(name: str) -> None:
    fmt, x = parse(name), torch.randn(160, 300)
    dtype = torch.bfloat16 if fmt.kind == "nvfp" else torch.float8_e4m3fn
    for mode in ("nearest-even", Stochastic()):
        expected = fmt.taken_apart(x, mode, KEY)
        for source in (x.cuda(), x.cuda().t().contiguous().t()):
            codes, scales = fmt.taken_apart(source, mode, KEY, None, dtype)
            assert codes.dtype is dtype
            assert equal(codes.float(), expected[0]), mode
            assert equal(scales, expected[1]), mode


@pytest.mark.parametrize("name", ["bfp(mantissa=4, exponent=3)", "nvfp4", "scaled(e4m3fn)", "scaled(e4m3fn, per=row)"])
def test_no_rounding_waits_for_the_gpu(name: str) -> None:
    """CUDA refuses to record a stream that anything waits for."""
    fmt, x = parse(name), torch.randn(64, 64, device="cuda")
    expected, out, graph = quantize(x, fmt), torch.empty_like(x), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        quantize(x, fmt, out=out)
    x.mul_(2.0)
    graph.replay()
    assert torch.equal(out, 2.0 * expected)


@pytest.mark.parametrize(
    "mac",
    [
        MacUnit(accumulate=parse("float(exponent=6, mantissa=9)"), order="chunked", chunk=16),
        MacUnit(accumulate=parse("float(exponent=6, mantissa=9)"), partial=parse("float32"), order="chunked", chunk=16),
        MacUnit(accumulate=parse("float16"), rounding="stochastic"),
        MacUnit(order="systolic", rows=16),
        MacUnit(accumulate=parse("float16"), order="pairwise"),
        MacUnit(order="aligned", width=8, align_bits=24),
    ],
    ids=str,
)
def test_matrix_products(mac: MacUnit) -> None:
    generator = torch.Generator().manual_seed(1)
    fmt = parse("e5m2")
    a, b = (quantize(torch.randn(shape, generator=generator), fmt) for shape in [(2, 37, 65), (2, 65, 41)])
    assert equal(matmul(a.cuda(), b.cuda(), mac, key=KEY), matmul(a, b, mac, key=KEY))


def test_an_emulated_layer() -> None:
    torch.manual_seed(0)
    mac = MacUnit(accumulate=parse("float(exponent=6, mantissa=9)"), order="chunked", chunk=16)
    numerics = Numerics(weight=RoleFormat(parse("e4m3")), error=RoleFormat(parse("e5m2"), "stochastic"), mac=mac)
    results = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        layer = nn.Conv2d(3, 4, 3, padding=1, bias=False).to(device)
        x = torch.randn(2, 3, 8, 8).to(device)
        emulate_(layer, numerics)
        layer(x).square().sum().backward()
        results.append(layer.weight.grad.cpu())
    assert torch.equal(*results)


def test_presets_train_on_a_gpu() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
    emulate_(model, load_design("fp8-systolic").numerics)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(256, 8, device="cuda")
    target = (x.sum(1) > 0).long()
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
