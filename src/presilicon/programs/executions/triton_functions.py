"""Functions that generated Triton kernels call."""

import triton
import triton.language as tl


@triton.jit
def divide(a, b, T: tl.constexpr):
    """a / b, correctly rounded."""
    if tl.float32 == T:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def root(a, T: tl.constexpr):
    """The square root, correctly rounded."""
    if tl.float32 == T:
        return tl.sqrt_rn(a)
    else:
        return tl.sqrt(a)


@triton.jit
def floordiv(a, b):
    """Division of whole numbers, rounded down; 0 where it is one by 0."""
    divisor = tl.where(b == 0, 1, b)
    quotient = tl.where(b == 0, 0, a // divisor)
    rest = tl.where(b == 0, 0, a - quotient * b)
    return quotient - ((rest != 0) & ((rest < 0) != (b < 0))).to(tl.int32)


@triton.jit
def modulo(a, b):
    """The rest of a division that is rounded down; 0 where it is one by 0."""
    return tl.where(b == 0, 0, a - floordiv(a, b) * b)


@triton.jit
def tanh(x):
    """Its series near 0, where the exponentials cancel."""
    size = tl.abs(x)
    power = tl.exp(-2 * size)
    square = x * x
    near = x * (1 + square * (-1 / 3 + square * (2 / 15 - square * 17 / 315)))
    far = (1 - power) / (1 + power)
    return tl.where(size < 0.04, near, tl.where(x < 0, -far, far))


@triton.jit
def look_up(table, x, LAST: tl.constexpr):
    """An entry by position, cut off to a whole number and kept inside; the first for a NaN."""
    position = tl.where(x > 0, tl.where(x >= LAST, LAST, x), 0).to(tl.int64)
    return tl.load(table + position)


@triton.jit
def locate(table, x, COUNT: tl.constexpr):
    """Number of bounds that are at most `x`; 0 for a NaN."""
    counted = x * 0
    counted = tl.where(counted == counted, counted, 0)
    for place in range(COUNT):
        counted += tl.where(x >= tl.load(table + place), 1.0, 0.0).to(x.dtype)
    return counted


@triton.jit
def multiply(a, b):
    """A product, for a reduction."""
    return a * b


@triton.jit
def _quotient(a, b, T: tl.constexpr):
    quotient = tl.floor(divide(a, b, T))
    rest = tl.fma(-quotient, b, a)  # exact, so that a rounded quotient is noticed
    below = (rest != 0) & ((rest < 0) != (b < 0))
    above = (below == 0) & (tl.abs(rest) >= tl.abs(b))
    return tl.where(below, quotient - 1, tl.where(above, quotient + 1, quotient))


@triton.jit
def divide_down(a, b, T: tl.constexpr):
    """Division of numbers, rounded down."""
    whole = _quotient(a, b, T)
    return tl.where(whole == whole, whole, tl.floor(divide(a, b, T)))


@triton.jit
def remainder(a, b, T: tl.constexpr):
    """The rest of a division of numbers that is rounded down."""
    return tl.fma(-_quotient(a, b, T), b, a)


@triton.jit
def whole(x):
    """A number cut off to a whole one; -2^63 for NaN and for numbers that 64 bits do not hold."""
    return tl.where(tl.abs(x) < 9223372036854775808.0, x, -9223372036854775808.0).to(tl.int64)


@triton.jit
def element(table, index, condition, SIZE: tl.constexpr, T: tl.constexpr):
    """An entry of a table by its index, as Python has it; 0 outside, and where it is not needed."""
    place = tl.where(index < 0, index + SIZE, index)
    inside = (place >= 0) & (place < SIZE) & condition
    return tl.load(table + place, mask=inside, other=0).to(T)


@triton.jit
def _power(n):
    return ((n + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def scale(x, exponent, T: tl.constexpr):
    """x times 2 to the power of a whole number, in three steps, of which only the last one rounds."""
    n = tl.where(exponent == exponent, exponent, 0).to(tl.float64)
    n = tl.minimum(tl.maximum(n, -2200.0), 2200.0).to(tl.int64)
    third = n // 3
    scaled = x.to(tl.float64) * _power(third) * _power(third) * _power(n - 2 * third)
    return tl.where(exponent == exponent, scaled, exponent.to(tl.float64)).to(T)


@triton.jit
def exponent(x):
    """The exponent of `math.frexp`; 0 for 0, infinities and NaN."""
    wide = x.to(tl.float64)
    field = (wide.to(tl.int64, bitcast=True) >> 52) & 2047
    small = ((wide * 18014398509481984.0).to(tl.int64, bitcast=True) >> 52) & 2047
    found = tl.where(field == 0, small - 1076, field - 1022)
    return tl.where((field == 2047) | (wide == 0.0), 0, found)


@triton.jit
def fraction(x, T: tl.constexpr):
    """The fraction of `math.frexp`."""
    wide = x.to(tl.float64)
    field = (wide.to(tl.int64, bitcast=True) >> 52) & 2047
    normal = tl.where(field == 0, wide * 18014398509481984.0, wide)
    bits = (normal.to(tl.int64, bitcast=True) & ~(2047 << 52)) | (1022 << 52)
    found = bits.to(tl.float64, bitcast=True)
    return tl.where((field == 2047) | (wide == 0.0), wide, found).to(T)


@triton.jit
def copysign(size, sign):
    """A size with the sign of another number."""
    is_negative = sign.to(tl.float64).to(tl.int64, bitcast=True) < 0
    return tl.where(is_negative, -tl.abs(size), tl.abs(size))
