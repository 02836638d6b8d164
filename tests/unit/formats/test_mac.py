from itertools import product

import pytest

from presilicon.base.config import decode, parse_toml, to_plain
from presilicon.base.errors import ConfigError, FormatError
from presilicon.formats import Float, Format, parse
from presilicon.formats.mac import MacUnit
from presilicon.formats.mac_passes import multiply_in_passes, slices_of
from presilicon.formats.mac_plan import plan_of


def read(text: str) -> MacUnit:
    data, source = parse_toml(text, "unit.toml")
    return decode(data, MacUnit, source, lambda kind, value: parse(value) if kind is Format else value)


def test_a_unit_is_read_from_toml() -> None:
    unit = read('accumulate = "float(6, 9)"\norder = "chunked"\nchunk = 64\npartial = "float32"')
    assert unit == MacUnit(accumulate=Float(6, 9), order="chunked", chunk=64, partial=parse("float32"))
    assert hash(unit) == hash(read('partial = "float32"\naccumulate = "float(6, 9)"\norder = "chunked"\nchunk = 64'))
    assert to_plain(unit)["accumulate"] == "float(exponent=6, mantissa=9)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('order = "chunked"', ["order=chunked needs chunk", "chunk=64"]),
        ('order = "systolic"', ["order=systolic needs rows"]),
        ('order = "aligned"', ["needs align_bits"]),
        ('order = "spiral"', ["line 1, $.order", "Allowed", "systolic"]),
        ("chunk = 0", ["chunk=0 cannot be", "1 to"]),
        ("width = 2000", ["width=2000", "1024"]),
        ("rows = 4", ["rows=4 means nothing to order=sequential"]),
        ("align_bits = 4", ["align_bits=4 means nothing"]),
        ('order = "pairwise"\nwidth = 4', ["width=4 means nothing to order=pairwise"]),
        ('order = "systolic"\nrows = 4\nchunk = 4', ["chunk=4 means nothing to order=systolic"]),
        ('fused = true\nmultiply = "bfloat16"', ["fused=true cannot go with multiply=bfloat16"]),
        ('rounding = "sideways"', ['unknown rounding "sideways"']),
        ('accumulate = "posit(16, 1)"', ["accumulate=posit(", "allowed: floating point"]),
        ('multiply = "mxfp4"', ["multiply=mxfp4", "allowed: floating point"]),
        ('partial = "fixed(8, 8, overflow=wrap)"', ["partial=fixed(", "wraps"]),
        ("chunks = 4", ['unknown key "chunks"', "chunk"]),
    ],
)
def test_units_that_cannot_be(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert all(word in str(caught.value) for word in ["unit.toml", *words]), str(caught.value)


def test_a_unit_made_in_python_is_checked_when_used() -> None:
    with pytest.raises(FormatError, match="needs rows"):
        plan_of(MacUnit(order="systolic"))
    with pytest.raises(FormatError, match="did you mean"):
        plan_of(MacUnit(order="sequentil"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (MacUnit(chunk=64), "float32, chunked(chunk=64)"),
        (MacUnit(accumulate=parse("float16"), order="systolic", rows=8), "float16, systolic(rows=8)"),
        (
            MacUnit(order="aligned", width=4, align_bits=24, rounding="toward-zero"),
            "float32, aligned(width=4, align_bits=24), toward-zero",
        ),
        (MacUnit(multiply=parse("bfloat16"), slice_bits=2), "float32, sequential, products in bfloat16, 2-bit slices"),
        (MacUnit(fused=False), "float32, sequential, products rounded"),
        (
            MacUnit(accumulate=Float(6, 9), partial=parse("float32"), chunk=64),
            "float(exponent=6, mantissa=9), chunked(chunk=64), partial sums in float32",
        ),
    ],
)
def test_text(unit: MacUnit, text: str) -> None:
    assert str(unit) == text


def test_which_units_are_left_to_the_library() -> None:
    assert MacUnit().is_float32
    assert MacUnit(slice_bits=2, fused=True).is_float32
    others = [
        MacUnit(fused=False),
        MacUnit(chunk=8),
        MacUnit(order="pairwise"),
        MacUnit(width=4),
        MacUnit(rounding="up"),
        MacUnit(accumulate=parse("tf32")),
        MacUnit(multiply=parse("float32")),
    ]
    assert not any(unit.is_float32 for unit in others)


def test_roundings_are_counted() -> None:
    def count(depth: int, **fields: object) -> int:
        return plan_of(MacUnit(**fields)).rounding_count(depth)  # type: ignore[arg-type]

    assert count(0) == 0
    assert count(10) == 11
    assert count(10, fused=False) == 21
    assert count(10, chunk=4) == 10 + 3
    assert count(10, width=4) == 10 + 3 + 1
    assert count(10, order="pairwise") == 9 + 1
    assert count(1, order="pairwise") == 2
    assert count(10, order="aligned", align_bits=20, width=4) == 3 + 1


@pytest.mark.parametrize(("bits_a", "bits_b"), [(2, 2), (2, 4), (4, 2), (4, 4), (3, 4), (1, 4)])
def test_sliced_products_are_exact(bits_a: int, bits_b: int) -> None:
    fmac = MacUnit(slice_bits=2)
    for a, b in product(range(-(2**bits_a) + 1, 2**bits_a), range(-(2**bits_b) + 1, 2**bits_b)):
        assert multiply_in_passes(a, b, bits_a, bits_b) == (a * b, fmac.passes(bits_a, bits_b))


def test_a_mantissa_that_does_not_fit() -> None:
    with pytest.raises(FormatError, match="mantissa 16 does not fit 4 bits"):
        slices_of(16, bits=4)
    assert MacUnit().passes(24, 24) == 1
