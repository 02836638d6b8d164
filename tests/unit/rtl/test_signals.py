"""How signals of a tapped design are named: the vector, what says that it is valid, and the ends of frames."""

import pytest

from presilicon.base import ConfigError
from presilicon.rtl.tap import Signal


@pytest.mark.parametrize(
    ("text", "vector", "valid", "last"),
    [
        ("a:v", ("a",), "v", None),
        ("a:v:e", ("a",), "v", ("e", "e")),
        ("a:v:inner:outer", ("a",), "v", ("inner", "outer")),
        ("a+b+c:v", ("a", "b", "c"), "v", None),
        ("a[7:0]+b[15:8]:v[3:3]:e[1:1]", ("a[7:0]", "b[15:8]"), "v[3:3]", ("e[1:1]", "e[1:1]")),
    ],
)
def test_a_signal_is_a_vector_with_its_flags(text: str, vector, valid: str, last) -> None:
    signal = Signal.parse(text)
    assert (signal.vector, signal.valid, signal.last) == (vector, valid, last)


@pytest.mark.parametrize("text", ["", "a", ":v", "a:", "a::e", "a:v:", "a:v:i:o:more", "a[7:0]"])
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected VECTOR:VALID"):
        Signal.parse(text)
