"""Formats as sorted lists of their values, and rounding to a list.

This is the mechanism for formats that have no grid: logarithmic numbers, tables, user-defined codes. `ValueList.bounds`
holds, between each two neighbours, the number at which nearest rounding changes from one to the other.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from presilicon.base import FormatError
from presilicon.formats.format import MOST_LISTED_BITS
from presilicon.formats.kernels.torch_kernels import draw_words
from presilicon.formats.rounding import Key, Mode, Stochastic

if TYPE_CHECKING:
    from presilicon.formats.format import Format


@dataclass(frozen=True, slots=True, eq=False)
class ValueList:
    """Values in ascending order, the bounds of nearest rounding between them, and the values' codes."""

    values: Tensor
    bounds: Tensor
    codes: Tensor
    nan: int
    """Index of the value that NaN becomes; -1: NaN stays NaN."""
    nan_code: int
    ends: Tensor
    """The values as nearest and random rounding see them: an infinity stands where the next number would come."""
    minus_zero: int
    """Index of -0, with 0 after it; -1 unless the list has both."""

    def on(self, device: torch.device) -> "ValueList":
        """The same list on a device."""
        values, bounds, codes = self.values.to(device), self.bounds.to(device), self.codes.to(device)
        return ValueList(values, bounds, codes, self.nan, self.nan_code, self.ends.to(device), self.minus_zero)


@lru_cache(maxsize=64)
def value_list(fmt: "Format") -> ValueList:
    """The cached list of a format's values."""
    return fmt.value_list()


def list_values(fmt: "Format") -> ValueList:
    """The list that follows from the values of all codes.

    Raises `FormatError` if the values cannot be listed or there are fewer than two.
    """
    values = _all_values(fmt)
    codes = np.arange(len(values))
    nan_codes = codes[np.isnan(values)]
    numbers = np.isfinite(values) if fmt.saturates else ~np.isnan(values)
    # By value, -0 before 0, and the smallest code of each.
    order = np.lexsort((codes[numbers], ~np.signbit(values[numbers]), values[numbers]))
    ordered, owners = values[numbers][order], codes[numbers][order]
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]) | (np.signbit(ordered[1:]) != np.signbit(ordered[:-1]))
    ordered, owners = ordered[new], owners[new]
    different = len(np.unique(ordered[np.isfinite(ordered)]))
    if different < 2:
        raise FormatError(f"{fmt}: a format must have at least 2 different finite values, not {different}")
    return bounded_list(ordered, owners, nan_code=int(nan_codes[0]) if len(nan_codes) else -1)


def _all_values(fmt: "Format") -> Any:
    """The values in the order of their codes, as float64 that hold float32 numbers."""
    from presilicon.formats.grammar import FAMILIES

    if fmt.bits > MOST_LISTED_BITS:
        raise FormatError(f"{fmt}: only formats of at most {MOST_LISTED_BITS} bits can be listed, not {fmt.bits}")
    with np.errstate(over="ignore"), FAMILIES.errors_of(fmt.kind):
        values = np.array(fmt.code_values(), dtype=np.float64).astype(np.float32).astype(np.float64)
    if len(values) > 1 << fmt.bits:
        raise FormatError(f"{fmt}: {len(values)} values do not fit codes of {fmt.bits} bits")
    return values


@lru_cache(maxsize=64)
def value_table(fmt: "Format") -> Tensor:
    """The values of all 2^bits codes, NaN for the codes that have none."""
    values = _all_values(fmt)
    table = torch.full((1 << fmt.bits,), torch.nan, dtype=torch.float64)
    table[: len(values)] = torch.from_numpy(values)
    return table


def bounded_list(
    values: np.ndarray, codes: np.ndarray, bounds: np.ndarray | None = None, nan_code: int = -1
) -> ValueList:
    """The list of ascending values; without `bounds` nearest rounding changes half way between two values."""
    ends = values.astype(np.float64)
    finite = ends[np.isfinite(ends)]
    ends[ends == np.inf] = _next_value(finite)
    ends[ends == -np.inf] = -_next_value(-finite[::-1])
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


def _next_value(values: np.ndarray) -> float:
    """The number that would follow ascending values, whose steps stay or double with each power of two."""
    last, step = values[-1], values[-1] - values[-2]
    half = np.searchsorted(values, last / 2)
    doubles = 0 < half < len(values) and values[half] == last / 2 and 2 * (values[half] - values[half - 1]) == step
    return float(2 * values[half + 1] if doubles else last + step)


def encode_listed(x: Tensor, fmt: "Format", mode: Mode, key: Key) -> Tensor:
    """The codes of `x` (float32 or float64) in a listed format, as int64."""
    listed = value_list(fmt).on(x.device)
    indices = round_to_list(x.to(torch.float64), listed, mode, draw_words(x, mode, key))
    return torch.where(indices < 0, listed.nan_code, listed.codes[indices.clamp(min=0)])


def round_listed(x: Tensor, fmt: "Format", mode: Mode, words: Tensor | None) -> Tensor:
    """`x` (float64) in a listed format."""
    listed = value_list(fmt).on(x.device)
    indices = round_to_list(x, listed, mode, words)
    return torch.where(indices < 0, torch.nan, listed.values[indices.clamp(min=0)])


def ordered_values(fmt: "Format") -> list[float] | None:
    """All finite values in ascending order; None for formats that are too wide to list."""
    if fmt.bits > MOST_LISTED_BITS:
        return None
    values = fmt.decode_tensor(torch.arange(1 << fmt.bits)).to(torch.float32)
    return sorted(set(values[torch.isfinite(values)].add(0.0).tolist()))


def scaled_values(fmt: "Format", scale: float) -> list[float] | None:
    """All values times a scale in ascending order, in float32; None if they are too many to list."""
    units = ordered_values(fmt)
    if units is None:
        return None
    products: list[float] = (torch.tensor(units) * torch.tensor(scale, dtype=torch.float32)).tolist()
    return products


def round_to_list(x: Tensor, listed: ValueList, mode: Mode, words: Tensor | None) -> Tensor:
    """The indices in the list that `x` (float64) is rounded to; infinities saturate, and NaN gives `listed.nan`."""
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
            # Between the numbers around zero, in a list without zero, the sign stays.
            up = (x < 0) ^ ((low < 0) & (high > 0))
        case "up":
            up = torch.ones_like(x, dtype=torch.bool)
        case _:
            up = torch.zeros_like(x, dtype=torch.bool)
    up = torch.where(x <= low, False, torch.where(x >= high, True, up))
    indices = below + up.to(torch.int64)
    if listed.minus_zero >= 0:
        indices = torch.where(x == 0, listed.minus_zero + (~torch.signbit(x)).to(torch.int64), indices)
    return torch.where(torch.isnan(x), listed.nan, indices)
