"""Arithmetic of single words for the reference, in plain Python integers."""

from collections.abc import Callable

from presilicon.designs import Hardware
from presilicon.instrument.model.words import bias_of, infinity_code

NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY, SUBNORMAL, ZERO, NORMAL = (1 << bit for bit in range(6))


def tree(function: Callable[[int, int], int], words: list[int]) -> int:
    """Words reduced pairwise, neighbour by neighbour: 0 with 1, 2 with 3, then again; a power of two of them."""
    while len(words) > 1:
        words = [function(words[lane], words[lane + 1]) for lane in range(0, len(words), 2)]
    return words[0]


class FixedArithmetic:
    """Two's complement that saturates; products are shifted toward minus infinity.

    Saturation is sticky: sums and products of a word at an end of the range are at an end, too.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.fraction = hardware.fraction_bits
        self.largest = (1 << hardware.word_bits - 1) - 1
        self.smallest = -self.largest - 1

    def saturate(self, number: int) -> int:
        """The nearest word."""
        return min(max(number, self.smallest), self.largest)

    def is_end(self, x: int) -> bool:
        """Whether a word is the smallest or the largest."""
        return x in (self.smallest, self.largest)

    def add(self, x: int, y: int) -> int:
        """x + y; the first operand that is an end stays what it is."""
        if self.is_end(x):
            return x
        return y if self.is_end(y) else self.saturate(x + y)

    def sub(self, x: int, y: int) -> int:
        """x - y, as a sum of x and the negated y; the negated end is the other end."""
        if self.is_end(x):
            return x
        return ~y if self.is_end(y) else self.saturate(x - y)

    def mul(self, x: int, y: int) -> int:
        """x * y, the exact product floored to the word's last place; of an end, the end with the product's sign."""
        if self.is_end(x) or self.is_end(y):
            return self.largest if (x < 0) == (y < 0) else self.smallest
        return self.saturate(x * y >> self.fraction)

    def max(self, x: int, y: int) -> int:
        """The greater."""
        return x if x >= y else y

    def min(self, x: int, y: int) -> int:
        """The smaller."""
        return x if x <= y else y

    def abs(self, x: int) -> int:
        """|x|; of the most negative word, the largest."""
        return self.saturate(-x if x < 0 else x)

    def key(self, x: int) -> int:
        """The word itself."""
        return x

    def class_of(self, x: int) -> int:
        """Zero or normal: fixed point has nothing else."""
        return ZERO if x == 0 else NORMAL

    def count(self, number: int) -> int:
        """`number` with its fraction bits."""
        return self.saturate(number << self.fraction)

    def total(self, words: list[int]) -> int:
        """The exact sum, saturated once; if there are ends among the words, the smallest or else the largest."""
        if self.smallest in words:
            return self.smallest
        return self.largest if self.largest in words else self.saturate(sum(words))


class FloatArithmetic:
    """IEEE-like floats of any width: exact integers, rounded once to nearest, ties to even."""

    def __init__(self, hardware: Hardware) -> None:
        self.mantissa = hardware.word_mantissa
        self.sign = 1 << hardware.word_bits - 1
        self.infinity = infinity_code(hardware)
        self.nan = self.infinity | 1 << self.mantissa - 1
        self.lowest = 1 - bias_of(hardware) - self.mantissa
        """The exponent of the last place of subnormals."""

    def magnitude(self, x: int) -> int:
        """The code without its sign bit."""
        return x & (self.sign - 1)

    def is_nan(self, x: int) -> bool:
        """Whether a word is NaN."""
        return self.magnitude(x) > self.infinity

    def exact(self, x: int) -> tuple[int, int]:
        """A finite word as a signed integer and the exponent of its last place."""
        field, fraction = divmod(self.magnitude(x), 1 << self.mantissa)
        significand = fraction + (1 << self.mantissa if field else 0)
        return -significand if x & self.sign else significand, self.lowest + max(field, 1) - 1

    def round(self, number: int, exponent: int) -> int:
        """The word next to `number * 2^exponent`, with `number` above 0."""
        last_place = max(exponent + number.bit_length() - 1 - self.mantissa, self.lowest)
        drop = last_place - exponent
        if drop <= 0:
            significand = number << -drop
        else:
            significand, rest = divmod(number, 1 << drop)
            half = 1 << drop - 1
            significand += rest > half or (rest == half and significand & 1)
        return min(significand + (last_place - self.lowest << self.mantissa), self.infinity)

    def add(self, x: int, y: int) -> int:
        """x + y; a sum of zero is +0, unless both are -0."""
        if self.is_nan(x) or self.is_nan(y):
            return self.nan
        if self.magnitude(x) == self.infinity or self.magnitude(y) == self.infinity:
            infinite = x if self.magnitude(x) == self.infinity else y
            other = y if infinite == x else x
            return self.nan if other == infinite ^ self.sign else infinite
        (a, i), (b, j) = self.exact(x), self.exact(y)
        low = min(i, j)
        number = (a << i - low) + (b << j - low)
        if number == 0:
            return x & y & self.sign
        return self.round(abs(number), low) | (self.sign if number < 0 else 0)

    def sub(self, x: int, y: int) -> int:
        """x + (-y)."""
        return self.add(x, y ^ self.sign)

    def mul(self, x: int, y: int) -> int:
        """x * y; the signs decide that of a zero."""
        if self.is_nan(x) or self.is_nan(y):
            return self.nan
        sign = (x ^ y) & self.sign
        small, large = sorted((self.magnitude(x), self.magnitude(y)))
        if large == self.infinity:
            return self.nan if small == 0 else self.infinity | sign
        if small == 0:
            return sign
        (a, i), (b, j) = self.exact(x), self.exact(y)
        return self.round(abs(a * b), i + j) | sign

    def max(self, x: int, y: int) -> int:
        """The greater; of two zeros the first; NaN if either is."""
        if self.is_nan(x) or self.is_nan(y):
            return self.nan
        return x if self.key(x) >= self.key(y) else y

    def min(self, x: int, y: int) -> int:
        """The smaller; of two zeros the first; NaN if either is."""
        if self.is_nan(x) or self.is_nan(y):
            return self.nan
        return x if self.key(x) <= self.key(y) else y

    def abs(self, x: int) -> int:
        """The sign bit cleared, a NaN's too."""
        return self.magnitude(x)

    def key(self, x: int) -> int:
        """The magnitude with the sign of x."""
        return -self.magnitude(x) if x & self.sign else self.magnitude(x)

    def class_of(self, x: int) -> int:
        """The bit of x's class."""
        magnitude = self.magnitude(x)
        if magnitude > self.infinity:
            return NAN
        if magnitude == self.infinity:
            return NEGATIVE_INFINITY if x & self.sign else POSITIVE_INFINITY
        if magnitude == 0:
            return ZERO
        return SUBNORMAL if magnitude < 1 << self.mantissa else NORMAL

    def count(self, number: int) -> int:
        """`number`, rounded if the mantissa is too short."""
        return self.round(number, 0) if number else 0

    def total(self, words: list[int]) -> int:
        """A tree of sums, each rounded."""
        return tree(self.add, words)


Arithmetic = FixedArithmetic | FloatArithmetic
"""Arithmetic of one kind of words; every function takes and returns words."""


def arithmetic_of(hardware: Hardware) -> Arithmetic:
    """The arithmetic of a hardware's words."""
    return FloatArithmetic(hardware) if hardware.is_float else FixedArithmetic(hardware)
