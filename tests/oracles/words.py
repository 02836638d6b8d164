"""Keys and classes of the instrument's words, by NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from presilicon.designs import Hardware
from presilicon.instrument.model.words import infinity_code


def keys(hardware: Hardware, words: Any) -> NDArray[np.int64]:
    """What words are ordered by: fixed point itself, a float's magnitude with its sign, so that -0 equals +0."""
    codes = np.asarray(words, dtype=np.int64)
    if not hardware.is_float:
        return codes
    magnitude = codes & ((1 << hardware.word_bits - 1) - 1)
    return np.where(codes >> (hardware.word_bits - 1) != 0, -magnitude, magnitude)


def classes(hardware: Hardware, words: Any) -> NDArray[np.int64]:
    """One bit for each word: that of its class in `CLASSES`."""
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
