"""Value lists as steps over the float32 numbers, in which a compiled pass looks elements up.

Rounding without random words is a step function of the float32 patterns, put in the order of their values with -0
before 0 and NaN at both ends. The edges of the steps are found by bisection with the torch path, so both give the same
bits.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from presilicon.formats.kernels.value_lists import value_list

if TYPE_CHECKING:
    from presilicon.formats.format import Format

BUCKET_BITS = 16
"""Low bits of a pattern that a bucket leaves open."""
_MINUS_INFINITY, _INFINITY = 0x007FFFFF, 0xFF800000


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """Steps in ascending order; a step of random rounding lies between two values."""

    first: Any
    """Step of the lowest pattern of each bucket."""
    edges: Any
    """First pattern of each step, in the order of the values; padded so that the bisection stays inside."""
    low: Any
    """Value of a step, as float32 bits."""
    high: Any
    """The value above it that random rounding may choose; else the same."""
    near: Any
    """Positions of the two as float64, infinities as in `ValueList.ends`."""
    far: Any
    halvings: int


@lru_cache(maxsize=64)
def step_table(fmt: "Format", mode: str | None) -> StepTable:
    """The steps of a format in a rounding mode; None is stochastic rounding."""
    listed = value_list(fmt)
    values, ends = listed.values.numpy(), listed.ends.numpy()
    bits = values.astype(np.float32).view(np.uint32)
    if mode is None:
        edges = _keys(_at_least(ends))
        near, far = ends[np.r_[0, : len(ends)]], ends[np.r_[0, 1 : len(ends), -1]]
        low, high = bits[np.r_[0, : len(bits)]], bits[np.r_[0, 1 : len(bits), -1]]
        high = np.where(near == far, low, high)
    else:
        edges = _find_edges(fmt, values, mode)
        low = high = bits[np.r_[0, : len(bits)]]
        near = far = np.zeros(len(low))
    special = torch.tensor([torch.nan, -torch.inf, torch.inf, torch.nan])
    ends_bits = _rounded(special, fmt, mode or "down").numpy().view(np.uint32)

    def inside(middle: Any, before: Any, after: Any) -> Any:
        return np.concatenate([before, middle, after])

    edges = np.maximum(edges, _MINUS_INFINITY + 1)
    edges = inside(edges, [0, _MINUS_INFINITY, _MINUS_INFINITY + 1], [_INFINITY, _INFINITY + 1])
    starts = np.arange(1 << (32 - BUCKET_BITS), dtype=np.int64) << BUCKET_BITS
    first = np.searchsorted(edges, starts, side="right") - 1
    last = np.searchsorted(edges, starts + (1 << BUCKET_BITS) - 1, side="right") - 1
    halvings = int((last - first).max()).bit_length()
    return StepTable(
        first=first.astype(np.uint32),
        edges=np.concatenate([edges, np.full(1 << halvings, 1 << 32)]).astype(np.uint64),
        low=inside(low, ends_bits[:2], ends_bits[2:]),
        high=inside(high, ends_bits[:2], ends_bits[2:]),
        near=inside(near, [0.0, 0.0], [0.0, 0.0]),
        far=inside(far, [0.0, 0.0], [0.0, 0.0]),
        halvings=halvings,
    )


def _rounded(x: Tensor, fmt: "Format", mode: str) -> Tensor:
    """`x` (float32) by the torch path."""
    return fmt.round_plain(x.double(), mode, None).to(torch.float32)


def _keys(x: Any) -> Any:
    """Float32 patterns in the order of their values, as int64."""
    bits = x.view(np.uint32).astype(np.int64)
    return np.where(bits >> 31 == 1, 0xFFFFFFFF - bits, bits | 0x80000000)


def _numbers(keys: Any) -> Any:
    bits = np.where(keys >> 31 == 1, keys & 0x7FFFFFFF, 0xFFFFFFFF - keys)
    return bits.astype(np.uint32).view(np.float32)


def _at_least(x: Any) -> Any:
    """The smallest float32 numbers that are not below `x` (float64)."""
    with np.errstate(over="ignore"):
        near = x.astype(np.float32)
        return np.where(near < x, np.nextafter(near, np.float32(np.inf)), near)


def _find_edges(fmt: "Format", values: Any, mode: str) -> Any:
    """The first pattern that is rounded to each value or above."""
    reached = _keys(values.astype(np.float32))
    missed = np.concatenate([reached[:1] - 1, reached[:-1]])
    while (reached - missed > 1).any():
        middle = (reached + missed) >> 1
        over = _rounded(torch.from_numpy(_numbers(middle)), fmt, mode).numpy() >= values
        over &= middle > missed
        reached, missed = np.where(over, middle, reached), np.where(over, missed, middle)
    return reached
