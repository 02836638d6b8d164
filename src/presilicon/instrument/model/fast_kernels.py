"""The fast model's loops, compiled by Numba: all vectors of a call in one go, lanes side by side.

Words are 64-bit integers. A float word is computed with as float64: no value of ours is wider than float32, so a sum
or product of two is exact, or was rounded at a place so far below that rounding it again to the word gives the
nearest word.

Everything compiled lives in this one file: Numba's cache on disk is renewed when the file changes.
"""

from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

F = TypeVar("F")

FILTER, ALU, REDUCE = range(3)
"""Numbers of the blocks."""
(
    USES_FILTER,
    AXIS,
    RANGE_ROW,
    LOAD,
    FUNCTION,
    ALU_ROW,
    ALU_CONDITIONS,
    CACHE,
    CACHE_ROW,
    CACHE_CONDITIONS,
    SAVE,
    REDUCTION,
    SIZE,
    COMMIT_CONDITIONS,
    FIELDS,
) = range(15)
"""Columns of the table of chains."""
PASS, ADD, SUB, MUL, MAX, MIN, ABS = range(7)
NONE, SUM, PRODUCT, GREATEST, SMALLEST = range(5)
CLASSES, ASCENDING, UNORDERED = range(3)
"""Kinds of range rows; boundaries not written by the compiler may be unordered."""
_INFINITY_BITS = np.int64(2047 << 52)


class Words(NamedTuple):
    """A word format for the kernels; fields of the other kind are 0."""

    is_float: bool
    bits: int
    smallest: int
    largest: int
    fraction: int
    mantissa: int
    infinity: int
    nan: int
    exponent_base: int
    """Added to a normal code in float64's top bits, gives the float64 of its value."""
    least_normal: float
    subnormal_shift: float
    """A number whose last place in float64 is that of subnormals: adding it rounds to that place."""
    exponent_offset: int
    """Difference between a float64 code cut to our mantissa and our code."""


def compiled(function: F) -> F:
    """The function, compiled without the interpreter lock and cached on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)(function))


@compiled
def value_of(code: Any, words: Any) -> Any:
    """A float word as float64; any NaN is NaN."""
    magnitude = code & ((np.int64(1) << (words.bits - 1)) - 1)
    normal = np.int64((magnitude << (52 - words.mantissa)) + words.exponent_base).view(np.float64)
    plain = 2.0 * normal - words.least_normal if magnitude < (np.int64(1) << words.mantissa) else normal
    special = np.inf if magnitude == words.infinity else np.nan
    value = special if magnitude >= words.infinity else plain
    return -value if magnitude != code else value


@compiled
def code_of(value: Any, words: Any) -> Any:
    """A float64 as a float word, rounded to nearest even; NaN has one code."""
    bits = np.float64(value).view(np.int64)
    magnitude = bits & np.int64(0x7FFFFFFFFFFFFFFF)
    drop = 52 - words.mantissa
    even = (magnitude >> drop) & 1
    normal = ((magnitude + (np.int64(1) << (drop - 1)) - 1 + even) >> drop) - words.exponent_offset
    size = np.int64(magnitude).view(np.float64)
    low = np.float64(size + words.subnormal_shift).view(np.int64) - np.float64(words.subnormal_shift).view(np.int64)
    code = min(normal if size >= words.least_normal else low, words.infinity)
    signed = code | (np.int64(1) << (words.bits - 1)) if bits < 0 else code
    return words.nan if magnitude > _INFINITY_BITS else signed


@compiled
def is_end(x: Any, words: Any) -> Any:
    """Whether a fixed-point word is the smallest or the largest."""
    return x == words.smallest or x == words.largest


@compiled
def fixed_sum(x: Any, y: Any, sign: Any, words: Any) -> Any:
    """x + y, or x - y with a sign of -1, saturated; an operand at an end of the range stays there."""
    total = min(max(x + sign * y, words.smallest), words.largest)
    other = (~y if sign < 0 else y) if is_end(y, words) else total
    return x if is_end(x, words) else other


@compiled
def fixed_product(x: Any, y: Any, words: Any) -> Any:
    """x * y shifted right by the fraction bits, saturated; 48 bits by 48 bits in two halves of 24.

    The product of an end of the range is an end.
    """
    if is_end(x, words) or is_end(y, words):
        return words.largest if (x < 0) == (y < 0) else words.smallest
    if words.bits <= 32:
        product = (x * y) >> words.fraction
    else:
        half = np.int64(0xFFFFFF)
        x_high, x_low, y_high, y_low = x >> 24, x & half, y >> 24, y & half
        low = x_low * y_low
        middle = x_high * y_low + x_low * y_high + (low >> 24)
        high = x_high * y_high + (middle >> 24)
        rest = ((middle & half) << 24) | (low & half)
        # Anything larger saturates.
        most = np.int64(2) << words.fraction
        high = min(max(high, -most), most)
        product = (high << (48 - words.fraction)) + (rest >> words.fraction)
    return min(max(product, words.smallest), words.largest)


@compiled
def key_of(code: Any, words: Any) -> Any:
    """The integer that ranges compare."""
    magnitude = code & ((np.int64(1) << (words.bits - 1)) - 1)
    return -magnitude if magnitude != code else magnitude


@compiled
def is_nan(code: Any, words: Any) -> Any:
    """Whether a float word is NaN."""
    return (code & ((np.int64(1) << (words.bits - 1)) - 1)) > words.infinity


@compiled
def class_of(code: Any, words: Any) -> Any:
    """Number of the bit of a word's class."""
    if not words.is_float:
        return np.int64(5) - np.int64(code == 0)
    magnitude = code & ((np.int64(1) << (words.bits - 1)) - 1)
    finite = np.int64(5) if magnitude >= (np.int64(1) << words.mantissa) else np.int64(3) + np.int64(magnitude == 0)
    special = np.int64(1) + np.int64(magnitude != code) if magnitude == words.infinity else np.int64(0)
    return special if magnitude >= words.infinity else finite


