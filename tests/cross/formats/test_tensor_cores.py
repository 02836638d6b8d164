"""Tensor cores: every implementation of the modelled unit agrees with MMA-Sim, bit by bit."""

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from oracles.mac_units import multiply_matrices
from presilicon.base import FormatError
from presilicon.formats import Float, MacUnit, matmul, parse
from presilicon.formats.mac import plain
from presilicon.formats.mac.plan import plan_of
from presilicon.formats.mac.tensor_core import instruction_of, tensor_core
from presilicon.formats.rounding import Key

ptx = pytest.importorskip("mmasim.nv_ptx", reason="pip install --no-deps mmasim")

TYPES = {
    "bfloat16": (torch.bfloat16, "k16.f32.bf16.bf16"),
    "float16": (torch.float16, "k16.f32.f16.f16"),
    "tf32": (torch.float32, "k8.f32.tf32.tf32"),
    "e4m3fn": (torch.float8_e4m3fn, "k32.f32.e4m3.e4m3"),
    "e5m2": (torch.float8_e5m2, "k32.f32.e5m2.e5m2"),
}


def numbers(name: str, rows: int, depth: int, spread: int, seed: int) -> Tensor:
    """Random numbers of a format over a range of exponents, with zeros."""
    dtype, _ = TYPES[name]
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-spread, spread + 1, (rows, depth), generator=generator)
    x = torch.randn(rows, depth, generator=generator) * torch.exp2(exponents.float())
    x[torch.rand(rows, depth, generator=generator) < 0.05] = 0
    if name == "tf32":
        return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
    largest = torch.finfo(dtype).max
    return x.clamp(-largest, largest).to(dtype)


def by_mmasim(name: str, a: Tensor, b: Tensor, start: Tensor | None = None) -> Tensor:
    """(M, K) by (N, K) as Hopper's wgmma adds it up."""
    unit = ptx.WGMMA("Hopper", f"m64n64{TYPES[name][1]}")
    total = torch.zeros(len(a), len(b)) if start is None else start
    left, right = a[:, None, :].expand(-1, len(b), -1), b[None].expand(len(a), -1, -1)
    return unit.dpa(left, right, total)


def bits(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), torch.nan, x).view(torch.int32)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("spread", [0, 4, 12, 60])
@pytest.mark.parametrize("depth", [32, 75])
def test_the_unit_adds_as_the_instruction_does(name: str, spread: int, depth: int) -> None:
    a, b = (numbers(name, 24, depth, spread, seed) for seed in (1, 2))
    unit = tensor_core(parse(name), parse(name), split=None, promotion=None)
    padded = [torch.nn.functional.pad(x.float(), (0, -depth % 32)).to(x.dtype) for x in (a, b)]
    expected = by_mmasim(name, *padded)
    x, y = a.float(), b.float().t()
    ours = matmul(x, y, unit)
    assert torch.equal(bits(ours), bits(expected))
    by_torch = plain.multiply(x[None], y[None], plan_of(unit), Key())[0]
    assert torch.equal(bits(by_torch), bits(expected))
    slow = multiply_matrices(x[:3].tolist(), y[:, :3].tolist(), unit)
    assert torch.equal(bits(torch.tensor(slow)), bits(expected[:3, :3]))


def test_every_pair_of_fp8_formats_has_its_exponents() -> None:
    a, b = numbers("e4m3fn", 24, 64, 3, 1), numbers("e5m2", 24, 64, 3, 2)
    a = (a.float() / 64).to(a.dtype)  # subnormal numbers of e4m3 are normal ones of e5m2
    unit = tensor_core(parse("e4m3fn"), parse("e5m2"), promotion=None)
    core = ptx.WGMMA("Hopper", "m64n64k32.f32.e4m3.e5m2")
    expected = core.dpa(a[:, None].expand(-1, 24, -1), b[None].expand(24, -1, -1), torch.zeros(24, 24))
    assert torch.equal(bits(matmul(a.float(), b.float().t(), unit)), bits(expected))
    swapped = tensor_core(parse("e5m2"), parse("e4m3fn"), promotion=None)
    assert not torch.equal(bits(matmul(a.float(), b.float().t(), swapped)), bits(expected))


