"""Rounding on a GPU, in Triton: passes over float32 bit patterns that are bound by memory.

The arithmetic is that of `numba_kernels.round_general` and `round_scaled`, with a format's grid as compile-time
constants. Triton's interpreter (TRITON_INTERPRET=1) runs the same kernels on a CPU, which is how they are tested
without a GPU. Modes and cores are numbered as in `cores`.
"""

import triton
import triton.language as tl


@triton.jit
def _random_word(index, first, second):
    x = index * 0x9E3779B9 + first
    x = (x ^ (x >> 16)) * 0x21F0AAAD + second
    return (x ^ (x >> 15)) * 0xD35A2D97


@triton.jit
def random_words(index, states, first, second, inside, MASK: tl.constexpr, MODE: tl.constexpr):
    """The random words of elements, by their index; `states` are the 2^16 - 1 of the shift register."""
    word = tl.zeros_like(index)
    if MODE >= 5 and first.dtype.is_ptr():  # the key of a captured step lies in memory
        second = tl.load(first + 1)
        first = tl.load(first)
    if MODE == 5:
        word = _random_word(index, first.to(tl.uint32), second.to(tl.uint32)) & MASK
    elif MODE == 6:
        # The sum modulo 2^16 - 1, which is the sum of the halves.
        start = first.to(tl.uint32)
        position = (index & 0xFFFF) + (index >> 16) + (start & 0xFFFF) + (start >> 16)
        position = (position & 0xFFFF) + (position >> 16)
        position = tl.where(position >= 0xFFFF, position - 0xFFFF, position)
        word = tl.load(states + position, mask=inside, other=0).to(tl.uint32, bitcast=True) & MASK
    return word


@triton.jit
def _round_significand(significand, drop, negative, code_base, word, MODE: tl.constexpr):
    """`significand` without its last `drop` bits, rounded."""
    if MODE >= 5:
        covered = tl.minimum(drop, 31)
        beyond = tl.minimum(drop - covered, 31)
        draw = (word >> 1) >> (31 - covered)
        return ((significand >> beyond) + draw) >> covered
    drop = tl.minimum(drop, 25)
    unit = tl.full(drop.shape, 1, tl.uint32) << drop
    below = unit - 1
    if MODE == 0:
        bump = ((below >> 1) + (((significand >> drop) + code_base) & 1)) & below
    elif MODE == 1:
        bump = unit >> 1
    elif MODE == 2:
        bump = tl.zeros_like(below)
    elif MODE == 3:
        bump = tl.where(negative, 0, below)
    else:
        bump = tl.where(negative, below, 0)
    return (significand + bump) >> drop


@triton.jit
def _round_general(magnitude, negative, word, low, MODE: tl.constexpr, MANTISSA: tl.constexpr):
    """Magnitudes on the grid, limits aside: every mode, every grid."""
    field = magnitude >> 23
    significand = (magnitude & 0x7FFFFF) | (tl.minimum(field, 1) << 23)
    exponent = tl.maximum(field, 1)
    top = tl.maximum(exponent, low)
    spare: tl.constexpr = 23 - MANTISSA
    code_base = (top - low) << MANTISSA
    rounded = _round_significand(significand, spare + (top - exponent), negative, code_base, word, MODE) << spare
    full = ((top - 1) << 23) + rounded
    # Below 2^low the hidden bit is gone: the exact difference of two floats normalises what is left.
    base = (tl.zeros_like(magnitude) + low) << 23
    part = (base + rounded).to(tl.float32, bitcast=True) - base.to(tl.float32, bitcast=True)
    return tl.where(exponent < low, part.to(tl.uint32, bitcast=True), full)


@triton.jit
def _round_flat(magnitude, word, MODE: tl.constexpr, MANTISSA: tl.constexpr):
    """Magnitudes in full binades, for nearest-even, toward-zero and random modes: one integer addition."""
    spare: tl.constexpr = 23 - MANTISSA
    below: tl.constexpr = (1 << spare) - 1
    if spare == 0:
        result = magnitude
    elif MODE == 2:
        result = magnitude & (0xFFFFFFFF - below)
    elif MODE == 0:
        result = (magnitude + (below >> 1) + ((magnitude >> spare) & 1)) & (0xFFFFFFFF - below)
    else:
        result = (magnitude + (word >> (32 - spare))) & (0xFFFFFFFF - below)
    return result


