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
    """Division of whole numbers, rounded down."""
    quotient = a // b
    rest = a - quotient * b
    return quotient - ((rest != 0) & ((rest < 0) != (b < 0))).to(tl.int32)


@triton.jit
def modulo(a, b):
    """The rest of a division that is rounded down."""
    return a - floordiv(a, b) * b


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