@pytest.mark.parametrize(("name", "chunk"), [("e4m3fn", 128), ("bfloat16", 96)])
def test_chunks_are_added_in_float32(name: str, chunk: int) -> None:
    a, b = (numbers(name, 16, 300, 3, seed) for seed in (1, 2))
    expected = torch.zeros(16, 16)
    for start in range(0, 300, chunk):
        parts = [x[:, start : start + chunk].float() for x in (a, b)]
        parts = [torch.nn.functional.pad(part, (0, -part.shape[1] % 32)).to(a.dtype) for part in parts]
        expected = expected + by_mmasim(name, *parts)
    unit = tensor_core(parse(name), parse(name), split=chunk, promotion=chunk)
    assert torch.equal(bits(matmul(a.float(), b.float().t(), unit)), bits(expected))


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ([3e38, 3e38], [3.0, 3.0]),
        ([3e38, 3e38], [1.0, 1.0]),
        ([2.0**-75, 0.0], [-(2.0**-76), 0.0]),
        ([2.0**-80, 2.0**-70], [2.0**-70, 2.0**-70]),
        ([float("inf"), 1.0], [1.0, 1.0]),
        ([float("inf"), float("inf")], [1.0, -1.0]),
        ([float("nan"), 1.0], [1.0, 1.0]),
        ([float("inf"), 1.0], [0.0, 1.0]),
        ([2.0**-130, 1.0], [2.0**-3, 2.0**-120]),
    ],
)
def test_extremes(row: list[float], column: list[float]) -> None:
    a, b = (torch.tensor([values]).to(torch.bfloat16) for values in (row, column))
    padded = [torch.nn.functional.pad(x, (0, 14)) for x in (a, b)]
    expected = by_mmasim("bfloat16", *padded)
    unit = tensor_core(parse("bfloat16"), parse("bfloat16"), split=None)
    assert torch.equal(bits(matmul(a.float(), b.float().t(), unit)), bits(expected))
    slow = multiply_matrices(a.float().tolist(), b.float().t().tolist(), unit)
    assert torch.equal(bits(torch.tensor(slow)), bits(expected))
    by_torch = plain.multiply(a.float()[None], b.float().t()[None], plan_of(unit), Key())[0]
    assert torch.equal(bits(by_torch), bits(expected))


def test_the_comparison_can_fail() -> None:
    a, b = (numbers("bfloat16", 24, 64, 4, seed) for seed in (1, 2))
    expected = by_mmasim("bfloat16", a, b)
    unit = tensor_core(parse("bfloat16"), parse("bfloat16"), split=None)
    for change in ({"align_bits": 24}, {"width": 8}, {"rounding": "nearest-even"}):
        other = matmul(a.float(), b.float().t(), replace(unit, **change))
        assert not torch.equal(bits(other), bits(expected))


def test_formats_find_the_instruction_that_holds_them() -> None:
    names = {
        name: instruction_of(parse(name)).name for name in ("bfloat16", "float16", "tf32", "e4m3fn", "e5m2", "e4m3")
    }
    assert names == {
        "bfloat16": "bf16", "float16": "fp16", "tf32": "tf32", "e4m3fn": "e4m3", "e5m2": "e5m2", "e4m3": "e4m3"
    }  # fmt: skip
    assert str(tensor_core(parse("float16"), parse("bfloat16")).left) == "tf32"
    assert str(tensor_core(parse("e4m3fn"), parse("bfloat16")).left) == "bfloat16"
    with pytest.raises(FormatError, match="no instruction of a tensor core holds float32"):
        tensor_core(parse("float32"), parse("bfloat16"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"order": "aligned", "align_bits": 25, "left": Float(8, 7)}, "name both"),
        ({"left": Float(8, 7), "right": Float(8, 7)}, "order=sequential has no left"),
        ({"partial_rounding": "toward-zero"}, "name both"),
    ],
)
def test_units_that_cannot_be_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        MacUnit(**fields).check()