@triton.jit
def _round_lifted(magnitude, low, LEVEL: tl.constexpr, MODE: tl.constexpr, MANTISSA: tl.constexpr):
    """Magnitudes to nearest-even by adding and subtracting a power of two whose last place is the wanted step.

    Toward zero, a step is taken back where that went up.
    """
    top = (tl.zeros_like(magnitude) + low) << 23
    if not LEVEL:
        top = tl.maximum(magnitude & 0x7F800000, top)
    lift = (top + ((23 - MANTISSA) << 23)).to(tl.float32, bitcast=True)
    value = magnitude.to(tl.float32, bitcast=True)
    result = (value + lift) - lift
    if MODE == 2:
        result = tl.where(result > value, result - (top - (MANTISSA << 23)).to(tl.float32, bitcast=True), result)
    return result.to(tl.uint32, bitcast=True)


@triton.jit
def _round_split(magnitude, word, low, LEVEL: tl.constexpr, MODE: tl.constexpr, MANTISSA: tl.constexpr):
    """Magnitudes rounded at random, at most 7 mantissa bits: an addition in full binades, fixed point below.

    With `LEVEL` there are no full binades. Magnitudes there become the largest integer, which is above the limit too.
    """
    zero = tl.zeros_like(magnitude)
    grains = ((zero + 278 + MANTISSA - low) << 23).to(tl.float32, bitcast=True)
    step = ((zero + low - MANTISSA) << 23).to(tl.float32, bitcast=True)
    below = magnitude < (zero + low) << 23
    small = magnitude if LEVEL else tl.where(below, magnitude, 0).to(tl.uint32)
    fixed = (small.to(tl.float32, bitcast=True) * grains).to(tl.int32).to(tl.uint32, bitcast=True)
    rounded = ((fixed + (word >> 8)) >> 24).to(tl.int32, bitcast=True)
    part = (rounded.to(tl.float32) * step).to(tl.uint32, bitcast=True)
    return part if LEVEL else tl.where(below, part, _round_flat(magnitude, word, MODE, MANTISSA))


@triton.jit
def _round_magnitude(magnitude, negative, word, low, CORE: tl.constexpr, MODE: tl.constexpr, MANTISSA: tl.constexpr):
    """Magnitudes on the grid, limits aside, by the core that the host chose."""
    if CORE == 1:
        return _round_lifted(magnitude, low, False, MODE, MANTISSA)
    elif CORE == 2:
        return _round_lifted(magnitude, low, True, MODE, MANTISSA)
    elif CORE == 3:
        return _round_flat(magnitude, word, MODE, MANTISSA)
    elif CORE == 4:
        return _round_split(magnitude, word, low, False, MODE, MANTISSA)
    elif CORE == 5:
        return _round_split(magnitude, word, low, True, MODE, MANTISSA)
    return _round_general(magnitude, negative, word, low, MODE, MANTISSA)


@triton.jit
def _limit(
    bits, result, max_positive, max_negative, over_positive, over_negative, tiny,
    MODE: tl.constexpr, PLAIN: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
):  # fmt: skip
    """Rounded magnitudes with the format's limits, special numbers and signs put on."""
    magnitude = bits & 0x7FFFFFFF
    sign = bits & 0x80000000
    largest = tl.zeros_like(bits) + max_positive
    over = tl.zeros_like(bits) + over_positive
    if not PLAIN:
        largest = tl.where(sign != 0, max_negative, largest).to(tl.uint32)
        over = tl.where(sign != 0, over_negative, over).to(tl.uint32)
    beyond = over
    if MODE == 2:
        beyond = largest
    elif MODE == 3:
        beyond = tl.where(sign != 0, largest, over)
    elif MODE == 4:
        beyond = tl.where(sign != 0, over, largest)
    result = tl.where(result > largest, beyond, result)
    if MODE >= 2 and MODE <= 4:
        result = tl.where(magnitude == 0x7F800000, over, result)
    result = tl.where(magnitude > 0x7F800000, NAN, result).to(tl.uint32)
    if not PLAIN:
        result = tl.where(result < tiny, 0, result).to(tl.uint32)
        if NEGATIVE_ZERO == 0:
            sign = tl.where(result == 0, 0, sign).to(tl.uint32)
    return result | sign


