"""A user's functions on codes, over whole tensors: compiled by Numba, or tabulated up to 8 bits."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.base.errors import FormatError
from presilicon.formats.user import UserFormat


@lru_cache(maxsize=64)
def user_function(fmt: UserFormat, name: str) -> Callable[..., Any]:
    """A function of the format, compiled where Numba is installed; the caller may be compiled code."""
    function = getattr(fmt, name)
    if function is None:
        raise FormatError(f"{fmt}: it has no function `{name}`; give one, as UserFormat(..., {name}=...)")
    try:
        import numba
    except ImportError:
        return function  # type: ignore[no-any-return]
    return function if hasattr(function, "py_func") else numba.njit(nogil=True)(function)  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _loop(fmt: UserFormat, name: str) -> Callable[[Any, Any], None]:
    function = user_function(fmt, name)

    def loop(source: Any, target: Any) -> None:
        for i in range(source.size):
            target[i] = function(source[i])

    if not hasattr(function, "py_func"):
        return loop
    import numba

    return numba.njit(nogil=True)(loop)  # type: ignore[no-any-return]


def user_codes(x: Tensor, fmt: UserFormat) -> Tensor:
    """The codes that the user's `convert` gives for `x` (float64), as int64.

    Raises `FormatError` where a code does not fit the fields.
    """
    source = x.detach().cpu().contiguous().view(-1).numpy()
    target = np.empty(source.shape, dtype=np.int64)
    _loop(fmt, "convert")(source, target)
    if target.size and (target.min() < 0 or target.max() >= 1 << fmt.bits):
        wrong = int(target[(target < 0) | (target >= 1 << fmt.bits)][0])
        raise FormatError(f"{fmt}: convert gave the code {wrong}, outside 0 to {(1 << fmt.bits) - 1}")
    return torch.from_numpy(target).view(x.shape).to(x.device)


def user_values(codes: Tensor, fmt: UserFormat) -> Tensor:
    """The values that the user's `as_float` gives for codes (int64), as float64 that hold float32 numbers."""
    if fmt.bits <= 16:
        return _values(fmt).to(codes.device)[codes]
    source = codes.detach().cpu().contiguous().view(-1).numpy()
    target = np.empty(source.shape, dtype=np.float64)
    _loop(fmt, "as_float")(source, target)
    return torch.from_numpy(target).view(codes.shape).to(codes.device).float().double()


@lru_cache(maxsize=16)
def _values(fmt: UserFormat) -> Tensor:
    values = [float(fmt.as_float(code)) for code in range(1 << fmt.bits)]
    return torch.tensor(values, dtype=torch.float64).float().double()


@lru_cache(maxsize=16)
def operation_table(fmt: UserFormat, name: str) -> Any:
    """All results of `add`, `mul` (codes x codes) or `log` (codes) as an array of codes, for up to 8 bits.

    >>> def as_float(code):
    ...     return float(code)
    >>> def mul(a, b):
    ...     return min(a * b, 7)
    >>> fmt = UserFormat("tiny", (("m", 3),), as_float, mul=mul)
    >>> operation_table(fmt, "mul")[2].tolist()
    [0, 2, 4, 6, 7, 7, 7, 7]

    Raises `FormatError` above 8 bits: use `user_function`, which compiles.
    """
    if fmt.bits > 8:
        raise FormatError(f"{fmt}: tables are for up to 8 bits, this format has {fmt.bits}")
    function = user_function(fmt, name)
    codes = range(1 << fmt.bits)
    results = [function(a) for a in codes] if name == "log" else [[function(a, b) for b in codes] for a in codes]
    table = np.array(results, dtype=np.int64)
    if table.min() < 0 or table.max() >= 1 << fmt.bits:
        raise FormatError(f"{fmt}: {name} gives codes outside 0 to {(1 << fmt.bits) - 1}")
    return table.astype(np.uint8)