@compiled
def greater(x: Any, y: Any, words: Any) -> Any:
    """The greater of x and y, x if they are equal."""
    if not words.is_float:
        return max(x, y)
    chosen = x if key_of(x, words) >= key_of(y, words) else y
    return words.nan if is_nan(x, words) or is_nan(y, words) else chosen


@compiled
def smaller(x: Any, y: Any, words: Any) -> Any:
    """The smaller of x and y, x if they are equal."""
    if not words.is_float:
        return min(x, y)
    chosen = x if key_of(x, words) <= key_of(y, words) else y
    return words.nan if is_nan(x, words) or is_nan(y, words) else chosen


@compiled
def count_words(out: Any, words: Any) -> None:
    """The words of the numbers 0, 1, 2, ..."""
    for count in range(out.size):
        if words.is_float:
            out[count] = code_of(np.float64(count), words)
        else:
            out[count] = min(np.int64(count) << words.fraction, words.largest)


@compiled
def filter_classes(
    x: Any, tally: Any, keys: Any, lane_words: Any, axis: Any, ranges: Any, counts: Any, words: Any
) -> None:
    """Replace x by the counts of a row of classes; `lane_words` has a word for each class of an element."""
    if axis == 0:
        tally[:] = 0
        for n in range(x.size):
            tally[class_of(x[n], words)] += 1
        for m in range(ranges):
            hits = np.int64(0)
            for bit in range(tally.size):
                hits += tally[bit] * ((keys[m] >> bit) & 1)
            x[m] = counts[hits]
        x[ranges:] = 0
    else:
        for n in range(x.size):
            x[n] = lane_words[class_of(x[n], words)]


@compiled
def filter_words(x: Any, scratch: Any, keys: Any, kind: Any, axis: Any, ranges: Any, counts: Any, words: Any) -> None:
    """Replace x by the counts of a row of boundaries; `counts` has the word of each number."""
    lanes = x.size
    if words.is_float:
        for n in range(lanes):
            # A NaN lies below every range.
            scratch[n] = np.int64(-(1 << 60)) if is_nan(x[n], words) else key_of(x[n], words)
    else:
        scratch[:] = x
    if kind == UNORDERED:
        if axis == 0:
            for m in range(ranges):
                hits = 0
                for n in range(lanes):
                    hits += keys[m] < scratch[n] <= keys[m + 1]
                x[m] = counts[hits]
            x[ranges:] = 0
        else:
            for n in range(lanes):
                hits = 0
                for m in range(ranges):
                    hits += keys[m] < scratch[n] <= keys[m + 1]
                x[n] = counts[hits]
        return
    if axis == 0:
        above = 0
        low = keys[0]
        for n in range(lanes):
            above += scratch[n] > low
        for m in range(ranges):
            high = keys[m + 1]
            beyond = 0
            for n in range(lanes):
                beyond += scratch[n] > high
            x[m] = counts[above - beyond]
            above = beyond
        x[ranges:] = 0
    else:
        # Ranges lie one after the other: a lane is in one of them or in none.
        low, high = keys[0], keys[ranges]
        for n in range(lanes):
            x[n] = counts[1] if low < scratch[n] <= high else counts[0]