@triton.jit
def round_bits(
    bits, word,
    CORE: tl.constexpr, MODE: tl.constexpr, PLAIN: tl.constexpr, MANTISSA: tl.constexpr, LOW: tl.constexpr,
    TINY: tl.constexpr, MAX_POSITIVE: tl.constexpr, MAX_NEGATIVE: tl.constexpr, OVER_POSITIVE: tl.constexpr,
    OVER_NEGATIVE: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
):  # fmt: skip
    """float32 bit patterns on a grid (see `Grid` for the parameters)."""
    magnitude = bits & 0x7FFFFFFF
    result = _round_magnitude(magnitude, (bits >> 31) != 0, word, LOW, CORE, MODE, MANTISSA)
    return _limit(
        bits, result, MAX_POSITIVE, MAX_NEGATIVE, OVER_POSITIVE, OVER_NEGATIVE, TINY, MODE, PLAIN, NAN, NEGATIVE_ZERO
    )


@triton.jit
def store(target, bits, inside, IS_EVEN: tl.constexpr = False):
    """Store float32 bits as numbers of the target's type, which holds them."""
    values = bits.to(tl.float32, bitcast=True).to(target.dtype.element_ty)
    if IS_EVEN:
        tl.store(target, values)
    else:
        tl.store(target, values, mask=inside)


@triton.jit
def _round_elements(
    bits, word,
    CORE: tl.constexpr, MODE: tl.constexpr, PLAIN: tl.constexpr, MANTISSA: tl.constexpr, LOW: tl.constexpr,
    TINY: tl.constexpr, MAX_POSITIVE: tl.constexpr, MAX_NEGATIVE: tl.constexpr, OVER_POSITIVE: tl.constexpr,
    OVER_NEGATIVE: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
):  # fmt: skip
    """Each element alone. Random rounding in full binades is one addition; programs that see no others take it."""
    full = False
    if MODE >= 5 and CORE != 3:
        full = tl.min((bits & 0x7FFFFFFF) - 1) >= (LOW << 23) - 1
    if full:
        result = round_bits(
            bits, word, 3, MODE, PLAIN, MANTISSA, LOW, TINY, MAX_POSITIVE, MAX_NEGATIVE, OVER_POSITIVE, OVER_NEGATIVE,
            NAN, NEGATIVE_ZERO,
        )  # fmt: skip
    else:
        result = round_bits(
            bits, word, CORE, MODE, PLAIN, MANTISSA, LOW, TINY, MAX_POSITIVE, MAX_NEGATIVE, OVER_POSITIVE,
            OVER_NEGATIVE, NAN, NEGATIVE_ZERO,
        )  # fmt: skip
    return result


