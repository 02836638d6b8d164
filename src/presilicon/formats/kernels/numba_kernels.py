"""Rounding compiled by Numba: passes over float32 bit patterns, without branches so that they vectorise.

Several rounding cores give the same bits. `general` is right for every grid and mode. `lifted` is for narrow exponent
ranges: adding and subtracting a power of two whose last place is the wanted step rounds to nearest-even in two float
operations; `level` is the same with one step for all, as in fixed point. `flat` is for grids that start at float32's
own subnormals, where rounding is one integer addition. `split` is random rounding for few mantissa bits: an addition
in the full binades, a fixed-point one below.

Numba widens 32-bit integer arithmetic to 64 bits: every intermediate is cast back, and shift amounts are masked to
show the compiler that 32 bits are enough; or the loops lose their speed.
Everything compiled lives in this one file: Numba's cache on disk is renewed when the file changes.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

import numba
import numpy as np

from presilicon.formats.kernels.grid import (
    COUNTER,
    DOWN,
    FLAT,
    GENERAL,
    LEVEL,
    LFSR,
    LIFTED,
    NEAREST_AWAY,
    NEAREST_EVEN,
    SPLIT,
    TOWARD_ZERO,
    UP,
    BlockGrid,
    Grid,
    fast_scales,
)
from presilicon.formats.rounding import LFSR_BITS, WEYL, Key, Mode, Stochastic, lfsr_states

F = TypeVar("F", bound=Callable[..., Any])

RUN = 64
"""Groups that are worked on together."""
STRIDE = np.uint32(WEYL)
"""Distance of the counters of neighbours, from which the generator makes random words."""
SPAN = 512
"""Elements whose range is looked at together."""


def compiled(function: F) -> F:
    """The function compiled without the interpreter lock and cached on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)(function))


@compiled
def random_word(counter: Any, second: Any) -> Any:
    """The random word of an element whose counter is `index * WEYL + first`, as `rounding.random_word` defines it."""
    x = np.uint32(np.uint32(counter ^ np.uint32(counter >> np.uint32(16))) * np.uint32(0x21F0AAAD))
    x = np.uint32(x + second)
    return np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * np.uint32(0xD35A2D97))


@compiled
def round_randomly(significand: Any, drop: Any, word: Any) -> Any:
    """`significand` without its last `drop` bits, plus the carry of those bits and the random word."""
    last = np.uint32(31)
    covered = np.uint32(np.uint32(min(drop, last)) & last)
    beyond = np.uint32(np.uint32(min(np.uint32(drop - covered), last)) & last)
    draw = np.uint32(np.uint32(word >> np.uint32(1)) >> np.uint32(covered ^ last))
    return np.uint32(np.uint32(np.uint32(significand >> beyond) + draw) >> covered)


@compiled
def round_significand(significand: Any, drop: Any, mode: Any, negative: Any, code_base: Any, word: Any) -> Any:
    """`significand` without its last `drop` bits, rounded; `code_base` is added to tell even codes from odd ones."""
    one = np.uint32(1)
    if mode >= COUNTER:
        return round_randomly(significand, drop, word)
    drop = np.uint32(np.uint32(min(drop, np.uint32(25))) & np.uint32(31))
    below = np.uint32(np.uint32(one << drop) - one)
    if mode == NEAREST_EVEN:
        odd = np.uint32(np.uint32(np.uint32(significand >> drop) + code_base) & one)
        bump = np.uint32(np.uint32(np.uint32(below >> one) + odd) & below)
    elif mode == NEAREST_AWAY:
        bump = np.uint32(np.uint32(one << drop) >> one)
    elif mode == TOWARD_ZERO:
        bump = np.uint32(0)
    elif mode == UP:
        bump = np.uint32(0) if negative else below
    else:
        bump = below if negative else np.uint32(0)
    return np.uint32(np.uint32(significand + bump) >> drop)


@compiled
def round_general(magnitude: Any, negative: Any, word: Any, mode: Any, mantissa: Any, low: Any) -> Any:
    """A magnitude on the grid, limits aside: every mode, every grid."""
    one = np.uint32(1)
    width = np.uint32(23)
    field = np.uint32(magnitude >> width)
    hidden = np.uint32(min(field, one) << width)
    significand = np.uint32(np.uint32(magnitude & np.uint32(0x7FFFFF)) | hidden)
    exponent = np.uint32(max(field, one))
    top = np.uint32(max(exponent, low))
    spare = np.uint32(np.uint32(width - mantissa) & np.uint32(31))
    drop = np.uint32(spare + np.uint32(top - exponent))
    code_base = np.uint32(np.uint32(top - low) << np.uint32(mantissa & np.uint32(31)))
    rounded = np.uint32(round_significand(significand, drop, mode, negative, code_base, word) << spare)
    # Below 2^low the hidden bit is gone: the exact difference of two floats normalises what is left.
    full = np.uint32(np.uint32(np.uint32(top - one) << width) + rounded)
    base = np.uint32(low << width)
    part = np.float32(np.uint32(base + rounded).view(np.float32) - base.view(np.float32)).view(np.uint32)
    return part if exponent < low else full


