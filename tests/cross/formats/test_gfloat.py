"""Every rounding mode of every format that gfloat has too."""

import gfloat
import gfloat.formats
import numpy as np
import pytest
import torch
from gfloat import RoundMode
from inputs import bfloat16_patterns, near_ties, random_patterns

from presilicon.formats import Float, decode, parse, quantize

FORMATS = {
    "e5m2": gfloat.formats.format_info_ocp_e5m2,
    "e4m3fn": gfloat.formats.format_info_ocp_e4m3,
    "fp6_e3m2": gfloat.formats.format_info_ocp_e3m2,
    "fp6_e2m3": gfloat.formats.format_info_ocp_e2m3,
    "fp4_e2m1": gfloat.formats.format_info_ocp_e2m1,
    "bfloat16": gfloat.formats.format_info_bfloat16,
    "float16": gfloat.formats.format_info_binary16,
    "float(4, 3, specials=p3109)": gfloat.formats.format_info_p3109(8, 4),
    "float(5, 2, specials=p3109)": gfloat.formats.format_info_p3109(8, 3),
}
ROUNDINGS = {
    "nearest-even": RoundMode.TiesToEven,
    "nearest-away": RoundMode.TiesToAway,
    "toward-zero": RoundMode.TowardZero,
    "up": RoundMode.TowardPositive,
    "down": RoundMode.TowardNegative,
}


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", FORMATS)
def test_equals_gfloat(name: str, rounding: str) -> None:
    fmt, info = parse(name), FORMATS[name]
    assert isinstance(fmt, Float)
    saturates = fmt.overflow == "saturate"
    codes = torch.arange(2**fmt.bits) if fmt.bits <= 8 else torch.arange(0, 2**fmt.bits, 37)
    x = torch.cat([bfloat16_patterns()[::7], random_patterns(20_000, seed=1), near_ties(decode(codes, fmt).numpy())])
    if not fmt.has_nan:
        x = x[~torch.isnan(x)]
    theirs = gfloat.round_ndarray(info, x.double().numpy(), ROUNDINGS[rounding], sat=saturates)
    ours = quantize(x, fmt, rounding=rounding).numpy()
    assert np.array_equal(ours, theirs, equal_nan=True)
    kept = ~np.isnan(ours)
    assert np.array_equal(np.signbit(ours[kept]), np.signbit(theirs[kept]))


@pytest.mark.parametrize("name", FORMATS)
def test_values_of_all_codes_equal_gfloat(name: str) -> None:
    fmt, info = parse(name), FORMATS[name]
    codes = torch.arange(2 ** int(fmt.bits_per_element))
    theirs = gfloat.decode_ndarray(info, codes.numpy())
    assert np.array_equal(decode(codes, fmt).numpy(), theirs.astype(np.float32), equal_nan=True)
