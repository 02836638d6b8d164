import pickle

import pytest

from presilicon.base import FormatError
from presilicon.formats import NAMED_FORMATS, Float, Format, parse


@pytest.mark.parametrize(
    ("name", "largest", "normal", "subnormal", "significand", "bits"),
    [
        ("float32", 3.4028234663852886e38, 2.0**-126, 2.0**-149, 24, 32),
        ("float16", 65504.0, 2.0**-14, 2.0**-24, 11, 16),
        ("bfloat16", 3.3895313892515355e38, 2.0**-126, 2.0**-133, 8, 16),
        ("e5m2", 57344.0, 2.0**-14, 2.0**-16, 3, 8),
        ("e4m3", 240.0, 2.0**-6, 2.0**-9, 4, 8),
        ("e4m3fn", 448.0, 2.0**-6, 2.0**-9, 4, 8),
        ("fp6_e3m2", 28.0, 0.25, 0.0625, 3, 6),
        ("fp6_e2m3", 7.5, 1.0, 0.125, 4, 6),
        ("fp4_e2m1", 6.0, 1.0, 0.5, 2, 4),
        ("tf32", 3.4011621342146535e38, 2.0**-126, 2.0**-136, 11, 19),
    ],
)
def test_ranges(name: str, largest: float, normal: float, subnormal: float, significand: int, bits: int) -> None:
    fmt = parse(name)
    assert isinstance(fmt, Float)
    assert (fmt.max, fmt.min_normal, fmt.min_subnormal) == (largest, normal, subnormal)
    assert (fmt.significand_bits, fmt.bits_per_element) == (significand, bits)


def test_defaults_are_filled_in_so_that_equal_formats_are_equal() -> None:
    assert Float(5, 2) == Float(5, 2, bias=15, overflow="infinity")
    assert hash(Float(5, 2)) == hash(Float(5, 2, bias=15))
    assert Float(4, 3, specials="fn").overflow == "nan"
    assert Float(2, 1, specials="none").overflow == "saturate"


@pytest.mark.parametrize("fmt", NAMED_FORMATS.values(), ids=str)
def test_values_survive_pickle_and_spelling(fmt: Format) -> None:
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert parse(str(fmt)) == fmt
    assert parse(fmt.spelling()) == fmt


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"exponent": 5, "mantissa": 30}, ["mantissa must be an integer from 0 to 23, not 30"]),
        ({"exponent": 0, "mantissa": 3}, ["not 0", "fixed(i, f)"]),
        ({"exponent": 9, "mantissa": 3}, ["exponent must be an integer from 1 to 8, not 9"]),
        ({"exponent": 5, "mantissa": 2.5}, ["not 2.5"]),
        ({"exponent": True, "mantissa": 2}, ["not True"]),
        ({"exponent": 5, "mantissa": 2, "specials": "iee"}, ['did you mean "ieee"']),
        ({"exponent": 5, "mantissa": 0}, ["specials=ieee", "mantissa >= 1"]),
        (
            {"exponent": 4, "mantissa": 3, "specials": "fn", "overflow": "infinity"},
            ["must be nan or saturate", "not infinity"],
        ),
        (
            {"exponent": 4, "mantissa": 3, "specials": "none", "overflow": "nan"},
            ["overflow must be saturate", "not nan"],
        ),
        ({"exponent": 8, "mantissa": 7, "bias": 200}, ["bias=200", "float32"]),
        ({"exponent": 8, "mantissa": 3, "specials": "none"}, ["exponents -126 to 128"]),
        ({"exponent": 1, "mantissa": 0, "specials": "fn"}, ["leaves no code for a non-zero number"]),
        ({"exponent": 5, "mantissa": 2, "subnormals": "no"}, ["subnormals must be true or false, not 'no'"]),
    ],
)
def test_formats_that_cannot_exist(arguments: dict[str, object], words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        Float(**arguments)  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)
