"""The compiled passes for lists of values and for scales that are numbers against the torch ones, bit for bit."""

import math

import pytest
import torch
from inputs import bfloat16_patterns, near_ties, random_patterns

from presilicon.formats import Format, Key, Stochastic, UserFormat, decode, encode, parse, quantize
from presilicon.formats.kernels import passes

KEY = Key(seed=3, step=1, tensor="t")
ROUNDINGS = ["nearest-even", "nearest-away", "toward-zero", "up", "down", "stochastic", Stochastic(8, "lfsr")]


def small_float(code):  # type: ignore[no-untyped-def]
    """A (1, 3, 2) float with -0, infinities and NaN, as IEEE 754 has them."""
    sign = -1.0 if code & 32 else 1.0
    exponent, mantissa = code >> 2 & 7, code & 3
    if exponent == 7:
        return math.nan if mantissa else sign * math.inf
    return sign * (mantissa * 2.0**-4 if exponent == 0 else (4 + mantissa) * 2.0 ** (exponent - 5))


SMALL = UserFormat("small", (("s", 1), ("e", 3), ("m", 2)), small_float)
LISTS = ["posit(8, 2)", "posit(16, 1)", "posit(3, 0)", "posit(6, 3)", "lns(5, 3)", "lns(7, 8)", "table([1, 2])",
         "table([-1, 2])", "table([-1, -0.5, 0, 0.1, 4, 1000])", "table([-3e38, -1e-45, 3e38])",
         "table([-8, -4, -2, -1, 0, 1, 2, 4, 8, inf])", "table([-inf, -6, -4, 0, 1, 3, 7, 9, inf])",
         "table([-inf, -2, -1, 0, 2, inf], overflow=saturate)"]  # fmt: skip
WRAPPED = ["fixed(4, 3, overflow=wrap)", "fixed(0, 8, signed=false, overflow=wrap)", "fixed(8, 4, overflow=wrap)"]
SCALED = ["int(8, scale=0.1)", "int(5, scale=3, signed=false)", "int(8, scale=tensor)", "int(8, scale=channel)",
          "int(4, scale=channel, axis=1)", "int(8, scale=channel, axis=2)", "nvfp4", "nvfp4(axis=1)", "nvfp4(axis=0)",
          "nvfp4(block=7, tensor_scale=false)"]  # fmt: skip


def check(x: torch.Tensor, fmt: Format, rounding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = quantize(x, fmt, rounding=rounding, key=KEY)
    strided = torch.empty(x.shape[::-1]).permute(tuple(reversed(range(x.dim()))))
    quantize(x, fmt, rounding=rounding, key=KEY, out=strided)
    in_place = x.clone()
    quantize(in_place, fmt, rounding=rounding, key=KEY, out=in_place)
    monkeypatch.setattr(passes, "has_numba", lambda: False)
    expected = quantize(x, fmt, rounding=rounding, key=KEY)
    for result in (ours, strided, in_place):
        assert torch.equal(result.contiguous().view(torch.int32), expected.contiguous().view(torch.int32))


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
@pytest.mark.parametrize("fmt", [*map(parse, LISTS), SMALL, *map(parse, WRAPPED)], ids=str)
def test_lists_and_wrapping(fmt: Format, rounding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    specials = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan])
    count = len(fmt.values) if "table" in str(fmt) else 1 << int(fmt.bits_per_element)
    ties = near_ties(decode(torch.arange(count), fmt).numpy())[:100_000]
    ties = torch.cat([ties, torch.arange(-64, 65) / 4])
    check(torch.cat([random_patterns(40_000), bfloat16_patterns(), ties, specials]), fmt, rounding, monkeypatch)


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
@pytest.mark.parametrize("spelling", SCALED)
def test_scales(spelling: str, rounding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.randn(2, 33, 35, generator=torch.Generator().manual_seed(0)) * 3
    x = torch.cat([random_patterns(30 * 33 * 35).view(30, 33, 35), plain, torch.zeros(1, 33, 35)])
    check(x, parse(spelling), rounding, monkeypatch)


@pytest.mark.parametrize("rounding", ROUNDINGS[:6])
def test_a_user_format_equals_the_float_that_it_spells(rounding: str) -> None:
    x = torch.cat([bfloat16_patterns(), torch.randn(20_000) * 4])
    same = quantize(x, parse("float(3, 2)"), rounding=rounding, key=KEY)
    ours = quantize(x, SMALL, rounding=rounding, key=KEY)
    assert torch.equal(ours.isnan(), same.isnan())
    assert torch.equal(ours.nan_to_num(9.0).view(torch.int32), same.nan_to_num(9.0).view(torch.int32))


def test_the_codes_of_a_user_format_come_back() -> None:
    codes = torch.arange(64)
    values = decode(codes, SMALL)
    assert torch.equal(encode(values, SMALL)[~values.isnan()].long(), codes[~values.isnan()])
