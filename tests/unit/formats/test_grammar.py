import pytest

from presilicon.base import FormatError
from presilicon.formats import Float, Stochastic, parse, parse_rounding


def test_calls_take_positional_and_keyword_arguments() -> None:
    assert parse("float(6, 9)") == parse(" float(exponent=6, mantissa=9) ") == Float(6, 9)
    assert parse("float(4, 3, specials=fn, subnormals=false)") == Float(4, 3, specials="fn", subnormals=False)
    assert parse("float(4, 3, bias=-3)") == Float(4, 3, bias=-3)


def test_names_take_changed_options() -> None:
    assert parse("e5m2(overflow=saturate)") == Float(5, 2, overflow="saturate")
    assert str(parse("e5m2(overflow=infinity)")) == "e5m2"


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("table(-1, 0, 1)", "table(values=[-1.0, 0.0, 1.0])"),
        ("table(1, -1)", "table(values=[-1.0, 1.0])"),
        ("table(1, 2, inf)", "table(values=[1.0, 2.0, inf])"),
        ("table([1, 2, inf], overflow=infinity)", "table(values=[1.0, 2.0, inf])"),
        ("table(-inf, 1, 2, overflow=saturate)", "table(values=[-inf, 1.0, 2.0], overflow=saturate)"),
    ],
)
def test_a_table_is_spelt_by_its_values(text: str, spelling: str) -> None:
    assert str(parse(text)) == spelling
    assert parse(spelling) == parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("table(1, 2, overflow=infinity)", ["needs inf among the values"]),
        ("table(1, inf)", ["2 to 65536 different numbers, not 1"]),
        ("table(1, nan)", ["as in table(values=[-1, 0, 1, inf])"]),
        ("int32", ["unknown format", "fixed(32, 0)"]),
        ("int(32)", ["from 2 to 24", "fixed(32, 0)"]),
        ("int16", ["unknown format", "write int(16)"]),
        ("bfloat61", ["unknown format", 'did you mean "bfloat16"']),
        ("flaot(5, 2)", ['did you mean "float"']),
        ("float(5)", ["lacks mantissa"]),
        ("float", ["lacks exponent, mantissa"]),
        ("scaled(e4m3fn, block=64)", ["block=64 needs per=block or per=tile"]),
        ("float(5, 2, mantisa=3)", ['did you mean "mantissa"']),
        ("float(5, 2, exponent=3)", ["given twice"]),
        ("float(1, 2, 3, 4, 5, 6, 7, 8)", ["at most 7"]),
        ("e5m2(7)", ["given by name"]),
        ("float(5, 1+1)", ["must be a number, a word or a list, not"]),
        ("", ["cannot be read"]),
        ("float(5,", ["cannot be read"]),
        ("5", ["cannot be read"]),
        ("e5m2.max", ["cannot be read"]),
        ("\0", ["cannot be read"]),
    ],
)
def test_spelling_mistakes_are_explained(text: str, words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text)
    for word in words:
        assert word in str(caught.value)


def test_a_format_is_spelt_as_text() -> None:
    with pytest.raises(FormatError, match="spelt as text"):
        parse(16)  # type: ignore[arg-type]


def test_roundings() -> None:
    assert parse_rounding("up") == "up"
    assert parse_rounding("stochastic") == Stochastic()
    assert parse_rounding("stochastic(4, source=lfsr)") == Stochastic(4, "lfsr")
    assert parse_rounding(str(Stochastic(5, "lfsr"))) == Stochastic(5, "lfsr")


@pytest.mark.parametrize("text", ["nearest", "stochastic(bits=0)", "stochastic(bits=", "stochastic(source=dice)"])
def test_rounding_mistakes(text: str) -> None:
    with pytest.raises(FormatError):
        parse_rounding(text)