@compiled
def alu_words(x: Any, s: Any, function: Any, words: Any) -> None:
    """Combine x with a scratchpad row, lane by lane, in place."""
    lanes = x.size
    if function == MAX:
        for n in range(lanes):
            x[n] = greater(x[n], s[n], words)
    elif function == MIN:
        for n in range(lanes):
            x[n] = smaller(x[n], s[n], words)
    elif words.is_float:
        if function == ADD:
            for n in range(lanes):
                x[n] = code_of(value_of(x[n], words) + value_of(s[n], words), words)
        elif function == SUB:
            for n in range(lanes):
                x[n] = code_of(value_of(x[n], words) - value_of(s[n], words), words)
        elif function == MUL:
            for n in range(lanes):
                x[n] = code_of(value_of(x[n], words) * value_of(s[n], words), words)
        else:
            for n in range(lanes):
                x[n] &= (np.int64(1) << (words.bits - 1)) - 1
    elif function == ADD:
        for n in range(lanes):
            x[n] = fixed_sum(x[n], s[n], 1, words)
    elif function == SUB:
        for n in range(lanes):
            x[n] = fixed_sum(x[n], s[n], -1, words)
    elif function == MUL:
        for n in range(lanes):
            x[n] = fixed_product(x[n], s[n], words)
    else:
        for n in range(lanes):
            x[n] = min(abs(x[n]), words.largest)


@compiled
def reduce_words(x: Any, function: Any, words: Any) -> None:
    """Reduce all words into word 0; the others become 0."""
    if function == SUM and not words.is_float:
        total = np.int64(0)
        low, high = x[0], x[0]
        for n in range(x.size):
            total += x[n]
            low, high = min(low, x[n]), max(high, x[n])
        saturated = words.largest if high == words.largest else min(max(total, words.smallest), words.largest)
        x[0] = words.smallest if low == words.smallest else saturated
    else:
        count = x.size
        while count > 1:
            count //= 2
            for n in range(count):
                a, b = x[2 * n], x[2 * n + 1]
                if function == SUM:
                    x[n] = code_of(value_of(a, words) + value_of(b, words), words)
                elif function == PRODUCT:
                    if words.is_float:
                        x[n] = code_of(value_of(a, words) * value_of(b, words), words)
                    else:
                        x[n] = fixed_product(a, b, words)
                elif function == GREATEST:
                    x[n] = greater(a, b, words)
                else:
                    x[n] = smaller(a, b, words)
    x[1:] = 0


@compiled
def run(
    vectors: Any,
    facts: Any,
    chains: Any,
    order: Any,
    keys: Any,
    kinds: Any,
    lane_words: Any,
    scratchpad: Any,
    carried: Any,
    counts: Any,
    out: Any,
    words: Any,
) -> None:
    """Run the chains on every vector; `facts` has a bit for each condition that holds. `out` takes the sent words.

    Unused results are not computed: a chain that commits nothing ends with its last write in the vector unit, since
    the other blocks have no state.
    """
    lanes = vectors.shape[1]
    ranges = keys.shape[1] - 1
    x = np.empty(lanes, np.int64)
    scratch = np.empty(lanes, np.int64)
    tally = np.zeros(6, np.int64)
    position = 0
    for v in range(vectors.shape[0]):
        false = ~np.int64(facts[v])
        for c in range(chains.shape[0]):
            chain = chains[c]
            size = chain[SIZE] if chain[COMMIT_CONDITIONS] & false == 0 else 0
            caches = chain[CACHE] != 0 and chain[CACHE_CONDITIONS] & false == 0
            writes = caches or chain[SAVE] != 0
            if size == 0 and not writes:
                continue
            x[:] = vectors[v]
            for p in range(order.size):
                block = order[p]
                if block == FILTER:
                    if chain[USES_FILTER]:
                        row = chain[RANGE_ROW]
                        if kinds[row] == CLASSES:
                            filter_classes(x, tally, keys[row], lane_words[row], chain[AXIS], ranges, counts, words)
                        else:
                            filter_words(x, scratch, keys[row], kinds[row], chain[AXIS], ranges, counts, words)
                elif block == ALU:
                    if chain[LOAD]:
                        x[:] = carried
                    if chain[FUNCTION] != PASS and chain[ALU_CONDITIONS] & false == 0:
                        alu_words(x, scratchpad[chain[ALU_ROW]], chain[FUNCTION], words)
                    if caches:
                        scratchpad[chain[CACHE_ROW]] = x
                    if chain[SAVE]:
                        carried[:] = x
                    if size == 0:
                        break
                elif chain[REDUCTION] != NONE:
                    reduce_words(x, chain[REDUCTION], words)
            for n in range(size):
                out[position + n] = x[n]
            position += size


@compiled
def encode_floats(values: Any, out: Any, element: Any, spread: Any) -> None:
    """Numbers as words of floats: rounded to the element, widened by `spread` bits."""
    for i in range(values.size):
        out[i] = code_of(np.float64(values[i]), element) << spread


@compiled
def encode_fixed(values: Any, out: Any, scale: Any, largest: Any) -> None:
    """Numbers as words of fixed point: rounded to nearest even, saturated, 0 for NaN."""
    for i in range(values.size):
        steps = np.rint(np.float64(values[i]) * scale)
        inside = min(max(steps, -largest - 1.0), largest)
        out[i] = np.int64(inside if steps == steps else 0.0)
