"""The comparison of engines can fail: single mistakes in the reference are each found within a few hundred cases."""

import pytest
from cases import differences, random_case

from presilicon.instrument import FastModel, Reference
from presilicon.instrument.model import arithmetic, reference
from presilicon.instrument.model.arithmetic import FixedArithmetic, FloatArithmetic

CASES = 400


def toward_zero(self, x, y):
    product = abs(x * y) >> self.fraction
    return self.saturate(product if (x < 0) == (y < 0) else -product)


def closed_below(self, word, row, m):
    stored = self.settings.rows[row]
    kind = self._arithmetic.class_of(word)
    if stored.is_classes:
        return bool(stored.keys[m] & kind)
    return kind != arithmetic.NAN and stored.keys[m] <= self._arithmetic.key(word) < stored.keys[m + 1]


def unsigned(self, word, row, m):
    stored = self.settings.rows[row]
    if stored.is_classes:
        return bool(stored.keys[m] & self._arithmetic.class_of(word))
    wrap = 1 << self.hardware.key_bits
    low, key, high = (k % wrap for k in (stored.keys[m], self._arithmetic.key(word), stored.keys[m + 1]))
    return low < key <= high


def any_condition(mask, first, last):
    return not mask or any(RIGHT_HOLDS(1 << bit, first, last) for bit in range(8) if mask >> bit & 1)


def level_0_only(mask, first, last):
    return RIGHT_HOLDS(mask & 15, first, last)


RIGHT_HOLDS = reference.holds


def cache_without_conditions(self, chain, words, first, last):
    from msgspec.structs import replace

    return RIGHT_ALU(self, replace(chain, cache_conditions=0), words, first, last)


RIGHT_ALU = Reference._alu


def forgets_the_carried_vector(self, chain, words, first, last):
    from msgspec.structs import replace

    return RIGHT_ALU(self, replace(chain, save=False), words, first, last)


def halves(function, words):
    while len(words) > 1:
        middle = len(words) // 2
        words = [function(a, b) for a, b in zip(words[:middle], words[middle:], strict=True)]
    return words[0]


def half_up(self, number, exponent):
    place = max(exponent + number.bit_length() - 1 - self.mantissa, self.lowest)
    drop = place - exponent
    significand = number << -drop if drop <= 0 else number + (1 << drop - 1) >> drop
    return min(significand + (place - self.lowest << self.mantissa), self.infinity)


MUTATIONS = {
    "products truncated toward zero": (FixedArithmetic, "mul", toward_zero),
    "fixed point wraps": (
        FixedArithmetic,
        "saturate",
        lambda self, number: (number - self.smallest) % (2 * self.largest + 2) + self.smallest,
    ),
    "sums saturate at every step": (
        FixedArithmetic,
        "total",
        lambda self, words: arithmetic.tree(self.add, words),
    ),
    "counts are codes, not numbers": (FixedArithmetic, "count", lambda self, number: self.saturate(number)),
    "counts are rounded down": (
        FloatArithmetic,
        "count",
        lambda self, number: self.round(number >> max(number.bit_length() - self.mantissa - 1, 0), 0) if number else 0,
    ),
    "ranges closed below and open above": (Reference, "_is_in", closed_below),
    "ranges compare unsigned": (Reference, "_is_in", unsigned),
    "conditions combined by or": (reference, "holds", any_condition),
    "conditions of level 1 dropped": (reference, "holds", level_0_only),
    "cache ignores its conditions": (Reference, "_alu", cache_without_conditions),
    "carried vector not kept": (Reference, "_alu", forgets_the_carried_vector),
    "trees over halves instead of neighbours": (arithmetic, "tree", halves),
    "ties rounded up": (FloatArithmetic, "round", half_up),
    "the greater of equal keys is the second": (
        FloatArithmetic,
        "max",
        lambda self, x, y: self.nan if self.is_nan(x) or self.is_nan(y) else x if self.key(x) > self.key(y) else y,
    ),
    "a NaN's payload survives": (
        FloatArithmetic,
        "min",
        lambda self, x, y: x if self.is_nan(x) else y if self.is_nan(y) else x if self.key(x) <= self.key(y) else y,
    ),
    "subnormals are normal": (
        FloatArithmetic,
        "class_of",
        lambda self, x: 32 if RIGHT_CLASS(self, x) == arithmetic.SUBNORMAL else RIGHT_CLASS(self, x),
    ),
    "zero has a sign": (FloatArithmetic, "key", lambda self, x: -self.magnitude(x) - 1 if x & self.sign else x),
}
RIGHT_CLASS = FloatArithmetic.class_of


def is_found() -> bool:
    for seed in range(CASES):
        case = random_case(seed)
        if differences(case, Reference(case.hardware), FastModel(case.hardware)):
            return True
    return False


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_found(monkeypatch, name: str) -> None:
    home, attribute, wrong = MUTATIONS[name]
    monkeypatch.setattr(home, attribute, wrong)
    assert is_found()


def test_the_right_ones_have_no_difference() -> None:
    for seed in range(50):
        case = random_case(seed)
        assert not differences(case, Reference(case.hardware), FastModel(case.hardware))