@compiled
def round_lifted(magnitude: Any, word: Any, level: Any, mode: Any, mantissa: Any, low: Any) -> Any:
    """A magnitude on the grid, limits aside, for nearest-even and random modes.

    Where the lift overflows, far above the grid, what comes out is still above the limit: the value itself, infinity
    or NaN.
    """
    width = np.uint32(23)
    spare = np.uint32(width - mantissa)
    top = np.uint32(low << width)
    if not level:
        top = np.uint32(max(np.uint32(magnitude & np.uint32(0x7F800000)), top))
    lift = np.uint32(top + np.uint32(spare << width)).view(np.float32)
    value = np.uint32(magnitude).view(np.float32)
    nearest = np.float32(np.float32(value + lift) - lift)
    if mode == NEAREST_EVEN:
        return nearest.view(np.uint32)
    step = np.uint32(top - np.uint32(mantissa << width)).view(np.float32)
    below = np.float32(nearest - step) if nearest > value else nearest
    # floor(fraction * 2^24) + draw >= 2^24, with both sides exact in float32
    grain = np.uint32(top - np.uint32(np.uint32(mantissa + np.uint32(24)) << width)).view(np.float32)
    draw = np.int32(np.uint32(word >> np.uint32(8)))
    needed = np.float32(np.float32(np.int32(np.int32(1 << 24) - draw)) * grain)
    result = np.float32(below + step) if np.float32(value - below) >= needed else below
    return np.float32(result).view(np.uint32)


@compiled
def round_flat(magnitude: Any, word: Any, mode: Any, mantissa: Any) -> Any:
    """A magnitude on a grid whose lowest binade is float32's own, for nearest-even and random modes."""
    one = np.uint32(1)
    spare = np.uint32(np.uint32(np.uint32(23) - mantissa) & np.uint32(31))
    below = np.uint32(np.uint32(one << spare) - one)
    if mode == NEAREST_EVEN:
        odd = np.uint32(np.uint32(magnitude >> spare) & one)
        bump = np.uint32(np.uint32(np.uint32(below >> one) + odd) & below)
    else:
        bump = np.uint32(word >> np.uint32(np.uint32(np.uint32(32) - spare) & np.uint32(31)))
    return np.uint32(np.uint32(magnitude + bump) & np.uint32(~below))


@compiled
def round_split(magnitude: Any, word: Any, mode: Any, mantissa: Any, low: Any) -> Any:
    """A magnitude on a grid of at most 7 mantissa bits, limits aside, for random modes."""
    width = np.uint32(23)
    grains = np.uint32(np.uint32(np.uint32(278) + np.uint32(mantissa - low)) << width).view(np.float32)
    step = np.uint32(np.uint32(low - mantissa) << width).view(np.float32)
    fixed = np.uint32(np.int32(np.float32(np.uint32(magnitude).view(np.float32) * grains)))
    rounded = np.uint32(np.uint32(fixed + np.uint32(word >> np.uint32(8))) >> np.uint32(24))
    part = np.float32(np.float32(np.int32(rounded)) * step).view(np.uint32)
    return part if magnitude < np.uint32(low << width) else round_flat(magnitude, word, mode, mantissa)


@compiled
def fields_of(words: Any) -> Any:
    """The fields of a grid, as `round_bits` takes them: a tuple stays out of memory."""
    return words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7], words[8]


@compiled
def round_bits(bits: Any, word: Any, core: Any, mode: Any, plain: Any, grid: Any) -> Any:
    """One float32 bit pattern on a grid (see `Grid`); `core`, `mode` and `plain` are constants to the compiler."""
    mantissa, low, tiny, max_positive, max_negative, over_positive, over_negative, nan, negative_zero = grid
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    sign = np.uint32(bits & np.uint32(0x80000000))
    negative = sign != np.uint32(0)
    if core in (LIFTED, LEVEL):
        result = round_lifted(magnitude, word, core == LEVEL, mode, mantissa, low)
    elif core == SPLIT:
        result = round_split(magnitude, word, mode, mantissa, low)
    elif core == FLAT:
        result = round_flat(magnitude, word, mode, mantissa)
    else:
        result = round_general(magnitude, negative, word, mode, mantissa, low)

    largest, over = max_positive, over_positive
    if not plain:
        largest = max_negative if negative else largest
        over = over_negative if negative else over
    beyond = over
    if mode == TOWARD_ZERO:
        beyond = largest
    elif mode == UP:
        beyond = largest if negative else over
    elif mode == DOWN:
        beyond = over if negative else largest
    result = beyond if result > largest else result
    if mode in (TOWARD_ZERO, UP, DOWN):
        result = over if magnitude == np.uint32(0x7F800000) else result
    result = nan if magnitude > np.uint32(0x7F800000) else result
    if not plain:
        result = np.uint32(0) if result < tiny else result
        sign_mask = np.uint32(negative_zero << np.uint32(31))
        sign = np.uint32(sign & sign_mask) if result == np.uint32(0) else sign
    return np.uint32(result | sign)


