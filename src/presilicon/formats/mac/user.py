"""Matrix products with a user's own arithmetic on codes.

A unit whose `accumulate` is a `UserFormat` works on that format's codes from end to end: its operands are converted to
codes, each multiply-add is the user's `mad`, or `mul` and then `add`, and the result is the value of the last code. A
unit whose `multiply` alone is one has the user's multiplier and a float32 adder: a product is the value of `mul`.

Up to 8 bits `mul` and `add` are tables; wider ones, and `mad`, are compiled.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from presilicon.base import FormatError
from presilicon.formats.codes import encode
from presilicon.formats.families.user import UserFormat
from presilicon.formats.kernels.passes import has_numba
from presilicon.formats.kernels.user_functions import operation_table, user_function, user_values
from presilicon.formats.mac.unit import FLOAT32, MacUnit

_ORDERS = ("sequential", "chunked", "systolic")


def check_user(mac: MacUnit) -> None:
    """Raise `FormatError` for a unit that user-defined arithmetic cannot be."""
    adder = mac.accumulate.arithmetic
    multiplier = None if mac.multiply is None else mac.multiply.arithmetic
    if adder is not None:
        _check_adder(mac, adder)
    elif multiplier is None or mac.accumulate != FLOAT32:
        raise FormatError(f"accumulate must be float32 or {mac.multiply} with multiply={mac.multiply}")
    elif multiplier.mul is None:
        raise FormatError(f"multiply={multiplier} must have a `mul`; give one, as UserFormat(..., mul=...)")
    if mac.order not in _ORDERS or mac.width != 1:
        allowed = f"order must be one of {', '.join(_ORDERS)}, with width 1"
        raise FormatError(f"{allowed}, for the arithmetic of {multiplier or adder}, not {mac.order} with {mac.width}")
    if mac.partial is not None or mac.rounding != "nearest-even":
        raise FormatError(f"partial and rounding must be left out: {multiplier or adder} rounds by its own functions")


def _check_adder(mac: MacUnit, adder: UserFormat) -> None:
    if adder.add is None:
        raise FormatError(f"accumulate={adder} must have an `add`; give one, as UserFormat(..., add=...)")
    if adder.mad is None and adder.mul is None:
        raise FormatError(f"accumulate={adder} must have a `mad` or a `mul`")
    if mac.multiply not in (None, adder):
        raise FormatError(f"multiply must be left out with accumulate={adder}, not {mac.multiply}")
    if mac.fused and adder.mad is None:
        raise FormatError(f"fused=true needs the `mad` of {adder}; give one, as UserFormat(..., mad=...)")
    if not _is_fused(mac) and adder.mul is None:
        raise FormatError(f"a unit that rounds its products needs the `mul` of {adder}")


def _is_fused(mac: MacUnit) -> bool:
    """Whether a product enters its sum through `mad`: if there is one, unless products are to be rounded first."""
    adder = mac.accumulate.arithmetic
    return adder is not None and adder.mad is not None and mac.multiply is None and mac.fused is not False


def multiply_codes(a: Tensor, b: Tensor, mac: MacUnit) -> Tensor:
    """The product of (batch, M, K) and (batch, K, N), as float32."""
    size = (mac.rows if mac.order == "systolic" else mac.chunk) or max(a.shape[-1], 1)
    adder = mac.accumulate.arithmetic
    fmt = adder if adder is not None or mac.multiply is None else mac.multiply.arithmetic
    assert fmt is not None
    left, right = _codes(a, fmt), _codes(b, fmt)
    if adder is None:
        return _add_values(left, right, fmt, size)
    zero = int(_codes(torch.zeros(1), fmt))
    if has_numba() and a.device.type == "cpu":
        out = _add_codes_compiled(left, right, fmt, size, zero, _is_fused(mac))
    elif not _is_fused(mac) and fmt.bits <= 8:
        out = _add_codes(left, right, fmt, size, zero)
    else:
        raise FormatError(
            f"{fmt}: this arithmetic needs Numba and tensors on the CPU; only `mul` and `add` up to 8 bits have tables"
        )
    return user_values(out, fmt).float()


def _codes(x: Tensor, fmt: UserFormat) -> Tensor:
    codes = encode(x, fmt)
    assert isinstance(codes, Tensor)
    return codes.to(torch.int64)


def _table(fmt: UserFormat, name: str, device: torch.device) -> Tensor:
    return torch.from_numpy(operation_table(fmt, name)).to(device=device, dtype=torch.int64)


def _add_codes(a: Tensor, b: Tensor, fmt: UserFormat, size: int, zero: int) -> Tensor:
    """All outputs at once, one step of the reduction after another, by tables."""
    mul, add = _table(fmt, "mul", a.device), _table(fmt, "add", a.device)
    total: Tensor | None = None
    for begin in range(0, a.shape[-1], size):
        part = torch.full((a.shape[0], a.shape[1], b.shape[2]), zero, dtype=torch.int64, device=a.device)
        for k in range(begin, min(begin + size, a.shape[-1])):
            part = add[part, mul[a[:, :, k, None], b[:, None, k, :]]]
        total = part if total is None else add[total, part]
    return torch.full((a.shape[0], a.shape[1], b.shape[2]), zero, device=a.device) if total is None else total


def _add_values(a: Tensor, b: Tensor, fmt: UserFormat, size: int) -> Tensor:
    """Products by the user's `mul`, added in float32, chunk by chunk."""
    multiply = _multiplier(fmt, a.device)
    total = torch.zeros((a.shape[0], a.shape[1], b.shape[2]), device=a.device)
    for number, begin in enumerate(range(0, a.shape[-1], size)):
        part = torch.zeros_like(total)
        for k in range(begin, min(begin + size, a.shape[-1])):
            part += multiply(a[:, :, k, None], b[:, None, k, :])
        total = part if number == 0 else total + part
    return total


