"""Reference = Numba = torch fallback = ml_dtypes, bit for bit."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
from inputs import bfloat16_patterns, near_ties, random_patterns, same_bits

from presilicon.formats import Key, Stochastic, decode, parse, quantize
from presilicon.formats.kernels.cpu_passes import round_elements
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.reference import quantize_value
from presilicon.formats.kernels.torch_kernels import random_words, round_to_grid

ORACLES = {
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3": ml_dtypes.float8_e4m3,
    "e3m4": ml_dtypes.float8_e3m4,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn,
    "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
}
ROUNDINGS = [
    "nearest-even",
    "nearest-away",
    "toward-zero",
    "up",
    "down",
    "stochastic",
    Stochastic(4),
    Stochastic(8, "lfsr"),
]
KEY = Key(seed=3, step=5, tensor="w")


def oracle(x: torch.Tensor, name: str) -> torch.Tensor:
    """The oracle's rounding; NaN into a format without NaN is ours to state (a zero of NaN's sign)."""
    with np.errstate(all="ignore"):
        rounded = x.numpy().astype(ORACLES[name]).astype(np.float32)
    if not parse(name).has_nan:
        rounded = np.where(np.isnan(x.numpy()), np.copysign(np.float32(0), x.numpy()), rounded)
    return torch.from_numpy(rounded)


def all_values(name: str) -> np.ndarray:
    codes = torch.arange(2 ** int(parse(name).bits_per_element))
    return decode(codes, parse(name)).numpy()


@pytest.mark.parametrize("name", ORACLES)
def test_numba_equals_ml_dtypes(name: str) -> None:
    for x in (bfloat16_patterns(), random_patterns(10**6), near_ties(all_values(name))):
        ours = quantize(x, parse(name))
        assert same_bits(ours, oracle(x, name)).all()


@pytest.mark.parametrize("name", ORACLES)
def test_torch_fallback_equals_numba(name: str) -> None:
    fmt = parse(name)
    x = torch.cat([bfloat16_patterns(), random_patterns(10**6), near_ties(all_values(name))])
    assert torch.equal(
        round_to_grid(x, grid_of(fmt), "nearest-even").view(torch.int32), quantize(x, fmt).view(torch.int32)
    )


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
@pytest.mark.parametrize("name", ["e5m2", "e4m3fn", "fp4_e2m1", "bfloat16", "e5m2fnuz", "float32"])
def test_every_rounding_numba_equals_torch(name: str, rounding: str | Stochastic) -> None:
    fmt = parse(name)
    x = torch.cat([bfloat16_patterns(), random_patterns(10**5)])
    mode = Stochastic() if rounding == "stochastic" else rounding
    words = random_words(KEY, mode, 0, x.numel(), x.device) if isinstance(mode, Stochastic) else None
    expected = round_to_grid(x, grid_of(fmt), mode, words)
    assert torch.equal(quantize(x, fmt, rounding=rounding, key=KEY).view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
@pytest.mark.parametrize(
    "spelling",
    ["e5m2", "e4m3", "e4m3fn", "fp6_e3m2", "float16", "bfloat16", "tf32", "float(6, 9)", "float(3, 0, specials=none)",
     "e5m2(subnormals=false)", "e4m3fn(overflow=saturate)", "fp4_e2m1(nan=max)", "float(7, 7, specials=none)",
     "float(4, 3, specials=p3109)", "float(1, 2, specials=fn)"],
)  # fmt: skip
def test_numba_equals_reference(spelling: str, rounding: str | Stochastic) -> None:
    fmt = parse(spelling)
    tie_values = all_values(spelling) if fmt.bits_per_element <= 8 else np.zeros(2, np.float32)
    x = torch.cat([bfloat16_patterns()[::97], random_patterns(1500, seed=9), near_ties(tie_values)])
    ours = quantize(x, fmt, rounding=rounding, key=KEY)
    judged = [quantize_value(v, fmt, rounding, KEY, i) for i, v in enumerate(x.tolist())]
    assert same_bits(ours, torch.tensor(judged)).all()


def test_float64_is_rounded_once() -> None:
    """1 + 2^-3 + 2^-40 is above the tie of e5m2, but a float32 in between would make it the tie."""
    x = torch.tensor([1 + 2.0**-3 + 2.0**-40, 1 + 2.0**-3, 1e300, -1e-300], dtype=torch.float64)
    ours = quantize(x, parse("e5m2"))
    assert ours.dtype == torch.float64
    assert ours.tolist() == [1.25, 1.0, float("inf"), 0.0]
    assert ours.tolist() == [quantize_value(v, parse("e5m2")) for v in x.tolist()]


@pytest.mark.parametrize("field", ["mantissa", "low", "max_positive", "over_negative", "nan", "tiny"])
def test_the_comparison_can_fail(field: str) -> None:
    """A wrong kernel parameter is seen by the comparison above."""
    x = random_patterns(10**5)
    grid = grid_of(parse("e5m2"))
    wrong = replace(grid, **{field: grid.max_positive if field == "tiny" else getattr(grid, field) - 1})
    mutated = round_elements(x, wrong, "nearest-even", KEY, None)
    expected = oracle(x, "e5m2")
    different = ~same_bits(mutated, expected)
    if field == "nan":
        different = mutated.view(torch.int32) != quantize(x, parse("e5m2")).view(torch.int32)
    assert different.any()
