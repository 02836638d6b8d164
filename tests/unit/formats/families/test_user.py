import math

import numpy as np
import pytest
import torch

from presilicon.base import FormatError
from presilicon.formats import NAMED_FORMATS, Float, UserFormat, decode, encode, parse, quantize, register
from presilicon.formats.kernels.user_functions import operation_table, user_function


def as_float(code):  # type: ignore[no-untyped-def]
    """A (1, 5, 2) float without infinities: the top exponent is a number."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 2) & 31, code & 3
    if exponent == 0:
        return sign * mantissa * 2.0**-16
    return sign * (4 + mantissa) * 2.0 ** (exponent - 17)


def convert(x):  # type: ignore[no-untyped-def]
    """Truncation toward zero, NaN to 0."""
    if math.isnan(x):
        return 0
    code = 0x80 if x < 0 else 0
    size = min(abs(x), 114688.0)
    if size < 2.0**-14:
        return code | int(size * 2.0**16)
    exponent = math.floor(math.log2(size))
    return code | ((exponent + 15) << 2) | (int(size * 2.0 ** (2 - exponent)) & 3)


def add(a, b):  # type: ignore[no-untyped-def]
    return min(a + b, 255)


def wide_as_float(code):  # type: ignore[no-untyped-def]
    return code / 1024.0 - 512.0


def wide_convert(x):  # type: ignore[no-untyped-def]
    return int(min(max((x + 512.0) * 1024.0, 0.0), 2.0**20 - 1))


FIELDS = (("s", 1), ("e", 5), ("m", 2))
NEW_FP = UserFormat("new_fp", FIELDS, as_float, convert, add=add)


def test_fields() -> None:
    assert NEW_FP.bits == 8
    assert (NEW_FP.significand_bits, NEW_FP.exponent_bits, NEW_FP.bits_per_element) == (3, 5, 8.0)
    assert NEW_FP.pack(s=1, e=15, m=2) == 0b10111110
    assert NEW_FP.unpack(0b10111110) == {"s": 1, "e": 15, "m": 2}
    with pytest.raises(FormatError, match="m must be an integer from 0 to 3, not 4"):
        NEW_FP.pack(m=4)


def test_the_users_conversion_is_used() -> None:
    x = torch.tensor([1.24, -1.24, 1e9, float("nan"), 3e-5, 0.0])
    values = quantize(x, NEW_FP)
    assert values.tolist() == [1.0, -1.0, 114688.0, 0.0, 2.0**-16, 0.0]
    same = Float(5, 2, specials="none")
    y = torch.randn(10_000) * 100
    assert torch.equal(quantize(y, NEW_FP), quantize(y, same, rounding="toward-zero"))


def test_an_asked_rounding_uses_the_values_of_all_codes() -> None:
    y = torch.randn(10_000) * 100
    same = Float(5, 2, specials="none")
    for rounding in ("nearest-even", "up", "stochastic"):
        assert torch.equal(quantize(y, NEW_FP, rounding=rounding), quantize(y, same, rounding=rounding))


def test_without_conversion_the_nearest_value_is_taken() -> None:
    fmt = UserFormat("nearest", FIELDS, as_float)
    y = torch.randn(1000)
    assert torch.equal(quantize(y, fmt), quantize(y, Float(5, 2, specials="none")))


def test_codes() -> None:
    codes = torch.arange(256)
    assert decode(codes, NEW_FP).tolist() == [as_float(c) for c in range(256)]
    again = encode(decode(codes, NEW_FP), NEW_FP)
    assert again.tolist() == [c if c != 128 else 0 for c in range(256)]


def test_wide_codes_are_compiled() -> None:
    fmt = UserFormat("wide", (("x", 20),), wide_as_float, wide_convert)
    x = torch.tensor([0.0, 100.123, -1e6, 1e6])
    assert quantize(x, fmt).tolist() == [0.0, math.floor(612.123 * 1024) / 1024 - 512, -512.0, 512 - 1 / 1024]
    assert encode(x, fmt).tolist()[2:] == [0, 2**20 - 1]
    with pytest.raises(FormatError, match="at most 16 bits can be listed, not 20"):
        quantize(x, fmt, rounding="up")


def test_operations() -> None:
    table = operation_table(NEW_FP, "add")
    assert table.shape == (256, 256)
    assert table.dtype == np.uint8
    assert table[3, 4] == 7
    assert user_function(NEW_FP, "add")(200, 100) == 255
    with pytest.raises(FormatError, match="no function `mul`"):
        operation_table(NEW_FP, "mul")


def test_registered_names_are_read() -> None:
    try:
        assert register(NEW_FP) is NEW_FP
        assert register(NEW_FP) is NEW_FP
        assert parse("new_fp") is NEW_FP
        assert parse(str(NEW_FP)) == NEW_FP
        with pytest.raises(FormatError, match="belongs to another"):
            register(UserFormat("new_fp", FIELDS, as_float))
    finally:
        NAMED_FORMATS.pop("new_fp", None)
    with pytest.raises(FormatError, match="belongs to another"):
        register(UserFormat("e5m2", FIELDS, as_float))


def bad_code(x):  # type: ignore[no-untyped-def]
    return 256


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "not a word"}, "name must be a word"),
        ({"fields": (("s", 1), ("s", 2))}, "different names"),
        ({"fields": (("s", 33),)}, "s must be an integer from 1 to 32, not 33"),
        ({"fields": ()}, "1 to 32 bits in all, not 0"),
        ({"as_float": 3}, "as_float must be a function of a code, not 3"),
        ({"add": 3}, "add must be a function, not 3"),
        ({"mad": "x"}, "mad must be a function, not 'x'"),
        ({"fields": ("s", "m")}, "pairs of a name"),
        ({"fields": 8}, "fields must be pairs"),
        ({"fields": (("m", 20),), "convert": None}, "convert must be given above 16 bits"),
    ],
)
def test_formats_that_cannot_exist(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        UserFormat(**{"name": "n", "fields": FIELDS, "as_float": as_float, "convert": convert, **arguments})  # type: ignore[arg-type]


def test_a_conversion_that_leaves_the_fields() -> None:
    with pytest.raises(FormatError, match="code 256"):
        quantize(torch.ones(2), UserFormat("bad", FIELDS, as_float, bad_code))


def raises(code):  # type: ignore[no-untyped-def]
    raise ValueError("no such code")


def text(code):  # type: ignore[no-untyped-def]
    return "1.5"


def uncompilable(x):  # type: ignore[no-untyped-def]
    return open("nothing").fileno() + x


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({"as_float": raises}, "broken: `as_float` fails with ValueError: no such code"),
        ({"as_float": text}, "broken: `as_float` must give numbers, not '1.5'"),
        ({"convert": uncompilable}, "broken: `convert` fails with FileNotFoundError"),
    ],
)
@pytest.mark.filterwarnings("ignore:broken. `convert` cannot be compiled")
def test_functions_that_fail(functions: dict[str, object], words: str) -> None:
    with pytest.raises(FormatError) as caught:
        quantize(torch.ones(2), UserFormat("broken", FIELDS, **{"as_float": as_float, **functions}))  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def tenths(code):  # type: ignore[no-untyped-def]
    return (code - 512) / 16.0


def to_tenths(x):  # type: ignore[no-untyped-def]
    return math.floor(x * 16.0 + 0.5) + 512


def test_numbers_that_never_occur_need_no_code() -> None:
    """After some calls a table holds the codes of short numbers; `convert` has none for NaN and for large ones."""
    fmt = UserFormat("unguarded", (("m", 10),), tenths, convert=to_tenths)
    x = torch.randint(-400, 400, (1 << 16,)).float() / 16
    for _ in range(3):
        assert torch.equal(quantize(x, fmt), x)
    with pytest.raises(FormatError, match=r"`convert` must give codes from 0 to 1023, not .* for convert\(1000\.0\)"):
        quantize(torch.full((1 << 16,), 1000.0), fmt)