@compiled
def fills_binades(source: Any, low: Any) -> Any:
    """Whether every non-zero element lies where the grid has all its mantissa bits."""
    smallest = np.uint32(0xFFFFFFFF)
    for i in range(source.size):
        smallest = min(smallest, np.uint32(np.uint32(source[i] & np.uint32(0x7FFFFFFF)) - np.uint32(1)))
    return smallest >= np.uint32(np.uint32(low << np.uint32(23)) - np.uint32(1))


@cache
def element_kernel(mode: int, core: int, plain: bool, in_place: bool = False) -> Callable[..., None]:
    """The pass that rounds each element alone; `in_place` tells the compiler that source and target are one.

    Random rounding above the lowest binade is a single addition; spans where all elements are there take it.
    """
    span = SPAN if mode == COUNTER and core == LIFTED else 1 << 62

    def kernel(source: Any, target: Any, start: Any, grid: Any, draw: Any, states: Any) -> None:
        fields, key = fields_of(grid), (draw[0], draw[1], draw[2])
        position, begin = (np.int64(start) + np.int64(key[0])) % states.size, 0
        while begin < source.size:
            # The shift register's states lie side by side until they begin again.
            size = min(span, source.size - begin, states.size - position if mode == LFSR else span)
            write, words = target[begin : begin + size], states[position : position + size]
            read = write if in_place else source[begin : begin + size]
            counter = counter_of(start + begin, key)
            begin += size
            position = 0
            if mode == COUNTER and core == LIFTED and fills_binades(read, fields[1]):
                for i in range(read.size):
                    word = np.uint32(random_word(counter, key[1]) & key[2])
                    counter = np.uint32(counter + STRIDE)
                    write[i] = round_bits(read[i], word, FLAT, mode, plain, fields)
                continue
            for i in range(read.size):
                word = words[i] & key[2] if mode == LFSR else element_word(i, counter, mode, key, states)
                counter = np.uint32(counter + STRIDE)
                write[i] = round_bits(read[i], word, core, mode, plain, fields)

    return compiled(kernel)


@compiled
def find_step(bits: Any, first: Any, edges: Any, halvings: Any) -> Any:
    """The step of a float32 bit pattern (see `StepTable`); `halvings` is a constant to the compiler."""
    negative = np.uint32(np.uint32(0) - np.uint32(bits >> np.uint32(31)))
    key = np.uint32(bits ^ np.uint32(negative | np.uint32(0x80000000)))
    step = np.uint64(first[np.uint64(key >> np.uint32(16))])
    for s in range(halvings):
        ahead = np.uint64(step + np.uint64(1 << (halvings - 1 - s)))
        step = np.uint64(step + (np.uint64(edges[ahead] <= np.uint64(key)) << np.uint64(halvings - 1 - s)))
    return step


@cache
def step_kernel(mode: int, halvings: int) -> Callable[..., None]:
    """The pass that looks each element up among steps."""

    def kernel(source: Any, target: Any, start: Any, table: Any, draw: Any, states: Any) -> None:
        first, edges, low, high, near, far = table
        ends = np.empty(2, np.float64)
        for i in range(source.size):
            bits = source[i]
            step = find_step(bits, first, edges, halvings)
            if mode < COUNTER:
                target[i] = low[step]
                continue
            word = element_word(start + i, counter_of(start + i, draw), mode, draw, states)
            value, below, above = np.float64(np.uint32(bits).view(np.float32)), near[step], far[step]
            positive = np.int64(value >= 0.0)
            ends[0], ends[1] = above, below
            share = abs(value - ends[positive]) / (above - below)
            between = np.int64(value > below) & np.int64(value < above)
            grains = np.int64(share * 2.0**24)
            away = (grains + np.int64(word >> np.uint32(8))) >> np.int64(24)
            up = np.int64(value >= above) | (between & (away ^ positive ^ np.int64(1)))
            one = np.uint32(-up)
            target[i] = np.uint32(np.uint32(high[step] & one) | np.uint32(low[step] & np.uint32(~one)))

    return compiled(kernel)


