"""Functions that compiled operators call, beside those of the C library: searches, and polynomials in float32.

The polynomials have no branches, so that loops over them use vector instructions. They are within two units in the last
place; that of `erf` within six.
"""

import math
import platform
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np

VERSION = sha256(Path(__file__).read_bytes()).hexdigest()
"""Cached code is made again where this file has changed."""
_compiled = numba.njit(nogil=True, error_model="numpy", cache=True)
__all__ = [
    "erf32", "exp32", "exp232", "exponent", "fraction", "greater", "locate", "plus", "scale", "smaller",
    "tanh32", "whole", "with_sign",
]  # fmt: skip


if platform.machine() in ("x86_64", "AMD64"):

    @_compiled
    def whole(x: Any) -> Any:
        """A number cut off to a whole one; -2^63 for NaN and what 64 bits do not hold, as these processors have it."""
        return np.int64(x)

else:

    @_compiled
    def whole(x: Any) -> Any:
        """A number cut off to a whole one; -2^63 for NaN and what 64 bits do not hold."""
        return np.int64(x) if abs(x) < 9223372036854775808.0 else np.int64(-(2**63))


@_compiled
def _bits(x: Any) -> Any:
    """The bits of a float64."""
    return np.float64(x).view(np.int64)


@_compiled
def _number(bits: Any) -> Any:
    """The float64 with these bits."""
    return np.int64(bits).view(np.float64)


@_compiled
def scale(x: Any, exponent: Any) -> Any:
    """x times 2 to the power of a whole number."""
    if exponent != exponent:
        return np.float64(x) * exponent
    n = np.int64(min(max(exponent, -2200.0), 2200.0))
    if -1022 <= n <= 1023:
        return np.float64(x) * _number((n + 1023) << 52)
    return math.ldexp(np.float64(x), n)


@_compiled
def with_sign(size: Any, sign: Any) -> Any:
    """A size with the sign of another number: `math.copysign` is a call of the C library."""
    return _number((_bits(size) & (2**63 - 1)) | (_bits(sign) & -(2**63)))


@_compiled
def _field(x: Any) -> Any:
    """The exponent of a float64 as it is stored."""
    return (_bits(x) >> 52) & 2047


@_compiled
def exponent(x: Any) -> Any:
    """The exponent of `math.frexp`; 0 for 0, infinities and NaN."""
    wide = np.float64(x)
    field, small = _field(wide), _field(wide * 18014398509481984.0)
    found = small - 1076 if field == 0 else field - 1022
    return 0 if field == 2047 or wide == 0.0 else found


@_compiled
def fraction(x: Any) -> Any:
    """The fraction of `math.frexp`."""
    wide = np.float64(x)
    field = _field(wide)
    normal = wide * 18014398509481984.0 if field == 0 else wide
    found = _number((_bits(normal) & ~(2047 << 52)) | (1022 << 52))
    return wide if field == 2047 or wide == 0.0 else found


@_compiled
def locate(bounds: Any, x: Any) -> Any:
    """Number of bounds that are at most `x`; 0 for a NaN."""
    low, high = 0, bounds.size
    if x != x:
        return 0
    while low < high:
        middle = (low + high) // 2
        if x < bounds[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@_compiled
def power_of_two(k: Any) -> Any:
    """2 to the power of a whole float32 from -126 to 127."""
    return np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)


@_compiled
def exp32(x: Any) -> Any:
    """Cephes' polynomial; results below the normal numbers of float32 are 0."""
    c = np.float32(89.0) if x > np.float32(89.0) else x
    c = np.float32(-87.0) if c < np.float32(-87.0) else c
    k = np.floor(c * np.float32(1.44269504088896341) + np.float32(0.5))
    r = (c - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    y = (p * r * r + r) + np.float32(1.0)
    # One power of two goes with the fraction: the largest results have an exponent of 128.
    y = (y + y) * power_of_two(k - np.float32(1.0))
    return np.float32(0.0) if x < np.float32(-87.0) else y


@_compiled
def exp232(x: Any) -> Any:
    """The exponential of the fraction, times the power of the whole part; below the normal numbers 0."""
    c = np.float32(129.0) if x > np.float32(129.0) else x
    c = np.float32(-125.0) if c < np.float32(-125.0) else c
    k = np.floor(c)
    y = exp32((c - k) * np.float32(0.6931471805599453))
    y = (y + y) * power_of_two(k - np.float32(1.0))
    return np.float32(0.0) if x < np.float32(-125.0) else y


@_compiled
def tanh32(x: Any) -> Any:
    """Cephes' polynomial near 0, and exponentials."""
    size = abs(x)
    z = x * x
    p = np.float32(-5.70498872745e-3)
    p = p * z + np.float32(2.06390887954e-2)
    p = p * z + np.float32(-5.37397155531e-2)
    p = p * z + np.float32(1.33314422036e-1)
    p = p * z + np.float32(-3.33332819422e-1)
    near = p * z * x + x
    t = exp32(np.float32(-2.0) * size)
    far = (np.float32(1.0) - t) / (np.float32(1.0) + t)
    far = -far if x < np.float32(0.0) else far
    return near if size < np.float32(0.625) else far


@_compiled
def erf32(x: Any) -> Any:
    """Eigen's rational function."""
    c = np.float32(4.0) if x > np.float32(4.0) else x
    c = np.float32(-4.0) if c < np.float32(-4.0) else c
    z = c * c
    p = np.float32(-2.72614225801306e-10)
    p = p * z + np.float32(2.77068142495902e-08)
    p = p * z + np.float32(-2.10102402082508e-06)
    p = p * z + np.float32(-5.69250639462346e-05)
    p = p * z + np.float32(-7.34990630326855e-04)
    p = p * z + np.float32(-2.95459980854025e-03)
    p = p * z + np.float32(-1.60960333262415e-02)
    q = np.float32(-1.45660718464996e-05)
    q = q * z + np.float32(-2.13374055278905e-04)
    q = q * z + np.float32(-1.68282697438203e-03)
    q = q * z + np.float32(-7.37332916720468e-03)
    q = q * z + np.float32(-1.42647390514189e-02)
    return c * p / q


@numba.njit(nogil=True, cache=True, fastmath={"reassoc"})
def plus(total: Any, term: Any) -> Any:
    """A term of a sum, whose terms may be added in any order: in vectors. Nothing else is reordered."""
    return total + term


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def greater(best: Any, value: Any) -> Any:
    """The greater number, in any order."""
    return value if value > best else best


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def smaller(best: Any, value: Any) -> Any:
    """The smaller number, in any order."""
    return value if value < best else best
