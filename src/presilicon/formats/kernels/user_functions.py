"""A user's functions on codes, over whole tensors: compiled by Numba, or tabulated up to 8 bits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.base import FormatError
from presilicon.formats.families.user import UserFormat


@lru_cache(maxsize=64)
def user_function(fmt: UserFormat, name: str) -> Callable[..., Any]:
    """A function of the format, compiled if Numba is installed, so that compiled code can call it."""
    function = getattr(fmt, name)
    if function is None:
        raise FormatError(f"{fmt} has no function `{name}`; give one, as UserFormat(..., {name}=...)")
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


@contextmanager
def naming(fmt: UserFormat, name: str) -> Iterator[None]:
    """Turns any exception of a user's function into one line with the names of the format and the function."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), "no message")
        raise FormatError(f"{fmt}: `{name}` fails with {type(error).__name__}: {line}") from error


def all_values(fmt: UserFormat) -> Any:
    """The values of all codes of a format of up to 16 bits, as float64 that hold float32 numbers."""
    with naming(fmt, "as_float"), np.errstate(over="ignore"):
        values: list[Any] = [fmt.as_float(code) for code in range(1 << fmt.bits)]
        wrong = next((value for value in values if isinstance(value, str)), None)
        if wrong is not None:
            raise FormatError(f"{fmt}: `as_float` must give numbers, not {wrong!r}")
        return np.array([float(value) for value in values], dtype=np.float64).astype(np.float32).astype(np.float64)


def user_codes(x: Tensor, fmt: UserFormat) -> Tensor:
    """The codes that the user's `convert` gives for `x` (float64), as int64.

    Raises `FormatError` where a code does not fit the fields.
    """
    source = x.detach().cpu().contiguous().view(-1).numpy()
    target = np.empty(source.shape, dtype=np.int64)
    with naming(fmt, "convert"):
        _loop(fmt, "convert")(source, target)
    if target.size and (target.min() < 0 or target.max() >= 1 << fmt.bits):
        wrong = int(target[(target < 0) | (target >= 1 << fmt.bits)][0])
        raise FormatError(f"{fmt}: `convert` must give codes from 0 to {(1 << fmt.bits) - 1}, not the code {wrong}")
    return torch.from_numpy(target).view(x.shape).to(x.device)


def user_values(codes: Tensor, fmt: UserFormat) -> Tensor:
    """The values that the user's `as_float` gives for codes (int64), as float64 that hold float32 numbers."""
    if fmt.bits <= 16:
        return _values(fmt).to(codes.device)[codes]
    source = codes.detach().cpu().contiguous().view(-1).numpy()
    target = np.empty(source.shape, dtype=np.float64)
    with naming(fmt, "as_float"):
        _loop(fmt, "as_float")(source, target)
    return torch.from_numpy(target).view(codes.shape).to(codes.device).float().double()


@lru_cache(maxsize=16)
def _values(fmt: UserFormat) -> Tensor:
    return torch.from_numpy(all_values(fmt))


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
        raise FormatError(f"{fmt}: only formats of at most 8 bits have tables, not {fmt.bits}")
    function = user_function(fmt, name)
    codes = range(1 << fmt.bits)
    with naming(fmt, name):
        results = [function(a) for a in codes] if name == "log" else [[function(a, b) for b in codes] for a in codes]
        table = np.array(results, dtype=np.int64)
    if table.min() < 0 or table.max() >= 1 << fmt.bits:
        raise FormatError(f"{fmt}: `{name}` must give codes from 0 to {(1 << fmt.bits) - 1}")
    return table.astype(np.uint8)


def user_log(x: Tensor, fmt: UserFormat) -> Tensor:
    """`UserFormat.logarithm`."""
    from presilicon.formats.codes import encode

    codes = encode(x, fmt)
    assert isinstance(codes, Tensor)
    source = codes.cpu().to(torch.int64).contiguous().view(-1).numpy()
    target = np.empty(source.shape, dtype=np.int64)
    loop = _loop(fmt, "log")
    with naming(fmt, "log"):
        loop(source, target)
    if target.size and (target.min() < 0 or target.max() >= 1 << fmt.bits):
        raise FormatError(f"{fmt}: `log` must give codes from 0 to {(1 << fmt.bits) - 1}")
    return user_values(torch.from_numpy(target).view(x.shape).to(x.device), fmt).float()
