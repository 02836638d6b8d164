"""The other families: what they say of themselves, what cannot exist, and how they show single numbers."""

import math
import pickle

import pytest

from presilicon.base import FormatError
from presilicon.formats import NAMED_FORMATS, Fixed, describe, parse, special_results
from presilicon.formats.kernels.reference import quantize_value

SPELLINGS = [
    "fixed(8, 4)", "fixed(integer=4, fraction=3, signed=false, overflow=wrap)", "int(8, scale=0.1)", "bfp(4)",
    "bfp(mantissa=4, exponent=8, group=16)", "bfp(2, 3, 16, 0, square=true, top=-4, below=flush)", "nvfp4(axis=1)",
    "nvfp4(square=true, apply=multiply)",
    "scaled(e4m3fn)", "scaled(e5m2, per=row, axis=0, scale=e8m0, apply=divide, least=1e-12, margin=2)",
    "scaled(fixed(8, 0), per=tile, block=64)",
    "mx(element=e4m3fn, scale=even)", "mx(element=fixed(2, 2), block=8)", "mxfp4(axis=0)", "posit(16, 1)", "posit(8)",
    "lns(5, 3)", "table([1, 2.5, -3])", "int8(scale=channel, axis=1)",
]  # fmt: skip


@pytest.mark.parametrize("spelling", [*SPELLINGS, *NAMED_FORMATS])
def test_spellings_are_read_back(spelling: str) -> None:
    fmt = parse(spelling)
    assert parse(str(fmt)) == fmt
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert hash(parse(str(fmt))) == hash(fmt)
    assert fmt.significand_bits >= 1
    assert fmt.exponent_bits >= 0


