"""Formats as sorted lists of their values, and rounding to a list.

This is the mechanism for formats that are no grid: logarithmic numbers, tables, user-defined codes. `ValueList.bounds`
holds, between each two neighbours, the number where nearest rounding changes from one to the other.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from presilicon.base.errors import FormatError
from presilicon.formats.format import Format
from presilicon.formats.listed import Logarithmic, Table
from presilicon.formats.rounding import Stochastic
from presilicon.formats.user import UserFormat
from presilicon.formats.user_passes import all_values


@dataclass(frozen=True, slots=True, eq=False)
class ValueList:
    """Values in ascending order, the number between each two where nearest rounding changes, and the values' codes."""

    values: Tensor
    bounds: Tensor
    codes: Tensor
    nan: int
    """Place of what NaN becomes; -1: it stays NaN."""
    nan_code: int
    ends: Tensor
    """The values as nearest and random rounding see them: an infinity lies as far beyond the last number as that is
    from the one before."""
    minus_zero: int
    """Place of -0, with 0 above it; -1: there are not both."""

    def on(self, device: torch.device) -> "ValueList":
        """The same list on a device."""
        values, bounds, codes = self.values.to(device), self.bounds.to(device), self.codes.to(device)
        return ValueList(values, bounds, codes, self.nan, self.nan_code, self.ends.to(device), self.minus_zero)


@lru_cache(maxsize=64)
def value_list(fmt: Format) -> ValueList:
    """The list of a format's values."""
    match fmt:
        case Table():
            values = np.array(fmt.values)
            return _list(values, np.arange(len(values)))
        case Logarithmic():
            return _logarithmic_list(fmt)
        case UserFormat() if fmt.bits <= 16:
            return _user_list(fmt)
        case _:
            raise FormatError(f"{fmt}: this format is no list of values")


def _list(values: np.ndarray, codes: np.ndarray, bounds: np.ndarray | None = None, nan_code: int = -1) -> ValueList:
    ends = values.astype(np.float64)
    if np.isinf(ends[-1]):
        ends[-1] = 2 * ends[-2] - ends[-3]
    if np.isinf(ends[0]):
        ends[0] = 2 * ends[1] - ends[2]
    middle = (ends[1:] + ends[:-1]) / 2 if bounds is None else bounds
    twins = np.flatnonzero((values[1:] == 0) & (values[:-1] == 0))
    nearest_to_zero = int(np.argmin(np.abs(values))) + len(twins)
    return ValueList(
        torch.from_numpy(values.astype(np.float64)),
        torch.from_numpy(middle.astype(np.float64)),
        torch.from_numpy(codes.astype(np.int64)),
        nan=-1 if nan_code >= 0 else nearest_to_zero,
        nan_code=max(nan_code, 0),
        ends=torch.from_numpy(ends),
        minus_zero=int(twins[0]) if len(twins) else -1,
    )


def _logarithmic_list(fmt: Logarithmic) -> ValueList:
    """Exact powers of two times 2^(i / 2^fraction), from 50-digit decimals; half steps are the bounds."""
    scale = 1 << fmt.fraction
    with localcontext() as context:
        context.prec = 50
        root = Decimal(2) ** (Decimal(1) / (2 * scale))
        powers, power = [], Decimal(1)
        for _ in range(2 * scale):
            powers.append(float(power))
            power *= root
    half_steps = np.array(powers)
    most = 1 << (fmt.integer + fmt.fraction - 1)
    k = np.arange(-most + 1, most)
    positive = np.ldexp(half_steps[0::2][k % scale], k // scale).astype(np.float32).astype(np.float64)
    below = np.ldexp(half_steps[1::2][(k - 1) % scale], (k - 1) // scale)
    values = np.concatenate([-positive[::-1], [0.0], positive])
    bounds = np.concatenate([-below[::-1], below])
    width = fmt.bits - 1
    logs = k & ((1 << width) - 1)
    codes = np.concatenate([(logs | 1 << width)[::-1], [most], logs])
    return _list(values, codes, bounds)


def _user_list(fmt: UserFormat) -> ValueList:
    codes = np.arange(1 << fmt.bits)
    values = all_values(fmt)
    nan_codes = codes[np.isnan(values)]
    numbers = ~np.isnan(values)
    # By value, -0 before 0, and the smallest code of each.
    order = np.lexsort((codes[numbers], ~np.signbit(values[numbers]), values[numbers]))
    kept, owners = values[numbers][order], codes[numbers][order]
    new = np.ones(len(kept), dtype=bool)
    new[1:] = (kept[1:] != kept[:-1]) | (np.signbit(kept[1:]) != np.signbit(kept[:-1]))
    kept, owners = kept[new], owners[new]
    different = len(np.unique(kept[np.isfinite(kept)]))
    if different < 2:
        raise FormatError(f"{fmt}: as_float gives {different} different finite values; at least 2 are needed")
    return _list(kept, owners, nan_code=int(nan_codes[0]) if len(nan_codes) else -1)


def round_to_list(x: Tensor, listed: ValueList, mode: str | Stochastic, words: Tensor | None) -> Tensor:
    """The places in the list of `x` (float64), rounded; infinities saturate, and NaN is at `listed.nan` or -1."""
    directed = mode in ("toward-zero", "up", "down")
    values = listed.values if directed else listed.ends
    last = len(values) - 1
    below = (torch.searchsorted(values, x.contiguous(), right=True) - 1).clamp(0, last - 1)
    low, high = values[below], values[below + 1]
    match mode:
        case Stochastic():
            assert words is not None
            inner = torch.where(x >= 0, low, high)
            share = ((x - inner) / (high - low)).abs().nan_to_num(0.0, posinf=1.0).clamp(max=1.0)
            away = torch.floor(share * 2.0**24).to(torch.int64) + (words >> 8) >= 1 << 24
            up = torch.where(x >= 0, away, ~away)
        case "nearest-even":
            bound = listed.bounds[below]
            up = (x > bound) | ((x == bound) & (listed.codes[below] % 2 == 1))
        case "nearest-away":
            bound = listed.bounds[below]
            up = (x > bound) | ((x == bound) & (x > 0))
        case "toward-zero":
            up = x < 0
        case "up":
            up = torch.ones_like(x, dtype=torch.bool)
        case _:
            up = torch.zeros_like(x, dtype=torch.bool)
    up = torch.where(x <= low, False, torch.where(x >= high, True, up))
    places = below + up.to(torch.int64)
    if listed.minus_zero >= 0:
        places = torch.where(x == 0, listed.minus_zero + (~torch.signbit(x)).to(torch.int64), places)
    return torch.where(torch.isnan(x), listed.nan, places)