@compiled
def round_posit(bits: Any, width: Any, exponent: Any, mode: Any) -> Any:
    """One float32 bit pattern as a posit of `width` bits with `exponent` exponent bits; random modes aside.

    A posit's exponent and fraction are the low bits of the float32 pattern without its bias, cut where the regime
    leaves no room. A carry out of them goes to the next regime, as it does in the pattern.
    """
    one, bias, infinity = np.int32(1), np.int32(0x3F800000), np.int32(0x7F800000)
    magnitude = np.int32(bits & np.uint32(0x7FFFFFFF))
    negative = np.uint32(bits >> np.uint32(31)) != np.uint32(0)
    payload = np.int32(np.int32(23) + exponent)
    count = np.int32(magnitude - bias)
    regime = np.int32(
        min(max(np.int32(count >> payload), np.int32(np.int32(2) - width)), np.int32(width - np.int32(3)))
    )
    length = np.int32(regime + np.int32(2)) if regime >= np.int32(0) else np.int32(one - regime)
    room = np.int32(np.int32(width - one) - length)
    drop = np.int32(max(np.int32(payload - room), np.int32(0)) & np.int32(31))
    below = np.int32(np.int32(one << drop) - one)
    if mode == NEAREST_EVEN:
        # Without room, the last bit of the code is that of the regime.
        odd = np.int32(np.int32(count >> drop) & one) if room > np.int32(0) else np.int32(regime < np.int32(0))
        bump = np.int32(np.int32(np.int32(below >> one) + odd) & below)
    elif mode == NEAREST_AWAY:
        bump = np.int32(np.int32(one << drop) >> one)
    elif mode == TOWARD_ZERO:
        bump = np.int32(0)
    elif mode == UP:
        bump = np.int32(0) if negative else below
    else:
        bump = below if negative else np.int32(0)
    span = np.int32(np.int32(width - np.int32(2)) << payload)
    smallest, largest = np.int32(bias - span), np.int32(bias + span)
    value = np.int32(np.int32(np.int32(np.int32(count + bump) >> drop) << drop) + bias)
    value = np.int32(min(max(value, smallest), largest))
    if mode in (TOWARD_ZERO, UP, DOWN):
        goes_out = mode != TOWARD_ZERO and negative == (mode == DOWN)
        value = np.int32(0) if magnitude < smallest and not goes_out else value
    value = np.int32(0) if magnitude == np.int32(0) else value
    result = np.uint32(np.uint32(value) | np.uint32(bits & np.uint32(0x80000000)))
    result = np.uint32(0) if value == np.int32(0) else result
    return np.uint32(0x7FC00000) if magnitude >= infinity else result


@cache
def posit_kernel(mode: int, in_place: bool) -> Callable[..., None]:
    """The pass that rounds each element to a posit."""

    def kernel(source: Any, target: Any, width: Any, exponent: Any) -> None:
        for i in range(target.size):
            bits = target[i] if in_place else source[i]
            target[i] = round_posit(bits, np.int32(width), np.int32(exponent), mode)

    return compiled(kernel)


@compiled
def wrap_numbers(words: Any, span: Any, top: Any) -> None:
    """Float32 patterns of a fixed-point format modulo `span`, a power of two, in place: below `top` and above it."""
    for i in range(words.size):
        value = np.uint32(words[i]).view(np.float32)
        inside = np.float32(value - np.float32(span * np.floor(np.float32(value / span))))
        words[i] = np.float32(np.float32(inside - span) if inside >= top else inside).view(np.uint32)


@compiled
def look_up_short(words: Any, table: Any, out: Any, start: int, stop: int) -> bool:
    """The codes of float32 numbers with 16 zeros at their end; false if one has others, or is not in the table (-1)."""
    rest, least = np.uint32(0), 0
    for i in range(start, stop):
        rest |= words[i] & np.uint32(0xFFFF)
        code = table[words[i] >> np.uint32(16)]
        least |= code
        out[i] = code
    return bool(rest == 0) and least >= 0


