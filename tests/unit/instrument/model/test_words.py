"""Numbers into words and back: against the formats' own codes and against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from oracles.words import classes, keys
from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import encode, parse
from presilicon.instrument.model.arithmetic import arithmetic_of
from presilicon.instrument.model.fast import fast_words
from presilicon.instrument.model.words import MANY, to_words, values_of

FLOATS = ["e5m2", "float(4, 3)", "float(2, 1)", "float16", "bfloat16", "float32", "float(5, 4, bias=-3)"]
FIXED = ["int8", "int(4)", "fixed(4, 4)", "fixed(16, 16)", "fixed(1, 31)", "fixed(32, 0)", "fixed(1, 7)"]


def numbers(seed: int, count: int = MANY - 384) -> np.ndarray:
    """float32 of all sizes, ties, ends and specials."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = (rng.integers(-600, 600, count) / 32).astype(np.float32)
    x = np.where(rng.random(count) < 0.5, near, x)
    x = np.where(np.isnan(x), np.float32(np.nan), x)
    x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4028235e38]
    return x


@pytest.mark.parametrize("spelling", FLOATS)
def test_floats_as_the_formats_encode_them(spelling: str) -> None:
    hardware = Hardware(element=parse(spelling))
    x = numbers(0)
    wanted = encode(torch.from_numpy(x.copy()), hardware.element).numpy().astype(np.int64)
    np.testing.assert_array_equal(to_words(hardware, x), wanted)


@pytest.mark.parametrize("spelling", FLOATS)
def test_float64_is_rounded_once(spelling: str) -> None:
    """Just above a tie that float32 would round away."""
    hardware = Hardware(element=parse(spelling))
    element = hardware.element
    tie = element.min_normal * (1 + 2.0 ** -(element.mantissa + 1))
    one, above = to_words(hardware, [tie, tie * (1 + 2.0**-50)]).tolist()
    assert one == to_words(hardware, [element.min_normal])[0]
    assert above == one + 1


@pytest.mark.parametrize("spelling", FIXED)
def test_fixed_point_exactly(spelling: str) -> None:
    hardware = Hardware(element=parse(spelling), accumulator_bits=48)
    x = numbers(1, 4000).astype(np.float64)
    x[100:200] = (np.arange(100) + 0.5) * 2.0**-hardware.fraction_bits
    x[200:300] = -x[100:200]
    most = (1 << hardware.element_bits - 1) - 1
    wanted = []
    for value in x.tolist():
        if value != value:
            wanted.append(0)
        elif value in (float("inf"), float("-inf")):
            wanted.append(most if value > 0 else -most - 1)
        else:
            wanted.append(min(max(round(Fraction(value) * (1 << hardware.fraction_bits)), -most - 1), most))
    assert to_words(hardware, x).tolist() == wanted


@pytest.mark.parametrize("spelling", [*FLOATS, *FIXED])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_fast_way_gives_the_same(spelling: str, kind: type) -> None:
    hardware = Hardware(element=parse(spelling), accumulator_bits=None if spelling == "float32" else 31)
    if hardware.element_bits > 31:
        hardware = Hardware(element=parse(spelling))
    x = numbers(2).astype(kind).reshape(-1, 8)
    np.testing.assert_array_equal(fast_words(hardware, x), to_words(hardware, x))


@pytest.mark.parametrize("spelling", [*FLOATS, *FIXED])
def test_many_numbers_go_the_fast_way(spelling: str) -> None:
    hardware = Hardware(element=parse(spelling))
    x = np.concatenate([numbers(5), numbers(6)])
    halves = [to_words(hardware, half) for half in np.split(x, 2)]
    assert x.size >= MANY
    np.testing.assert_array_equal(to_words(hardware, x), np.concatenate(halves))


@pytest.mark.parametrize("spelling", [*FLOATS, *FIXED])
def test_there_and_back(spelling: str) -> None:
    hardware = Hardware(element=parse(spelling))
    x = numbers(3, 4000)
    words = to_words(hardware, x)
    values = values_of(hardware, words)
    np.testing.assert_array_equal(to_words(hardware, values), words)
    exact = values_of(hardware, to_words(hardware, [0.5, -0.5, 0.0]))
    if spelling not in ("int8", "int(4)", "fixed(32, 0)", "float(5, 4, bias=-3)"):
        assert exact.tolist() == [0.5, -0.5, 0.0]


@pytest.mark.parametrize("spelling", ["bfloat16", "e5m2", "fixed(4, 4)"])
def test_widening_keeps_the_value(spelling: str) -> None:
    narrow = Hardware(element=parse(spelling))
    wide = Hardware(element=parse(spelling), accumulator_bits=24)
    x = numbers(4, 4000)
    np.testing.assert_array_equal(values_of(wide, to_words(wide, x)), values_of(narrow, to_words(narrow, x)))


@pytest.mark.parametrize("spelling", ["e5m2", "float(4, 3)", "float(2, 1)", "int8", "fixed(4, 4)"])
def test_keys_and_classes_of_every_word(spelling: str) -> None:
    hardware = Hardware(element=parse(spelling))
    bits = hardware.word_bits
    words = np.arange(1 << bits) if hardware.is_float else np.arange(-(1 << bits - 1), 1 << bits - 1)
    values, order = values_of(hardware, words), keys(hardware, words)
    number = ~np.isnan(values)
    by_value, by_key = np.argsort(values[number], kind="stable"), np.argsort(order[number], kind="stable")
    np.testing.assert_array_equal(values[number][by_value], values[number][by_key])
    arithmetic = arithmetic_of(hardware)
    assert [arithmetic.key(word) for word in words.tolist()] == order.tolist()
    assert [arithmetic.class_of(word) for word in words.tolist()] == classes(hardware, words).tolist()


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="numbers"):
        to_words(Hardware(), [["one"]])
