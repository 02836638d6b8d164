"""Rounding compiled by Numba: one pass over float32 bit patterns, without branches so that it vectorises.

Numba widens 32-bit integer arithmetic to 64 bits; every intermediate is cast back, or the loops lose their speed.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

import numba
import numpy as np

from presilicon.formats.grid import Grid
from presilicon.formats.rounding import LFSR_BITS, Key, Stochastic, lfsr_states

F = TypeVar("F", bound=Callable[..., Any])

NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO, UP, DOWN, COUNTER, LFSR = range(7)
_MODES = {
    "nearest-even": NEAREST_EVEN,
    "nearest-away": NEAREST_AWAY,
    "toward-zero": TOWARD_ZERO,
    "up": UP,
    "down": DOWN,
    "counter": COUNTER,
    "lfsr": LFSR,
}


def compiled(function: F) -> F:
    """The function compiled without the interpreter lock, kept on disk between processes."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


@compiled
def random_word(index: Any, first: Any, second: Any) -> Any:
    """The 32 random bits of an element, as `presilicon.formats.rounding.random_word` defines them."""
    x = np.uint32(index ^ first)
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32(x + second)
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ np.uint32(x >> np.uint32(16)))


@compiled
def round_significand(sig: Any, drop: Any, mode: Any, negative: Any, code_base: Any, word: Any) -> Any:
    """`sig` without its last `drop` bits, rounded; `code_base` is added to tell even codes from odd ones."""
    one = np.uint32(1)
    if mode >= COUNTER:
        kept = min(drop, np.uint32(31))
        beyond = min(np.uint32(drop - kept), np.uint32(31))
        draw = np.uint32(np.uint32(word >> one) >> np.uint32(np.uint32(31) - kept))
        return np.uint32(np.uint32(np.uint32(sig >> beyond) + draw) >> kept)
    drop = min(drop, np.uint32(25))
    below = np.uint32(np.uint32(one << drop) - one)
    if mode == NEAREST_EVEN:
        odd = np.uint32(np.uint32(np.uint32(sig >> drop) + code_base) & one)
        bump = np.uint32(np.uint32(np.uint32(below >> one) + odd) & below)
    elif mode == NEAREST_AWAY:
        bump = np.uint32(np.uint32(one << drop) >> one)
    elif mode == TOWARD_ZERO:
        bump = np.uint32(0)
    elif mode == UP:
        bump = np.uint32(0) if negative else below
    else:
        bump = below if negative else np.uint32(0)
    return np.uint32(np.uint32(sig + bump) >> drop)


@compiled
def round_bits(
    bits: Any,
    word: Any,
    mode: Any,
    mantissa: Any,
    low: Any,
    tiny: Any,
    max_positive: Any,
    max_negative: Any,
    over_positive: Any,
    over_negative: Any,
    nan: Any,
    negative_zero: Any,
) -> Any:
    """One float32 bit pattern on a grid (see `Grid` for the parameters)."""
    one = np.uint32(1)
    width = np.uint32(23)
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    sign = np.uint32(bits & np.uint32(0x80000000))
    negative = sign != np.uint32(0)

    field = np.uint32(magnitude >> width)
    hidden = np.uint32(min(field, one) << width)
    significand = np.uint32(np.uint32(magnitude & np.uint32(0x7FFFFF)) | hidden)
    exponent = max(field, one)
    top = max(exponent, low)
    spare = np.uint32(width - mantissa)
    drop = np.uint32(spare + np.uint32(top - exponent))
    code_base = np.uint32(np.uint32(top - low) << mantissa)
    rounded = np.uint32(round_significand(significand, drop, mode, negative, code_base, word) << spare)

    # Below 2^low the hidden bit is gone: the exact difference of two floats normalises what is left.
    full = np.uint32(np.uint32(np.uint32(top - one) << width) + rounded)
    base = np.uint32(low << width)
    part = np.float32(np.uint32(base + rounded).view(np.float32) - base.view(np.float32)).view(np.uint32)
    result = part if exponent < low else full

    largest = max_negative if negative else max_positive
    over = over_negative if negative else over_positive
    if mode == TOWARD_ZERO:
        beyond = largest
    elif mode == UP:
        beyond = largest if negative else over
    elif mode == DOWN:
        beyond = over if negative else largest
    else:
        beyond = over
    result = beyond if result > largest else result
    result = over if magnitude == np.uint32(0x7F800000) else result
    result = nan if magnitude > np.uint32(0x7F800000) else result
    result = np.uint32(0) if result < tiny else result
    kept = np.uint32(negative_zero << np.uint32(31))
    sign = np.uint32(sign & kept) if result == np.uint32(0) else sign
    return np.uint32(result | sign)


def _element_kernel(mode: int) -> Callable[..., None]:
    def kernel(source: Any, target: Any, start: Any, grid: Any, draw: Any, states: Any) -> None:
        mantissa, low, tiny, max_positive, max_negative = grid[0], grid[1], grid[2], grid[3], grid[4]
        over_positive, over_negative, nan, negative_zero = grid[5], grid[6], grid[7], grid[8]
        first, second, mask = draw[0], draw[1], draw[2]
        word = np.uint32(0)
        for i in range(source.size):
            if mode == COUNTER:
                word = np.uint32(random_word(np.uint32(start + np.uint32(i)), first, second) & mask)
            elif mode == LFSR:
                word = np.uint32(states[(np.int64(start) + np.int64(first) + i) % states.size] & mask)
            target[i] = round_bits(
                source[i], word, mode, mantissa, low, tiny, max_positive, max_negative,
                over_positive, over_negative, nan, negative_zero,
            )  # fmt: skip

    return compiled(kernel)


@cache
def element_kernel(mode: int) -> Callable[..., None]:
    """The pass that rounds each element alone, for one mode."""
    return _element_kernel(mode)


def mode_number(mode: str | Stochastic) -> int:
    """The kernels' number for a rounding mode."""
    return _MODES[mode.source if isinstance(mode, Stochastic) else mode]


@lru_cache(maxsize=1024)
def grid_words(grid: Grid) -> Any:
    """The grid as the kernels take it."""
    return np.array(grid.words(), dtype=np.uint32)


def draw_words(mode: str | Stochastic, key: Key, block: int) -> Any:
    """Key words and bit mask of a 2^32-element block, as the kernels take them."""
    if not isinstance(mode, Stochastic):
        return _NO_DRAW
    mask = (0xFFFFFFFF << (32 - mode.bits)) & 0xFFFFFFFF
    return np.array([*key.words(block), mask], dtype=np.uint32)


@lru_cache(maxsize=2)
def lfsr_table(needed: bool) -> Any:
    """The shift register's states in the top bits of words; a placeholder where not needed."""
    if not needed:
        return np.zeros(1, dtype=np.uint32)
    return np.array(lfsr_states(), dtype=np.uint32) << np.uint32(32 - LFSR_BITS)


_NO_DRAW = np.zeros(3, dtype=np.uint32)
