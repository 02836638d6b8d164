"""Formats and roundings as words, and the jumps of the shift register."""

import pytest

from presilicon.base import ConfigError
from presilicon.formats import parse
from presilicon.formats.rounding import lfsr_states
from presilicon.rtl.arithmetic.words import format_word, jump_matrix, rounding_word


def test_different_formats_have_different_words() -> None:
    names = ["float32", "e4m3", "e4m3fn", "e4m3fnuz", "e4m3b11fnuz", "float(4, 3, subnormals=false)", "int8", "bfp(7)",
             "float(4, 3, overflow=saturate)", "fixed(8, 0, signed=false)", "fixed(4, 4)", "fp6_e3m2",
             "float(3, 2, specials=none, nan=max)"]  # fmt: skip
    assert len({format_word(parse(name)) for name in names}) == len(names)
    assert format_word(parse("int8")) == format_word(parse("fixed(8, 0)"))


@pytest.mark.parametrize("steps", [1, 2, 17, 600, 65534])
def test_a_jump_is_so_many_steps(steps) -> None:
    states, matrix = lfsr_states(), jump_matrix(steps)
    for start in (0, 1, 4711):
        row_bits = [((matrix >> 16 * row & 0xFFFF) & states[start]).bit_count() & 1 for row in range(16)]
        assert sum(bit << row for row, bit in enumerate(row_bits)) == states[(start + steps) % len(states)]


@pytest.mark.parametrize(
    ("fmt", "reason"),
    [
        ("fixed(4, 4, overflow=wrap)", "saturate"),
        ("int(8, scale=tensor)", "multiplies codes"),
        ("posit(8, 1)", "no circuit for this family"),
        ("lns(4, 3)", "no circuit for this family"),
    ],
)
def test_formats_without_a_circuit(fmt, reason) -> None:
    with pytest.raises(ConfigError, match=reason):
        format_word(parse(fmt))


def test_a_hashed_counter_has_no_circuit() -> None:
    with pytest.raises(ConfigError, match=r"try stochastic\(bits=16, source=lfsr\)"):
        rounding_word("stochastic")
    assert rounding_word("stochastic(bits=4, source=lfsr)") == 5 | 4 << 3
