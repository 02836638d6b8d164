"""Codes: round trips of all of them, and the bits of ml_dtypes."""

import numpy as np
import pytest
import torch
from test_float_oracles import ORACLES

from presilicon.base import FormatError
from presilicon.formats import (
    NAMED_FORMATS,
    BlockCodes,
    BlockFloat,
    Integer,
    Mx,
    Nvfp4,
    decode,
    encode,
    parse,
    quantize,
)

SPELLINGS = [
    *(name for name, fmt in NAMED_FORMATS.items() if fmt.bits_per_element <= 16 and not isinstance(fmt, Mx | Nvfp4)),
    "float(6, 9)", "float(3, 0, specials=none)", "float(5, 10, specials=p3109)", "fixed(8, 8)", "fixed(3, 5)",
    "fixed(4, 4, signed=false)", "int(8, scale=0.25)", "posit(8, 2)", "posit(16, 2)", "posit(16, 1)", "posit(5, 0)",
    "lns(5, 3)", "lns(6, 9)", "table([1, 2, 3, 5])",
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_all_codes_round_trip(spelling: str) -> None:
    fmt = parse(spelling)
    codes = torch.arange(2**fmt.bits)
    values = decode(codes, fmt)
    again = encode(values, fmt)
    assert isinstance(again, torch.Tensor)
    assert torch.equal(quantize(values, fmt).nan_to_num(7.25), values.nan_to_num(7.25))
    assert torch.equal(decode(again, fmt).nan_to_num(7.25), values.nan_to_num(7.25))
    same = again.long() == codes
    flushed = ~same & (values == 0)
    assert (same | torch.isnan(values) | flushed).all()
    assert int((~same & flushed).sum()) <= 1  # the second zero of lns
    finite = values[torch.isfinite(values)]
    assert len(torch.unique(finite)) >= len(finite) - 2


@pytest.mark.parametrize("name", ORACLES)
def test_codes_are_the_bits_of_ml_dtypes(name: str) -> None:
    fmt = parse(name)
    values = decode(torch.arange(2**fmt.bits), fmt)
    values = values[~torch.isnan(values)]
    stored = values.numpy().astype(ORACLES[name])
    bits = stored.view(np.uint8 if stored.itemsize == 1 else np.uint16)
    codes = encode(values, fmt)
    assert isinstance(codes, torch.Tensor)
    assert np.array_equal(codes.numpy().astype(np.int64), bits.astype(np.int64))


@pytest.mark.parametrize("name", ["float32", "tf32", "fixed(16, 16)", "posit(32, 2)", "posit(24, 1)"])
def test_wide_codes_round_trip(name: str) -> None:
    fmt = parse(name)
    x = torch.cat([torch.randn(10**5) * 20, torch.tensor([0.0, float("inf"), float("nan"), 1e-30])])
    values = quantize(x, fmt)
    codes = encode(x, fmt)
    assert isinstance(codes, torch.Tensor)
    assert torch.equal(decode(codes, fmt).nan_to_num(7.25), values.nan_to_num(7.25))


@pytest.mark.parametrize("rounding", ["nearest-even", "stochastic"])
@pytest.mark.parametrize(
    "spelling",
    ["bfp(4)", "bfp(2, axis=0)", "bfp(4, group=4, square=true)", "bfp(4, exponent=3)",
     "bfp(3, exponent=2, below=flush)", "bfp(4, exponent=4, top=2)", "mxfp8_e4m3", "mxfp8_e5m2(scale=rceil)",
     "mxfp4", "mxint8", "nvfp4", "nvfp4(axis=0)", "nvfp4(square=true)",
     "scaled(e4m3fn)", "scaled(e5m2, per=row, axis=0)", "scaled(e4m3fn, per=block, block=16)",
     "scaled(e4m3fn, per=tile)",
     "int8(scale=tensor)", "int8(scale=channel, axis=1)"],
)  # fmt: skip
def test_block_codes_round_trip(spelling: str, rounding: str) -> None:
    fmt = parse(spelling)
    x = torch.randn(9, 37, generator=torch.Generator().manual_seed(0)) * torch.exp2(torch.arange(-18.0, 19.0))
    x[3, 4] = -0.0
    codes = encode(x, fmt, rounding=rounding)
    assert isinstance(codes, BlockCodes)
    assert int(codes.elements.max()) < 2**fmt.bits
    values = quantize(x, fmt, rounding=rounding)
    assert torch.equal(decode(codes, fmt), values)
    if isinstance(fmt, BlockFloat):
        assert 0 <= int(codes.scales.min()) <= int(codes.scales.max()) < 2**fmt.exponent


def test_a_poisoned_block_has_the_nan_scale() -> None:
    x = torch.ones(64)
    x[40] = float("nan")
    codes = encode(x, parse("mxfp8_e4m3"))
    assert isinstance(codes, BlockCodes)
    assert codes.scales.tolist() == [119, 255]
    assert torch.isnan(decode(codes, parse("mxfp8_e4m3"))).tolist() == [False] * 32 + [True] * 32


def test_the_fields_of_int8() -> None:
    codes = encode(torch.tensor([-128.0, -1.0, 127.0, 500.0]), Integer(8))
    assert isinstance(codes, torch.Tensor)
    assert codes.tolist() == [128, 255, 127, 127]


def test_codes_out_of_range() -> None:
    with pytest.raises(FormatError, match="codes must be from 0 to 255"):
        decode(torch.tensor([256]), parse("e5m2"))
    with pytest.raises(FormatError, match="BlockCodes"):
        decode(torch.tensor([3]), parse("mxfp4"))