@triton.jit(do_not_specialize=["first", "second"])
def element_kernel(
    source, target, states, count, start, rows, cols, first, second,
    IS_TRANSPOSED: tl.constexpr,
    MASK: tl.constexpr, CORE: tl.constexpr, MODE: tl.constexpr, PLAIN: tl.constexpr, MANTISSA: tl.constexpr,
    LOW: tl.constexpr, TINY: tl.constexpr, MAX_POSITIVE: tl.constexpr, MAX_NEGATIVE: tl.constexpr,
    OVER_POSITIVE: tl.constexpr, OVER_NEGATIVE: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Each element of a tensor alone.

    `IS_TRANSPOSED`: the row-major indices are those of the transposes of stacked matrices of `rows` x `cols`.
    """
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < count
    bits = tl.load(source + offset, mask=inside, other=0).to(tl.uint32, bitcast=True)
    index = offset + start
    if IS_TRANSPOSED:
        row = index // cols
        index = ((row // rows) * cols + index % cols) * rows + row % rows
    word = random_words(index.to(tl.uint32), states, first, second, inside, MASK, MODE)
    result = _round_elements(
        bits, word, CORE, MODE, PLAIN, MANTISSA, LOW, TINY, MAX_POSITIVE, MAX_NEGATIVE, OVER_POSITIVE, OVER_NEGATIVE,
        NAN, NEGATIVE_ZERO,
    )  # fmt: skip
    store(target + offset, result, inside)


@triton.jit
def list_kernel(
    tensors, chunks, keys, states,
    MASK: tl.constexpr, CORE: tl.constexpr, MODE: tl.constexpr, PLAIN: tl.constexpr, MANTISSA: tl.constexpr,
    LOW: tl.constexpr, TINY: tl.constexpr, MAX_POSITIVE: tl.constexpr, MAX_NEGATIVE: tl.constexpr,
    OVER_POSITIVE: tl.constexpr, OVER_NEGATIVE: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Each element of many tensors alone, in place, a chunk of a tensor per program.

    `tensors` has addresses and numbers of elements, `chunks` the tensor and the first element of each program, `keys`
    the two random words of each tensor.
    """
    tensor = tl.load(chunks + 2 * tl.program_id(0))
    offset = tl.load(chunks + 2 * tl.program_id(0) + 1).to(tl.int32) + tl.arange(0, BLOCK)
    words = tl.load(tensors + 2 * tensor).to(tl.pointer_type(tl.float32)) + offset
    inside = offset < tl.load(tensors + 2 * tensor + 1)
    bits = tl.load(words, mask=inside, other=0).to(tl.uint32, bitcast=True)
    first = tl.zeros([1], tl.int32)
    second = first
    if MODE >= 5:
        first = tl.load(keys + 2 * tensor)
        second = tl.load(keys + 2 * tensor + 1)
    word = random_words(offset.to(tl.uint32), states, first, second, inside, MASK, MODE)
    result = _round_elements(
        bits, word, CORE, MODE, PLAIN, MANTISSA, LOW, TINY, MAX_POSITIVE, MAX_NEGATIVE, OVER_POSITIVE, OVER_NEGATIVE,
        NAN, NEGATIVE_ZERO,
    )  # fmt: skip
    store(words, result, inside)


@triton.jit
def _scale_exponent(largest, EMAX: tl.constexpr, BUMP: tl.constexpr):
    """The exponent of a group's scale before the limits, from its largest magnitude."""
    wide = largest.to(tl.float32, bitcast=True).to(tl.float64).to(tl.int64, bitcast=True)
    return ((wide + BUMP) >> 52) - 1023 - EMAX


@triton.jit
def _power_of_two(exponent):
    return ((exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _round_scaled(
    bits, word, lowest,
    AXIS: tl.constexpr, EMAX: tl.constexpr, BUMP: tl.constexpr, HIGHEST: tl.constexpr, FLUSH: tl.constexpr,
    POISON: tl.constexpr,
    MODE: tl.constexpr, MANTISSA: tl.constexpr, LOW: tl.constexpr, TINY: tl.constexpr, MAX_POSITIVE: tl.constexpr,
    MAX_NEGATIVE: tl.constexpr, OVER_POSITIVE: tl.constexpr, OVER_NEGATIVE: tl.constexpr, NAN: tl.constexpr,
    NEGATIVE_ZERO: tl.constexpr,
):  # fmt: skip
    """Groups of any exponent, special numbers among them: brought to scale 1, rounded, and brought back."""
    sign = bits & 0x80000000
    magnitude = bits & 0x7FFFFFFF
    is_nan = magnitude > 0x7F800000
    if POISON:
        clean = magnitude
    else:
        clean = tl.where(is_nan, 0, tl.minimum(magnitude, 0x7F7FFFFF)).to(tl.uint32)
    largest = tl.max(clean, axis=AXIS, keep_dims=True)
    special = largest >= 0x7F800000
    raw = _scale_exponent(tl.where(special, 0, largest).to(tl.uint32), EMAX, BUMP)
    exponent = tl.minimum(tl.maximum(raw, lowest), HIGHEST)
    # Scaling by a power of two is exact in float64, and in float32 except for underflow.
    scaled = (clean.to(tl.float32, bitcast=True).to(tl.float64) * _power_of_two(-exponent)).to(tl.float32)
    unit = scaled.to(tl.uint32, bitcast=True)
    unit = tl.where((unit == 0) & (clean != 0), 1, unit).to(tl.uint32)
    value = round_bits(
        unit | sign, word, 0, MODE, False, MANTISSA, LOW, TINY, MAX_POSITIVE, MAX_NEGATIVE, OVER_POSITIVE,
        OVER_NEGATIVE, NAN, NEGATIVE_ZERO,
    )  # fmt: skip
    if EMAX + HIGHEST >= 127:
        # An element whose scaled value exceeds float32 becomes the largest one whose scaled value does not.
        beyond = _power_of_two(128 - exponent).to(tl.float32).to(tl.uint32, bitcast=True)
        most = round_bits(
            beyond - 1, beyond, 0, 2, False, MANTISSA, LOW, TINY, MAX_POSITIVE, MAX_NEGATIVE, OVER_POSITIVE,
            OVER_NEGATIVE, NAN, NEGATIVE_ZERO,
        )  # fmt: skip
        value = tl.where((value & 0x7FFFFFFF) >= beyond, most | sign, value).to(tl.uint32)
    back = (value.to(tl.float32, bitcast=True).to(tl.float64) * _power_of_two(exponent)).to(tl.float32)
    result = back.to(tl.uint32, bitcast=True)
    if FLUSH:
        result = tl.where(raw < lowest, sign, result).to(tl.uint32)
    if POISON:
        return tl.where(special, 0x7FC00000, result).to(tl.uint32)
    return tl.where(is_nan, 0, result).to(tl.uint32)


@triton.jit
def tile_offsets(
    tiles, rows, cols,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr, LAYOUT: tl.constexpr, IS_TRANSPOSED: tl.constexpr,
    IS_WIDE: tl.constexpr, GROUPS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Offsets of the elements of a program's groups, their row-major indices, which of them exist; of groups, the line
    and the number in the tensor, from 0, and which exist.

    The tensor is a stack of matrices of `rows` x `cols`, in tiles. `LAYOUT` 0: tiles lie one after another in memory, a
    group per row of the result; 1: tiles of any shape, likewise; 2: the same, side by side in one band of the matrix;
    3: tiles of one column, a group per column of the result. `IS_TRANSPOSED`: indices are those of the transposed
    matrices. `MEMBERS` is the size of a tile, rounded up to a power of two. Programs run from the end of the tensor,
    which an earlier pass has left in the cache.
    """
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    if IS_WIDE:
        program = program.to(tl.int64)
    across = (cols + TILE_COLS - 1) // TILE_COLS
    down = (rows + TILE_ROWS - 1) // TILE_ROWS
    if LAYOUT <= 1:
        tile = (program * GROUPS + tl.arange(0, GROUPS))[:, None]
        exists = tile < tiles
        line = tile // across
        tile_col = tile % across
    else:
        strips = (across + GROUPS - 1) // GROUPS
        line = program // strips
        tile_col = program % strips * GROUPS + tl.arange(0, GROUPS)
        tile_col = tile_col[None, :] if LAYOUT == 3 else tile_col[:, None]
        exists = tile_col < across
    matrix = line // down
    member = tl.arange(0, MEMBERS)[:, None] if LAYOUT == 3 else tl.arange(0, MEMBERS)[None, :]
    row = line % down * TILE_ROWS + member // TILE_COLS
    col = tile_col * TILE_COLS + member % TILE_COLS
    inside = exists & (member < TILE_ROWS * TILE_COLS) & (row < rows) & (col < cols)
    offset = (matrix * rows + row) * cols + col
    group = line * across + tile_col
    if LAYOUT == 3:
        line = matrix * cols + tile_col
    if LAYOUT == 0:
        inside = exists & (member < TILE_ROWS * TILE_COLS)
        offset = tile * (TILE_ROWS * TILE_COLS) + member
    index = offset
    if IS_TRANSPOSED:
        index = (matrix * cols + col) * rows + row
    return offset, index.to(tl.uint32), inside, line, group, exists


@triton.jit
def load(source, offset, inside, IS_EVEN: tl.constexpr):
    """The bits of elements; with `IS_EVEN` all of them exist."""
    if IS_EVEN:
        return tl.load(source + offset).to(tl.uint32, bitcast=True)
    return tl.load(source + offset, mask=inside, other=0).to(tl.uint32, bitcast=True)


@triton.jit(do_not_specialize=["first", "second"])
def block_kernel(
    source, target, states, top, tiles, rows, cols, first, second,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr, LAYOUT: tl.constexpr, IS_TRANSPOSED: tl.constexpr,
    IS_WIDE: tl.constexpr, IS_EVEN: tl.constexpr, EMAX: tl.constexpr, BUMP: tl.constexpr, LOWEST: tl.constexpr,
    HIGHEST: tl.constexpr, WINDOW: tl.constexpr, FLUSH: tl.constexpr, POISON: tl.constexpr, FIRST_FAST: tl.constexpr,
    LAST_FAST: tl.constexpr,
    MASK: tl.constexpr, CORE: tl.constexpr, MODE: tl.constexpr, PLAIN: tl.constexpr, MANTISSA: tl.constexpr,
    LOW: tl.constexpr, TINY: tl.constexpr, MAX_POSITIVE: tl.constexpr, MAX_NEGATIVE: tl.constexpr,
    OVER_POSITIVE: tl.constexpr, OVER_NEGATIVE: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
    GROUPS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Groups of a stack of matrices (see `tile_offsets`), each with a power of two as its scale.

    With a `WINDOW`, the lowest exponent follows from the tensor's largest magnitude, whose bits `top` holds.
    """
    AXIS: tl.constexpr = 0 if LAYOUT == 3 else 1
    offset, index, inside, _, _, _ = tile_offsets(
        tiles, rows, cols, TILE_ROWS, TILE_COLS, LAYOUT, IS_TRANSPOSED, IS_WIDE, GROUPS, MEMBERS
    )
    bits = load(source, offset, inside, IS_EVEN)
    lowest = LOWEST
    if WINDOW > 0:
        most = tl.minimum(tl.load(top), 0x7F7FFFFF).to(tl.uint32, bitcast=True)
        lowest = tl.maximum(_scale_exponent(most, EMAX, BUMP).to(tl.int32) - WINDOW, LOWEST)
    magnitude = bits & 0x7FFFFFFF
    # Most groups need no scaling: the grid itself is moved to their exponent.
    largest = tl.max(magnitude, axis=AXIS, keep_dims=True)
    moved = ((largest + (BUMP >> 29)) >> 23).to(tl.int32) - 127 - EMAX
    exponent = tl.where(largest == 0, 0, tl.minimum(tl.maximum(moved, lowest), HIGHEST))
    fast = (exponent >= FIRST_FAST) & (exponent <= LAST_FAST) & (largest < 0x7F800000)
    fast = fast & ((largest >= 0x00800000) | (largest == 0))
    if FLUSH:
        fast = fast & ((moved >= lowest) | (largest == 0))
    # Not sooner, or the words of all elements would wait in registers.
    word = random_words(index, states, first, second, inside, MASK, MODE)
    if tl.min(fast.to(tl.int32)) == 1:
        shift = (exponent << 23).to(tl.uint32, bitcast=True)
        low = (LOW + exponent).to(tl.uint32, bitcast=True)
        result = _round_magnitude(magnitude, (bits >> 31) != 0, word, low, CORE, MODE, MANTISSA)
        tiny = TINY + shift if TINY > 0 else shift * 0
        positive, negative = MAX_POSITIVE + shift, MAX_NEGATIVE + shift
        result = _limit(
            bits, result, positive, negative, positive, negative, tiny, MODE, PLAIN, NAN, NEGATIVE_ZERO
        )  # fmt: skip
    else:
        result = _round_scaled(
            bits, word, lowest, AXIS, EMAX, BUMP, HIGHEST, FLUSH, POISON, MODE, MANTISSA, LOW, TINY, MAX_POSITIVE,
            MAX_NEGATIVE, OVER_POSITIVE, OVER_NEGATIVE, NAN, NEGATIVE_ZERO,
        )  # fmt: skip
    store(target + offset, result, inside, IS_EVEN)


@triton.jit
def _magnitudes(source, offset, inside, LIMIT: tl.constexpr):
    """Magnitudes as bits; those from `LIMIT` on count as 0."""
    magnitude = tl.load(source + offset, mask=inside, other=0).to(tl.uint32, bitcast=True) & 0x7FFFFFFF
    if LIMIT <= 0x7FFFFFFF:
        magnitude = tl.where(magnitude >= LIMIT, 0, magnitude).to(tl.uint32)
    return magnitude


@triton.jit
def largest_kernel(source, into, length, parts, turns, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """The largest magnitude of each line, in `parts` programs; line l counts for number l modulo `turns`."""
    line = tl.program_id(0) // parts
    begin = line.to(tl.int64) * length
    most = tl.zeros([BLOCK], tl.uint32)
    for start in range(tl.program_id(0) % parts * BLOCK, length, parts * BLOCK):
        column = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, _magnitudes(source + begin, column, column < length, LIMIT))
    tl.atomic_max(into + line % turns, tl.max(most, axis=0).to(tl.int32, bitcast=True))


@triton.jit
def largest_column_kernel(source, into, rows, cols, parts, LIMIT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The largest magnitude of each column of stacked matrices, in `parts` programs per strip of columns."""
    across = (cols + COLS - 1) // COLS
    strip = tl.program_id(0) % across
    band = tl.program_id(0) // across
    matrix = (band // parts).to(tl.int64)
    col = strip * COLS + tl.arange(0, COLS)[None, :]
    most = tl.zeros([ROWS, COLS], tl.uint32)
    for start in range(band % parts * ROWS, rows, parts * ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        offset = (matrix * rows + row) * cols + col
        most = tl.maximum(most, _magnitudes(source, offset, (row < rows) & (col < cols), LIMIT))
    largest = tl.max(most, axis=0, keep_dims=True).to(tl.int32, bitcast=True)
    tl.atomic_max(into + matrix * cols + col, largest, mask=col < cols)