def _multiplier(fmt: UserFormat, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    if fmt.bits <= 8:
        values = user_values(_table(fmt, "mul", device), fmt).float()
        return lambda x, y: values[x, y]
    vectorized = _pairwise(fmt, "mul")

    def multiply(x: Tensor, y: Tensor) -> Tensor:
        shape = (x.shape[0], x.shape[1], y.shape[2])
        left, right = x.expand(shape), y.expand(shape)
        codes = torch.empty(left.shape, dtype=torch.int64)
        vectorized(left.contiguous().view(-1).numpy(), right.contiguous().view(-1).numpy(), codes.view(-1).numpy())
        outside = codes[(codes < 0) | (codes >= 1 << fmt.bits)]
        _check_range(fmt, int(outside[0]) if outside.numel() else 0)
        return user_values(codes, fmt).float().to(x.device)

    return multiply


@lru_cache(maxsize=16)
def _pairwise(fmt: UserFormat, name: str) -> Callable[[Any, Any, Any], None]:
    function = user_function(fmt, name)

    def loop(left: Any, right: Any, target: Any) -> None:
        for i in range(left.size):
            target[i] = function(left[i], right[i])

    if not hasattr(function, "py_func"):
        return loop
    import numba

    compiled: Callable[[Any, Any, Any], None] = numba.njit(nogil=True)(loop)
    return compiled


def _add_codes_compiled(a: Tensor, b: Tensor, fmt: UserFormat, size: int, zero: int, fused: bool) -> Tensor:
    out = torch.full((a.shape[0], a.shape[1], b.shape[2]), zero, dtype=torch.int64)
    kernel = _kernel(fmt, fused)
    for batch in range(a.shape[0]):
        wrong = kernel(a[batch].contiguous().numpy(), b[batch].contiguous().numpy(), out[batch].numpy(), size, zero)
        _check_range(fmt, wrong)
    return out


def _check_range(fmt: UserFormat, wrong: int) -> None:
    """`wrong` is a code outside the fields, or 0 when there was none."""
    if wrong:
        raise FormatError(f"{fmt}: its functions must give codes from 0 to {(1 << fmt.bits) - 1}, not {wrong}")


@lru_cache(maxsize=16)
def _kernel(fmt: UserFormat, fused: bool) -> Callable[..., int]:
    """Rows of outputs, one step of the reduction after another: `mad`, or tables or functions for `mul` and `add`."""
    import numba
    import numpy as np

    add_function = user_function(fmt, "add")
    if fused:
        step = user_function(fmt, "mad")
    elif fmt.bits <= 8:
        products, sums = operation_table(fmt, "mul"), operation_table(fmt, "add")
        # Constant arrays are compiled in; a table of 8-bit codes has 64 KiB.
        step = numba.njit(nogil=True)(lambda x, y, acc: sums[acc, products[x, y]])
    else:
        multiply = user_function(fmt, "mul")
        step = numba.njit(nogil=True)(lambda x, y, acc: add_function(acc, multiply(x, y)))

    top = (1 << fmt.bits) - 1

    def kernel(a: Any, b: Any, out: Any, size: int, zero: int) -> int:
        part = np.empty(b.shape[1], np.int64)
        wrong = 0
        for m in range(a.shape[0]):
            for begin in range(0, a.shape[1], size):
                part[:] = zero
                for k in range(begin, min(begin + size, a.shape[1])):
                    x = a[m, k]
                    for n in range(b.shape[1]):
                        code = step(x, b[k, n], part[n])
                        wrong = code if code < 0 or code > top else wrong
                        part[n] = code
                for n in range(b.shape[1]):
                    code = part[n] if begin == 0 else add_function(out[m, n], part[n])
                    wrong = code if code < 0 or code > top else wrong
                    out[m, n] = code
        return wrong

    compiled: Callable[..., int] = numba.njit(nogil=True)(kernel)
    return compiled
