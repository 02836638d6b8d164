"""The reference's arithmetic against numpy, ml_dtypes and Python's own integers."""

import warnings

import ml_dtypes
import numpy as np
import pytest

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument.model.arithmetic import FixedArithmetic, FloatArithmetic
from presilicon.instrument.model.fast import kernel_words
from presilicon.instrument.model.fast_kernels import code_of, fixed_product, value_of
from presilicon.instrument.model.words import values_of

FLOATS = {
    "float32": (np.float32, np.uint32, None),
    "float16": (np.float16, np.uint16, None),
    "bfloat16": (ml_dtypes.bfloat16, np.uint16, None),
    "e5m2": (ml_dtypes.float8_e5m2, np.uint8, None),
    "float(4, 3)": (ml_dtypes.float8_e4m3, np.uint8, None),
    "float(3, 4)": (ml_dtypes.float8_e3m4, np.uint8, None),
    "bfloat16 in 32 bits": (np.float32, np.uint32, 32),
}


def pairs(bits: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of all kinds; half of the pairs close to each other, where cancellation and ties are."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 1 << bits, count)
    y = np.where(rng.random(count) < 0.5, x + rng.integers(-70, 70, count), rng.integers(0, 1 << bits, count))
    return x, (y ^ (rng.integers(0, 2, count) << (bits - 1))) % (1 << bits)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_floats_against_an_oracle(name: str, operation: str) -> None:
    kind, integer, width = FLOATS[name]
    hardware = Hardware(element=parse(name.split(" in ")[0]), accumulator_bits=width)
    arithmetic, words = FloatArithmetic(hardware), kernel_words(hardware)
    if hardware.word_bits > 8:
        x, y = pairs(hardware.word_bits, 20_000, seed=1)
    else:
        x, y = (side.ravel() for side in np.meshgrid(np.arange(256), np.arange(256)))
    a, b = x.astype(integer).view(kind), y.astype(integer).view(kind)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = function(a.astype(np.float64), b.astype(np.float64))
        expected = function(a, b)
    assert expected.dtype == kind
    wanted = np.where(np.isnan(wide), arithmetic.nan, expected.view(integer).astype(np.int64))
    found = [getattr(arithmetic, operation)(int(p), int(q)) for p, q in zip(x, y, strict=True)]
    np.testing.assert_array_equal(found, wanted)
    for p, q, r in zip(x[:2000], y[:2000], wanted[:2000], strict=True):
        v, w = value_of(p, words), value_of(q, words)
        assert code_of(v + w if operation == "add" else v - w if operation == "sub" else v * w, words) == r


@pytest.mark.parametrize("bias", [-20, -3, 2, 40])
def test_odd_biases_go_through_the_kernels_too(bias: int) -> None:
    hardware = Hardware(element=parse(f"float(5, 4, bias={bias})"), accumulator_bits=16)
    arithmetic, words = FloatArithmetic(hardware), kernel_words(hardware)
    x, y = pairs(16, 4000, seed=2)
    for p, q in zip(x.tolist(), y.tolist(), strict=True):
        v, w = value_of(p, words), value_of(q, words)
        assert code_of(v + w, words) == arithmetic.add(p, q)
        assert code_of(v * w, words) == arithmetic.mul(p, q)
    kernel = np.array([value_of(p, words) for p in x])
    np.testing.assert_array_equal(kernel, values_of(hardware, x))


@pytest.mark.parametrize("spelling", ["int8", "fixed(4, 4)", "fixed(1, 7)"])
def test_every_pair_of_small_fixed_point(spelling: str) -> None:
    hardware = Hardware(element=parse(spelling))
    arithmetic, words = FixedArithmetic(hardware), kernel_words(hardware)
    codes = np.arange(-128, 128)
    x, y = (side.ravel() for side in np.meshgrid(codes, codes))
    ends, far = (-128, 127), 1 << 20  # saturation is sticky: an end counts as if it were far beyond the range
    infinite_x, infinite_y = (np.where(np.isin(side, ends), np.sign(side) * far, side) for side in (x, y))
    product = np.where(np.isin(x, ends) | np.isin(y, ends), np.where((x < 0) == (y < 0), far, -far), x * y)
    expected = {
        "add": np.clip(np.where(np.isin(x, ends), infinite_x, x + infinite_y), -128, 127),
        "sub": np.clip(np.where(np.isin(x, ends), infinite_x, x - infinite_y), -128, 127),
        "mul": np.clip(np.floor_divide(product, 1 << hardware.fraction_bits), -128, 127),
        "max": np.maximum(x, y),
        "min": np.minimum(x, y),
    }
    for name, wanted in expected.items():
        found = [getattr(arithmetic, name)(p, q) for p, q in zip(x.tolist(), y.tolist(), strict=True)]
        np.testing.assert_array_equal(found, wanted)
    assert [arithmetic.abs(code) for code in (-128, -127, -1, 0, 127)] == [127, 127, 1, 0, 127]
    assert fixed_product(-3, 1, words) == expected["mul"][(x == -3) & (y == 1)][0]


@pytest.mark.parametrize("spelling", ["fixed(32, 0)", "fixed(16, 16)", "fixed(1, 31)", "fixed(31, 1)"])
def test_products_of_wide_words_are_exact(spelling: str) -> None:
    hardware = Hardware(element=parse(spelling), accumulator_bits=48)
    words = kernel_words(hardware)
    rng = np.random.default_rng(3)
    largest = (1 << 47) - 1
    scales = rng.integers(0, 48, (2, 5000))
    x, y = (np.clip(rng.integers(-largest - 1, largest + 1, 5000) >> scale, -largest - 1, largest) for scale in scales)
    for p, q in zip(x.tolist(), y.tolist(), strict=True):
        wanted = min(max(p * q >> hardware.fraction_bits, -largest - 1), largest)
        if not {p, q}.isdisjoint((-largest - 1, largest)):
            wanted = largest if (p < 0) == (q < 0) else -largest - 1
        assert fixed_product(p, q, words) == wanted