@compiled
def scale_of_line(line: Any, groups: Any, height: Any, tall: Any, turns: Any) -> Any:
    """The scale of the first row of a line, as `scaled_kernel` counts them."""
    bands = -(-height // tall)
    return (((line // height) * bands + (line % height) // tall) * groups) % turns


@compiled
def largest_by_row(
    source: Any, begin: Any, end: Any, width: Any, length: Any, size: Any, height: Any, tall: Any, turns: Any,
    limit: Any, into: Any,
) -> None:  # fmt: skip
    """The largest magnitude below `limit` of rows `begin` to `end`, as `scaled_kernel` counts rows."""
    groups = -(-length // size)
    row = begin
    while row < end:
        line, group = row // groups, row % groups
        base = scale_of_line(line, groups, height, tall, turns)
        for g in range(group, min(groups, group + end - row)):
            here = line * length + g * size
            values, largest = source[here : here + min(size, length - g * size)], np.uint32(0)
            for j in range(values.size):
                magnitude = np.uint32(values[j] & np.uint32(0x7FFFFFFF))
                largest = max(largest, np.uint32(0) if magnitude >= limit else magnitude)
            scale = base + g if base + g < turns else (base + g) % turns
            into[scale] = max(into[scale], largest)
        row += groups - group


@compiled
def largest_by_column(
    source: Any, begin: Any, end: Any, width: Any, length: Any, size: Any, height: Any, tall: Any, turns: Any,
    limit: Any, into: Any,
) -> None:  # fmt: skip
    """The largest magnitudes below `limit` of rows `begin` to `end`, as `scaled_kernel` counts rows of many scales."""
    groups = -(-length // size)
    for row in range(begin, end):
        base = ((row // length) * groups + (row % length) // size) * width
        most, line = into[base : base + width], source[row * width : (row + 1) * width]
        for j in range(line.size):
            magnitude = np.uint32(line[j] & np.uint32(0x7FFFFFFF))
            most[j] = max(most[j], np.uint32(0) if magnitude >= limit else magnitude)


@compiled
def scale_factors(
    largest: Any, forward: Any, back: Any, top: Any, spread: Any, least: Any, inverts: Any, divides: Any, powers: Any
) -> None:
    """`Scaled.factors`: `inverts` for its `reciprocal`, `divides` for its `divide`, `powers` for scales of e8m0."""
    one, smallest, infinity = np.float32(1), np.float32(2.0**-126), np.float32(np.inf)
    most = np.uint32(0x7F7FFFFF).view(np.float32)
    for i in range(largest.size):
        amax = largest[i]
        if not amax < infinity:
            forward[i] = back[i] = np.float32(np.nan)
            continue
        if inverts:
            floor = max(np.float64(amax), least)
            scale = np.float32((top / spread) / floor)
        else:
            floor = np.float64(max(amax, np.float32(least)))
            scale = np.float32(np.float32(floor / top) * np.float32(spread))
        scale = min(max(scale, smallest), most)
        if powers:
            bits = np.uint32(np.float32(scale).view(np.uint32) + np.uint32(0 if inverts else 0x7FFFFF))
            scale = min(np.uint32(bits & np.uint32(0x7F800000)).view(np.float32), np.float32(2.0**127))
        scale = one if floor == 0.0 else np.float32(scale)
        inverse = np.float32(one / scale)
        forward[i] = scale if inverts or divides else inverse
        back[i] = inverse if inverts else scale


@compiled
def nvfp4_factors(
    largest: Any, forward: Any, back: Any, scaled: Any, divides: Any, inverts: Any, least: Any, grid: Any
) -> None:
    """`Nvfp4.factors` of `Nvfp4.scales_of`: `scaled` for a tensor scale, `divides` and `inverts` for its `apply`."""
    one, most, top = np.float32(1), np.uint32(0x7F7FFFFF).view(np.float32), np.float32(0)
    for i in range(largest.size):
        top = max(top, largest[i])
    encoding = min(np.float32(np.float32(2688) / top), most) if scaled else one
    tensor = np.float32(top / np.float32(2688)) if scaled else one
    tensor = tensor if tensor >= np.float32(2.0**-126) else one
    if inverts:
        tensor = np.float32(one / encoding) if top > np.float32(0) else one
    for i in range(largest.size):
        ratio = np.float32(largest[i] / np.float32(6))
        ratio = np.float32(ratio * encoding) if inverts else np.float32(ratio / tensor)
        bits = np.float32(ratio).view(np.uint32)
        bits = round_bits(bits, np.uint32(0), LIFTED, NEAREST_EVEN, True, fields_of(grid))
        scale = max(np.uint32(bits).view(np.float32), least)
        whole = np.float32(scale * tensor)
        inverse = min(np.float32(one / whole), most) if inverts else np.float32(np.float32(one / tensor) / scale)
        forward[i] = whole if divides else inverse
        back[i] = whole


DIVIDE, MULTIPLY, DIVIDE_NUMBERS, MULTIPLY_NUMBERS = range(4)
"""How `scaled_kernel` applies a factor: x / f or x * f, and the same with NaN as 0."""


@compiled
def round_unit(
    bits: Any, factor: Any, back: Any, how: Any, word: Any, core: Any, mode: Any, plain: Any, grid: Any
) -> Any:
    """A number over or times its factor, rounded, times `back`, each in float32."""
    is_nan = np.uint32(bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    value = np.uint32(np.uint32(0) if is_nan and how >= DIVIDE_NUMBERS else bits).view(np.float32)
    multiplies = how in (MULTIPLY, MULTIPLY_NUMBERS)
    ratio = np.float32(value * factor) if multiplies else np.float32(value / factor)
    unit = round_bits(np.float32(ratio).view(np.uint32), word, core, mode, plain, grid)
    return np.float32(np.uint32(unit).view(np.float32) * back).view(np.uint32)


@cache
def scaled_kernel(mode: int, core: int, plain: bool, how: int, in_place: bool) -> Callable[..., None]:
    """The pass over elements with a scale, rows `begin` to `end`: a factor before rounding, another one after it.

    A row has one scale: lines of `length` elements are cut into rows of `size`, the last shorter, and row r takes scale
    r modulo `turns`; with tiles, `tall` lines of the `height` of a matrix share their scales.
    """

    def kernel(
        source: Any, target: Any, begin: Any, end: Any, width: Any, length: Any, size: Any, height: Any, tall: Any,
        turns: Any, factors: Any, scales: Any, words: Any, draw: Any, states: Any,
    ) -> None:  # fmt: skip
        grid, key = fields_of(words), (draw[0], draw[1], draw[2])
        groups = -(-length // size)
        row = begin
        while row < end:
            line, group = row // groups, row % groups
            base = scale_of_line(line, groups, height, tall, turns)
            for g in range(group, min(groups, group + end - row)):
                here = line * length + g * size
                scale = base + g if base + g < turns else (base + g) % turns
                before, after = factors[scale], scales[scale]
                write = target[here : here + min(size, length - g * size)]
                read = write if in_place else source[here : here + write.size]
                counter = counter_of(here, key)
                for j in range(write.size):
                    word = element_word(here + j, counter, mode, key, states)
                    counter = np.uint32(counter + STRIDE)
                    write[j] = round_unit(read[j], before, after, how, word, core, mode, plain, grid)
            row += groups - group

    return compiled(kernel)


@cache
def scaled_column_kernel(mode: int, core: int, plain: bool, how: int, in_place: bool) -> Callable[..., None]:
    """The pass over elements where each column has its scale, rows `begin` to `end` of `width` elements.

    `length` rows make a matrix, and `size` of them, the last group shorter, share a row of scales.
    """

    def kernel(
        source: Any, target: Any, begin: Any, end: Any, width: Any, length: Any, size: Any, height: Any, tall: Any,
        turns: Any, factors: Any, scales: Any, words: Any, draw: Any, states: Any,
    ) -> None:  # fmt: skip
        grid, key = fields_of(words), (draw[0], draw[1], draw[2])
        groups = -(-length // size)
        for row in range(begin, end):
            here = row * width
            scale = (((row // length) * groups + (row % length) // size) * width) % turns
            befores, afters = factors[scale : scale + width], scales[scale : scale + width]
            write = target[here : here + width]
            read = write if in_place else source[here : here + width]
            counter = counter_of(here, key)
            for j in range(write.size):
                word = element_word(here + j, counter, mode, key, states)
                counter = np.uint32(counter + STRIDE)
                write[j] = round_unit(read[j], befores[j], afters[j], how, word, core, mode, plain, grid)

    return compiled(kernel)


@compiled
def largest_number(line: Any) -> Any:
    """The largest magnitude of a line, NaN left out."""
    largest = np.uint32(0)
    for j in range(line.size):
        magnitude = np.uint32(line[j] & np.uint32(0x7FFFFFFF))
        largest = max(largest, np.uint32(0) if magnitude > np.uint32(0x7F800000) else magnitude)
    return largest


@compiled
def largest_in_tile(target: Any, top: Any, bottom: Any, width: Any, left: Any, wide: Any) -> Any:
    """The largest magnitude of a tile, NaN left out."""
    largest = np.uint32(0)
    for r in range(top, bottom):
        start = r * width + left
        largest = np.uint32(max(largest, largest_number(target[start : start + wide])))
    return largest


@compiled
def scale_exponent(magnitude: Any, poison: Any, emax: Any, bump: Any) -> Any:
    """The exponent k of a group's scale, before its limits; `magnitude` is the group's largest."""
    if not poison:
        magnitude = np.uint32(min(magnitude, np.uint32(0x7F7FFFFF)))
    wide = np.float64(np.uint32(magnitude).view(np.float32))
    return ((wide.view(np.int64) + bump) >> 52) - 1023 - emax


@compiled
def round_scaled(bits: Any, k: Any, poison: Any, word: Any, mode: Any, grid: Any) -> Any:
    """One element of a group with scale 2^k, for any k: brought to scale 1, rounded, and brought back."""
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    sign = np.uint32(bits & np.uint32(0x80000000))
    if magnitude > np.uint32(0x7F800000):
        return np.uint32(0)
    if not poison:
        magnitude = np.uint32(min(magnitude, np.uint32(0x7F7FFFFF)))
    factor = np.int64((k + 1023) << 52).view(np.float64)
    scaled = np.float32(np.float64(np.uint32(magnitude).view(np.float32)) / factor)
    # A number that underflows in the scaling must still count as more than zero when rounding up.
    lost = scaled == np.float32(0) and magnitude != np.uint32(0)
    unit = np.uint32(1) if lost else scaled.view(np.uint32)
    value = round_bits(np.uint32(unit | sign), word, GENERAL, mode, False, grid)
    back = np.float64(np.uint32(value).view(np.float32)) * factor
    if abs(back) >= 2.0**128:
        # The largest float32 below 2^128 / factor, a power of two.
        ceiling = np.uint32(np.float32(2.0**128 / factor).view(np.uint32) - np.uint32(1))
        most = round_bits(ceiling, word, GENERAL, TOWARD_ZERO, False, grid)
        back = np.copysign(np.float64(np.uint32(most).view(np.float32)) * factor, back)
    return np.float32(back).view(np.uint32)


@compiled
def counter_of(index: Any, draw: Any) -> Any:
    """The counter of an element, by its index; that of the next is `STRIDE` more."""
    return np.uint32(np.uint32(np.uint32(index) * STRIDE) + draw[0])


@compiled
def element_word(index: Any, counter: Any, mode: Any, draw: Any, states: Any) -> Any:
    """The random word of one element where the mode needs one; `draw` has the key's words and the mask of the bits."""
    if mode == COUNTER:
        return np.uint32(random_word(counter, draw[1]) & draw[2])
    if mode == LFSR:
        # The sum modulo 2^16 - 1, the number of states, which is the sum of the halves.
        half, low = np.uint32(16), np.uint32(0xFFFF)
        count, start = np.uint32(index), draw[0]
        place = np.uint32(np.uint32(count & low) + np.uint32(count >> half))
        place = np.uint32(place + np.uint32(np.uint32(start & low) + np.uint32(start >> half)))
        place = np.uint32(np.uint32(place & low) + np.uint32(place >> half))
        place = np.uint32(place - low) if place >= low else place
        return np.uint32(states[np.uint64(place)] & draw[2])
    return np.uint32(0)


@compiled
def round_slowly(
    bits: Any, index: Any, magnitude: Any, raw: Any, mode: Any, grid: Any, block: Any, draw: Any, states: Any
) -> Any:
    """An element of a group in the rare cases: scales at float32's ends, special numbers, flushed groups.

    `magnitude` is the group's largest, `raw` its scale exponent before the limits.
    """
    lowest, highest, flush, poison = block[2], block[3], block[4], block[5]
    if poison and magnitude >= np.uint32(0x7F800000):
        return np.uint32(0x7FC00000)
    if flush and raw < lowest:
        is_nan = np.uint32(bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        return np.uint32(0) if is_nan else np.uint32(bits & np.uint32(0x80000000))
    k = min(max(raw, lowest), highest)
    word = element_word(index, counter_of(index, draw), mode, draw, states)
    return round_scaled(bits, k, poison, word, mode, grid)


@compiled
def settle_exponent(raw: Any, magnitude: Any, block: Any) -> Any:
    """The scale exponent of a group before and after its limits, and whether the grid itself can move there."""
    lowest, highest, flush, first_fast, last_fast = block[2], block[3], block[4], block[6], block[7]
    if magnitude == np.uint32(0):  # zeros are zeros under every scale
        raw = max(first_fast, lowest)
    k = min(max(raw, lowest), highest)
    in_range = (magnitude < np.uint32(0x7F800000)) & (first_fast <= k) & (k <= last_fast)
    return raw, np.int32(k), in_range & ((flush == 0) | (raw >= lowest))


@compiled
def moved_grid(grid: Any, k: Any) -> Any:
    """The fields of a saturating grid times 2^k."""
    mantissa, low, tiny, max_positive, max_negative, _, _, nan, negative_zero = grid
    moved = np.uint32(k << np.int32(23))
    cut = np.uint32(tiny + moved) if tiny else np.uint32(0)
    positive, negative = np.uint32(max_positive + moved), np.uint32(max_negative + moved)
    exponent = np.uint32(low + np.uint32(k))
    return mantissa, exponent, cut, positive, negative, positive, negative, nan, negative_zero


@cache
def tile_kernel(mode: int, core: int, plain: bool, in_place: bool) -> Callable[..., None]:
    """The pass over groups whose members lie side by side, `columns` wide and `tile_rows` high.

    `source` is a stack of matrices of `rows` x `width`; tiles from `begin` to `end` are numbered row by row. Runs of
    equal tiles are worked on together: copied and searched for their largest magnitudes, then rounded in place, so
    that short inner loops stay vectors. Unsigned indices spare Numba's check for negative ones.
    """

    def kernel(
        source: Any, target: Any, begin: Any, end: Any, rows: Any, width: Any, tile_rows: Any, columns: Any,
        grid: Any, block: Any, draw: Any, states: Any,
    ) -> None:  # fmt: skip
        fields, key = fields_of(grid), (draw[0], draw[1], draw[2])
        emax, bump, poison = block[0], block[1], block[5]
        any_mode = np.int64(mode)  # not a constant to the compiler: one slow path serves all modes
        magnitudes, raws, is_fast = np.empty(RUN, np.uint32), np.empty(RUN, np.int64), np.empty(RUN, np.bool_)
        exponents = np.empty(RUN, np.int32)
        across, down = -(-width // columns), -(-rows // tile_rows)
        tile = begin
        while tile < end:
            band, tile_column = tile // across, tile % across
            matrix, strip = band // down, band % down
            top = matrix * rows + strip * tile_rows
            bottom = top + min(tile_rows, rows - strip * tile_rows)
            full = width // columns - tile_column
            run = np.uint64(min(RUN, full, end - tile) if full > 0 else 1)
            wide = np.uint64(columns if full > 0 else width - tile_column * columns)
            tile += np.int64(run)
            for t in range(run):
                magnitudes[t] = np.uint32(0)
            for r in range(top, bottom):
                base = np.uint64(r * width + tile_column * columns)
                for t in range(run):
                    here, largest = np.uint64(base + t * wide), magnitudes[t]
                    for j in range(wide):
                        bits = target[here + j] if in_place else source[here + j]
                        if not in_place:
                            target[here + j] = bits
                        largest = max(largest, np.uint32(bits & np.uint32(0x7FFFFFFF)))
                    magnitudes[t] = largest
            for t in range(run):
                largest = magnitudes[t]
                if largest > np.uint32(0x7F800000) and not poison:
                    left = tile_column * columns + np.int64(t) * np.int64(wide)
                    largest = largest_in_tile(target, top, bottom, width, left, np.int64(wide))
                raw = scale_exponent(largest, poison, emax, bump)
                raws[t], exponents[t], is_fast[t] = settle_exponent(raw, magnitudes[t], block)
            for r in range(top, bottom):
                base = np.uint64(r * width + tile_column * columns)
                for t in range(run):
                    here = np.uint64(base + t * wide)
                    if not is_fast[t]:
                        for j in range(wide):
                            target[here + j] = round_slowly(
                                target[here + j], here + j, magnitudes[t], raws[t], any_mode, fields, block, key, states
                            )
                        continue
                    moved = moved_grid(fields, exponents[t])
                    counter = counter_of(here, key)
                    for j in range(wide):
                        word = element_word(here + j, counter, mode, key, states)
                        counter = np.uint32(counter + STRIDE)
                        target[here + j] = round_bits(target[here + j], word, core, mode, plain, moved)

    return compiled(kernel)


@cache
def column_kernel(mode: int, core: int, plain: bool, in_place: bool) -> Callable[..., None]:
    """The pass over groups whose members lie a row apart: `group` rows high, one column wide.

    `source` is a stack of matrices of `rows` x `width`; `strip` columns are worked on together, as in `tile_kernel`.
    """

    def kernel(
        source: Any, target: Any, begin: Any, end: Any, rows: Any, width: Any, group: Any, strip: Any,
        grid: Any, block: Any, draw: Any, states: Any,
    ) -> None:  # fmt: skip
        fields, key = fields_of(grid), (draw[0], draw[1], draw[2])
        emax, bump, poison = block[0], block[1], block[5]
        any_mode = np.int64(mode)  # not a constant to the compiler: one slow path serves all modes
        magnitudes, raws, is_fast = np.empty(strip, np.uint32), np.empty(strip, np.int64), np.empty(strip, np.bool_)
        exponents = np.empty(strip, np.int32)
        across, down = -(-width // strip), -(-rows // group)
        for number in range(begin, end):
            band, strip_number = number // across, number % across
            matrix, level = band // down, band % down
            top = matrix * rows + level * group
            bottom = top + min(group, rows - level * group)
            count = np.uint64(min(strip, width - strip_number * strip))
            for j in range(count):
                magnitudes[j] = np.uint32(0)
            for r in range(top, bottom):
                base = np.uint64(r * width + strip_number * strip)
                for j in range(count):
                    bits = target[base + j] if in_place else source[base + j]
                    if not in_place:
                        target[base + j] = bits
                    magnitudes[j] = max(magnitudes[j], np.uint32(bits & np.uint32(0x7FFFFFFF)))
            special = False
            for j in range(count):
                special |= magnitudes[j] >= np.uint32(0x7F800000)
                raws[j] = scale_exponent(magnitudes[j], poison, emax, bump)
            if special and not poison:
                for j in range(count):
                    largest = largest_in_tile(target, top, bottom, width, strip_number * strip + np.int64(j), 1)
                    raws[j] = scale_exponent(largest, poison, emax, bump)
            fast = True
            for j in range(count):
                raws[j], exponents[j], is_fast[j] = settle_exponent(raws[j], magnitudes[j], block)
                fast &= is_fast[j]
            for r in range(top, bottom):
                base = np.uint64(r * width + strip_number * strip)
                if not fast:
                    for j in range(count):
                        if not is_fast[j]:
                            target[base + j] = round_slowly(
                                target[base + j], base + j, magnitudes[j], raws[j], any_mode, fields, block, key, states
                            )
                counter = counter_of(base, key)
                for j in range(count):
                    word = element_word(base + j, counter, mode, key, states)
                    counter = np.uint32(counter + STRIDE)
                    bits = target[base + j]
                    value = round_bits(bits, word, core, mode, plain, moved_grid(fields, exponents[j]))
                    target[base + j] = value if is_fast[j] else bits

    return compiled(kernel)


def block_words(block: BlockGrid, core: int, lowest: int) -> Any:
    """The block grid as the kernels take it, with the range of k in which `core` is exact."""
    limits = [block.emax, block.bump, lowest, block.highest, block.flush, block.poison, *fast_scales(block, core)]
    return np.array(limits, dtype=np.int64)


@lru_cache(maxsize=1024)
def grid_words(grid: Grid) -> Any:
    """The grid as the kernels take it."""
    return np.array(grid.words(), dtype=np.uint32)


def draw_words(mode: Mode, key: Key, block: int) -> Any:
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
