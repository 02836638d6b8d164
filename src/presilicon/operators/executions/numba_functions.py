"""Functions that compiled operators call: those of the C library in float64, and polynomials in float32.

The polynomials have no branches, so that loops over them use vector instructions, and are within two units in the last
place.
"""

import math
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np

VERSION = sha256(Path(__file__).read_bytes()).hexdigest()
"""Cached code is made again where this file has changed."""
_compiled = numba.njit(nogil=True, error_model="numpy", cache=True)
__all__ = [
    "cos",
    "cos32",
    "erf",
    "erf32",
    "exp",
    "exp2",
    "exp32",
    "exp232",
    "locate",
    "log",
    "log32",
    "sin",
    "sin32",
    "tanh",
    "tanh32",
    "whole",
]  # fmt: skip


@_compiled
def whole(x: Any) -> Any:
    """A number cut off to a whole one; -1 for NaN and for numbers beyond all indices."""
    return np.int64(x) if abs(x) < 1e18 else np.int64(-1)


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
def exp(x: Any) -> Any:
    return math.exp(x)


@_compiled
def exp2(x: Any) -> Any:
    return math.pow(2.0, x)


@_compiled
def log(x: Any) -> Any:
    return np.log(x)


@_compiled
def tanh(x: Any) -> Any:
    return math.tanh(x)


@_compiled
def erf(x: Any) -> Any:
    return math.erf(x)


@_compiled
def sin(x: Any) -> Any:
    return np.sin(x)


@_compiled
def cos(x: Any) -> Any:
    return np.cos(x)


@_compiled
def exp32(x: Any) -> Any:
    return np.float32(math.exp(x))


@_compiled
def exp232(x: Any) -> Any:
    return np.float32(math.pow(2.0, np.float64(x)))


@_compiled
def log32(x: Any) -> Any:
    return np.log(x)


@_compiled
def tanh32(x: Any) -> Any:
    return np.float32(math.tanh(x))


@_compiled
def erf32(x: Any) -> Any:
    return np.float32(math.erf(x))


@_compiled
def sin32(x: Any) -> Any:
    return np.sin(x)


@_compiled
def cos32(x: Any) -> Any:
    return np.cos(x)