@pytest.mark.parametrize(
    ("spelling", "bits", "significand", "exponent"),
    [
        ("int8", 8.0, 8, 0), ("fixed(8, 4)", 12.0, 12, 0), ("bfp(2, exponent=3)", 3 + 3 / 16, 2, 0),
        ("bfp(4, exponent=3)", 5 + 3 / 16, 4, 0), ("bfp(4, square=true)", 5 + 8 / 256, 4, 0),
        ("mxfp8_e4m3", 8.25, 4, 4), ("mxfp6_e2m3", 6.25, 4, 2), ("mxfp4", 4.25, 2, 2), ("mxint8", 8.25, 8, 0),
        ("scaled(e4m3fn)", 8.0, 4, 4), ("scaled(e5m2, per=block)", 8.25, 3, 5),
        ("nvfp4(square=true)", 4 + 1 / 32, 2, 2),
        ("scaled(e4m3fn, per=tile, block=4, scale=e8m0)", 8.5, 4, 4), ("scaled(e4m3fn, per=row)", 8.0, 4, 4),
        ("nvfp4", 4.5, 2, 2), ("posit(16, 2)", 16.0, 12, 7), ("lns(5, 3)", 9.0, 4, 5), ("table([0, 1, 2])", 2.0, 1, 1),
    ],
)  # fmt: skip
def test_widths(spelling: str, bits: float, significand: int, exponent: int) -> None:
    fmt = parse(spelling)
    assert (fmt.bits_per_element, fmt.significand_bits, fmt.exponent_bits) == (bits, significand, exponent)


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ("bfp(4, group=0)", "group must be an integer from 1 to 1048576, not 0"),
        ("bfp(0)", "mantissa must be an integer from 1 to 23, not 0"),
        ("bfp(4, exponent=9)", "exponent must be an integer from 1 to 8, not 9"),
        ("bfp(4, below=flsh)", 'did you mean "flush"'),
        ("bfp(4, axis=last)", "axis must be an integer from -8 to 7, not 'last'"),
        ("bfp(4, square=1)", "square must be true or false, not 1"),
        ("fixed(0, 4)", "integer must be an integer from 1 to 32, not 0"),
        ("fixed(20, 20)", "2 to 32 bits with overflow=saturate, not 40"),
        ("fixed(20, 8, overflow=wrap)", "2 to 24 bits"),
        ("fixed(1, 0)", "2 to 32 bits with overflow=saturate, not 1"),
        ("int(1)", "bits must be an integer from 2 to 24, not 1"),
        ("int(8, scale=-1)", "scale must be a number from 2^-100 to 2^100, tensor or channel, not -1"),
        ("int(8, scale=tensr)", 'did you mean "tensor"'),
        ("mx(element=bfloat16)", "at most 5 exponent bits"),
        ("mx(element=int8)", "a float or a signed"),
        ("mx(element=e4m3n)", 'did you mean "e4m3fn"'),
        ("mxfp4(block=0)", "block must be an integer from 1 to 1048576, not 0"),
        ("mxfp4(scale=flor)", 'did you mean "floor"'),
        ("nvfp4(block=0)", "block must be an integer from 1 to 1048576, not 0"),
        ("nvfp4(apply=divde)", 'did you mean "divide"'),
        ("scaled(float32)", "element must have at most 16 significant bits, not 24"),
        ("scaled(mxfp4)", "element must be a float or a signed"),
        ("scaled(e4m3fn, per=rows)", 'did you mean "row"'),
        ("scaled(e4m3fn, scale=e8m1)", 'did you mean "e8m0"'),
        ("scaled(e4m3fn, least=-1)", "least must be a number from 0 to 1, not -1"),
        ("scaled(e4m3fn, margin=40)", "margin must be an integer from 0 to 32, not 40"),
        ("posit(32, 3)", "values must be at most 2^126"),
        ("posit(2)", "bits must be an integer from 3 to 32, not 2"),
        ("lns(9, 3)", "integer must be an integer from 2 to 7, not 9"),
        ("lns(7, 12)", "at most 16 bits with the sign, not 20"),
        ("table([1])", "2 to 65536 different numbers, not 1"),
        ("table([1, word])", "values must be a list of float32 numbers"),
    ],
)
def test_formats_that_cannot_exist(spelling: str, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(spelling)
    assert words in str(caught.value)


def test_describe_shows_fields_error_and_neighbours() -> None:
    first, second = describe([3.3, -1000.0], Fixed(4, 2))
    assert (first.value, first.below, first.above, first.code) == (3.25, 3.0, 3.5, 13)
    assert [(f.name, f.bits) for f in first.fields] == [("integer", "0011"), ("fraction", "01")]
    assert first.error == pytest.approx(-0.05, abs=1e-6)
    assert (second.value, second.below, second.above) == (-8.0, None, -7.75)


ALONE = [name for name, fmt in NAMED_FORMATS.items() if not fmt.has_shared_scales]


@pytest.mark.parametrize("name", [*ALONE, "table(0, 1, 2, inf)", "table(-1, 0, 1)", "lns(5, 3)", "posit(8, 1)"])
def test_what_specials_become_is_what_the_reference_says(name: str) -> None:
    judged = [quantize_value(value, parse(name)) for value in (math.inf, -math.inf, math.nan)]
    assert list(map(str, special_results(parse(name)))) == list(map(str, judged))


def test_describe_blocks() -> None:
    small, large = describe([0.3, 3.0], parse("bfp(3)"))
    assert (small.value, large.value, small.scale) == (0.5, 3.0, 2.0)
    assert (small.below, small.above, large.above) == (0.0, 1.0, 3.5)
    assert [(f.name, f.bits) for f in large.fields] == [("sign", "0"), ("mantissa", "110")]


@pytest.mark.parametrize("spelling", [*SPELLINGS, *NAMED_FORMATS])
def test_describe_every_format(spelling: str) -> None:
    for shown in describe([0.7, -1.3, 1e9, 0.0], parse(spelling)):
        assert int(shown.bits, 2) == shown.code
        assert "".join(f.bits for f in shown.fields) == shown.bits
        assert shown.below is None or shown.below < shown.value
        assert shown.above is None or shown.above > shown.value


@pytest.mark.parametrize(
    "spelling",
    ["nvfp4", "int8(scale=tensor)", "int(8, scale=0.1)", "e5m2", "posit(8)", "mxfp4", "scaled(e4m3fn, per=block)"],
)
def test_neighbours_are_next_to_the_value(spelling: str) -> None:
    """Numbers between the value and its neighbours are rounded to one of them, and to nothing between."""
    fmt, numbers = parse(spelling), [0.7, -1.3, 0.123, 57.3]
    for i, shown in enumerate(describe(numbers, fmt)[:-1]):
        for end in (shown.below, shown.above):
            assert end is not None
            steps = [shown.value + (end - shown.value) * k / 16 for k in range(1, 17)]
            there = [describe([*numbers[:i], step, *numbers[i + 1 :]], fmt)[i].value for step in steps]
            assert set(there) == {shown.value, end}


def test_describe_posits_by_field() -> None:
    fields = [
        [f"{f.name}={f.bits}" for f in shown.fields] for shown in describe([1.5, 2.0**24, 0.0], parse("posit(8)"))
    ]
    assert fields[0] == ["sign=0", "regime=10", "exponent=00", "fraction=100"]
    assert fields[1:] == [["sign=0", "regime=1111111"], ["sign=0", "regime=0000000"]]


def test_describe_wide_formats() -> None:
    shown = describe([1.0], parse("float32"))[0]
    assert (shown.below, shown.above) == (1 - 2.0**-24, 1 + 2.0**-23)


def test_describe_nan() -> None:
    shown = describe([float("nan"), float("inf")], parse("e5m2"))
    assert shown[0].value != shown[0].value
    assert (shown[0].below, shown[1].below) == (None, 57344.0)
