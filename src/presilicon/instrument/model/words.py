"""Numbers as the instrument holds them: elements become words, words become values again.

A word is an integer: of fixed point its signed value in steps of the last place, of a float its code without sign
extension. docs/firmware.md defines both.
"""

from typing import TYPE_CHECKING, Any

from presilicon.base.errors import ConfigError
from presilicon.designs import Hardware

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CLASSES = ("nan", "+inf", "-inf", "subnormal", "zero", "normal")
"""What a word can be, in the order of the bits of a class mask."""

MANY = 1 << 14
"""Numbers from which on the compiled pass is worth its loading."""


def bias_of(hardware: Hardware) -> int:
    """The exponent bias of a float word."""
    return hardware.element.exponent_bias


def infinity_code(hardware: Hardware) -> int:
    """The code of +infinity in a float word: the exponent's bits all set, no mantissa."""
    return ((1 << hardware.exponent_bits) - 1) << hardware.word_mantissa


def word_limits(hardware: Hardware) -> tuple[int, int]:
    """The smallest and the largest integer that a word can be."""
    if hardware.is_float:
        return 0, (1 << hardware.word_bits) - 1
    return -(1 << hardware.word_bits - 1), (1 << hardware.word_bits - 1) - 1


def count_limit(hardware: Hardware) -> float:
    """Counts below this are exact in a word: fixed point saturates from here on, floats begin to round.

    >>> from presilicon.formats import parse
    >>> count_limit(Hardware(element=parse("fixed(4, 4)"))), count_limit(Hardware(element=parse("bfloat16")))
    (7.9375, 256.0)
    """
    if not hardware.is_float:
        return word_limits(hardware)[1] * 2.0**-hardware.fraction_bits
    largest = 2.0 ** ((1 << hardware.exponent_bits) - 2 - bias_of(hardware))
    return min(2.0 ** (hardware.word_mantissa + 1), largest)


def to_words(hardware: Hardware, values: Any) -> "NDArray[np.int64]":
    """Numbers as words, of the same shape: rounded to the element's format to nearest even, then widened.

    Fixed point saturates and makes 0 of NaN; a float too large becomes infinity.

    >>> from presilicon.formats import parse
    >>> to_words(Hardware(element=parse("fixed(4, 4)")), [1.0, -0.53125, 1e9]).tolist()
    [16, -8, 127]
    >>> [hex(word) for word in to_words(Hardware(element=parse("bfloat16"), accumulator_bits=32), [1.0, -2.5])]
    ['0x3f800000', '0xc0200000']

    Raises:
        ConfigError: the values are no numbers.
    """
    import numpy as np

    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.size >= MANY:
        from presilicon.instrument.model.fast import fast_words

        return fast_words(hardware, values)
    try:
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"vectors are made of numbers: {error}") from None
    return _float_words(hardware, numbers) if hardware.is_float else _fixed_words(hardware, numbers)


def _fixed_words(hardware: Hardware, numbers: "NDArray[np.float64]") -> "NDArray[np.int64]":
    import numpy as np

    most = float((1 << hardware.element_bits - 1) - 1)
    with np.errstate(over="ignore"):
        steps = np.rint(np.ldexp(numbers, hardware.fraction_bits))  # a power of two: nothing is lost before rint
    return np.clip(np.where(np.isnan(steps), 0.0, steps), -most - 1, most).astype(np.int64)


def _float_words(hardware: Hardware, numbers: "NDArray[np.float64]") -> "NDArray[np.int64]":
    import numpy as np

    element = hardware.element
    mantissa, lowest = element.significand_bits - 1, 1 - element.exponent_bias
    magnitude = np.abs(numbers)
    finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
    exponent = np.where(finite > 0, np.maximum(np.frexp(finite)[1] - 1, lowest), lowest)
    significand = np.rint(np.ldexp(finite, mantissa - exponent)).astype(np.int64)
    # A significand that rounds up to the next power of two carries into the exponent by itself.
    code = significand + ((exponent.astype(np.int64) - lowest) << mantissa)
    infinity = ((1 << element.exponent_bits) - 1) << mantissa
    code = np.where(np.isinf(magnitude), infinity, np.minimum(code, infinity))
    code |= np.signbit(numbers).astype(np.int64) << (element.bits - 1)
    code = np.where(np.isnan(numbers), infinity | (1 << mantissa - 1), code)
    return code << (hardware.word_bits - hardware.element_bits)


def values_of(hardware: Hardware, words: Any) -> "NDArray[np.float64]":
    """The numbers that words stand for; float64 holds every one exactly.

    >>> from presilicon.formats import parse
    >>> values_of(Hardware(element=parse("fixed(4, 4)")), [16, -8, 127]).tolist()
    [1.0, -0.5, 7.9375]
    """
    import numpy as np

    codes = np.asarray(words, dtype=np.int64)
    if not hardware.is_float:
        return np.ldexp(codes.astype(np.float64), -hardware.fraction_bits)
    mantissa, infinity = hardware.word_mantissa, infinity_code(hardware)
    magnitude = codes & ((1 << hardware.word_bits - 1) - 1)
    field = np.maximum(magnitude >> mantissa, 1)
    significand = magnitude - ((field - 1) << mantissa)
    value = np.ldexp(significand.astype(np.float64), (field - bias_of(hardware) - mantissa).astype(np.int32))
    value = np.where(magnitude == infinity, np.inf, np.where(magnitude > infinity, np.nan, value))
    return np.where(codes >> (hardware.word_bits - 1) != 0, -value, value)


def keys(hardware: Hardware, words: Any) -> "NDArray[np.int64]":
    """What words are ordered by: fixed point itself, a float's magnitude with its sign, so that -0 equals +0."""
    import numpy as np

    codes = np.asarray(words, dtype=np.int64)
    if not hardware.is_float:
        return codes
    magnitude = codes & ((1 << hardware.word_bits - 1) - 1)
    return np.where(codes >> (hardware.word_bits - 1) != 0, -magnitude, magnitude)


def classes(hardware: Hardware, words: Any) -> "NDArray[np.int64]":
    """One bit for each word: that of its class in `CLASSES`."""
    import numpy as np

    codes = np.asarray(words, dtype=np.int64)
    if not hardware.is_float:
        return np.where(codes == 0, 1 << 4, 1 << 5)
    infinity = infinity_code(hardware)
    magnitude = codes & ((1 << hardware.word_bits - 1) - 1)
    negative = codes >> (hardware.word_bits - 1) != 0
    infinite = np.where(negative, 1 << 2, 1 << 1)
    small = np.where(magnitude == 0, 1 << 4, 1 << 3)
    finite = np.where(magnitude < (1 << hardware.word_mantissa), small, 1 << 5)
    return np.where(magnitude > infinity, 1, np.where(magnitude == infinity, infinite, finite))
