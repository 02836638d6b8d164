"""Odd calls that once went wrong."""

import pytest
import torch

from presilicon.base import FormatError
from presilicon.formats import Float, Key, MacUnit, Stochastic, decode, encode, matmul, parse, parse_rounding, quantize


@pytest.mark.parametrize(
    "name", ["mxfp4", "mxint8", "nvfp4", "bfp(4)", "bfp(4, axis=0)", "bfp(4, square=true)", "posit(8, 1)"]
)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_codes_of_nothing(name: str, shape: tuple[int, ...]) -> None:
    fmt = parse(name)
    assert decode(encode(torch.zeros(shape), fmt), fmt).shape == shape


@pytest.mark.parametrize("name", ["posit(8, 1)", "int(8, scale=0.5)", "table([0, 1, 2])", "e5m2", "mxfp4"])
def test_encode_checks_its_input(name: str) -> None:
    for wrong in (torch.arange(3), [1.0], torch.empty(3, device="meta")):
        with pytest.raises(FormatError):
            encode(wrong, parse(name))


def test_decode_takes_integers_only() -> None:
    for wrong in (torch.tensor([1.7]), [1]):
        with pytest.raises(FormatError, match="integers"):
            decode(wrong, parse("e5m2"))


def test_a_spelling_is_not_a_format_and_a_number_not_a_key() -> None:
    with pytest.raises(FormatError, match=r"try parse\('e5m2'\)"):
        quantize(torch.ones(1), "e5m2")
    with pytest.raises(FormatError, match=r"try parse\('e5m2'\)"):
        encode(torch.ones(1), "e5m2")
    with pytest.raises(FormatError, match="Key"):
        quantize(torch.ones(1), parse("e5m2"), rounding="stochastic", key=3)


@pytest.mark.parametrize(
    "text",
    [
        "stochastic(8)+1",
        "stochastic(source=5)",
        "stochastic(bits=true)",
        "stochastic(source=lfsr, bits=24)",
        "stochastic(",
        3,
    ],
)
def test_roundings_that_cannot_be(text: object) -> None:
    with pytest.raises(FormatError):
        parse_rounding(text)


def test_all_bits_of_a_source() -> None:
    assert Stochastic().bits == 24
    assert Stochastic(source="lfsr").bits == 16
    assert parse_rounding("stochastic(source=lfsr)") == Stochastic(16, "lfsr")


def test_changed_options_of_a_name_derive_the_rest_anew() -> None:
    assert parse("e5m2(exponent=4)") == Float(4, 2)
    assert parse("e5m2(specials=fn)") == Float(5, 2, specials="fn")
    assert parse("e4m3fn(specials=ieee)") == Float(4, 3)
    assert parse("e5m2(specials=fnuz)") == parse("e5m2fnuz")
    assert parse("e4m3b11fnuz(mantissa=2)").bias == 11


@pytest.mark.parametrize(
    "mac", [MacUnit(width=None), MacUnit(fused=3), MacUnit(rounding=None), MacUnit(rounding=Stochastic())]
)
def test_units_that_cannot_be(mac: MacUnit) -> None:
    with pytest.raises(FormatError):
        matmul(torch.ones(1, 1), torch.ones(1, 1), mac, library=False, key=Key())
