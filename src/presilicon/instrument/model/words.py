"""Words of the instrument: conversion of numbers to words and back.

A fixed-point word is a signed integer in steps of the last place; a float word is its code without sign extension.
docs/firmware.md defines both.
"""

from typing import Any

from presilicon.base import ConfigError, np
from presilicon.designs import Hardware

CLASSES = ("nan", "+inf", "-inf", "subnormal", "zero", "normal")
"""Classes of words, in the order of the bits of a class mask."""

MANY = 1 << 14
"""Arrays of at least this size are converted by a compiled pass; for smaller ones loading it costs more."""


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
    """Limit below which counts are exact in a word: fixed point saturates above it, floats round.

    >>> from presilicon.formats import parse
    >>> count_limit(Hardware(element=parse("fixed(4, 4)"))), count_limit(Hardware(element=parse("bfloat16")))
    (7.9375, 256.0)
    """
    if not hardware.is_float:
        return word_limits(hardware)[1] * 2.0**-hardware.fraction_bits
    largest = 2.0 ** ((1 << hardware.exponent_bits) - 2 - bias_of(hardware))
    return min(2.0 ** (hardware.word_mantissa + 1), largest)


def to_words(hardware: Hardware, values: Any) -> "np.typing.NDArray[np.int64]":
    """Words for numbers, of the same shape: rounded to the element's format to nearest even, then widened.

    Fixed point saturates, and NaN becomes 0; a float that is too large becomes infinity.

    >>> from presilicon.formats import parse
    >>> to_words(Hardware(element=parse("fixed(4, 4)")), [1.0, -0.53125, 1e9]).tolist()
    [16, -8, 127]
    >>> [hex(word) for word in to_words(Hardware(element=parse("bfloat16"), accumulator_bits=32), [1.0, -2.5])]
    ['0x3f800000', '0xc0200000']

    Raises:
        ConfigError: a value is not a number.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.size >= MANY:
        from presilicon.instrument.model.fast import fast_words

        return fast_words(hardware, values)
    try:
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"vectors must consist of numbers: {error}") from None
    return _float_words(hardware, numbers) if hardware.is_float else _fixed_words(hardware, numbers)


def _fixed_words(hardware: Hardware, numbers: "np.typing.NDArray[np.float64]") -> "np.typing.NDArray[np.int64]":
    largest = float((1 << hardware.element_bits - 1) - 1)
    with np.errstate(over="ignore"):
        steps = np.rint(np.ldexp(numbers, hardware.fraction_bits))  # a power of two: nothing is lost before rint
    return np.clip(np.where(np.isnan(steps), 0.0, steps), -largest - 1, largest).astype(np.int64)


def _float_words(hardware: Hardware, numbers: "np.typing.NDArray[np.float64]") -> "np.typing.NDArray[np.int64]":
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


def values_of(hardware: Hardware, words: Any) -> "np.typing.NDArray[np.float64]":
    """The numbers that words represent; float64 holds every one exactly.

    >>> from presilicon.formats import parse
    >>> values_of(Hardware(element=parse("fixed(4, 4)")), [16, -8, 127]).tolist()
    [1.0, -0.5, 7.9375]
    """
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
