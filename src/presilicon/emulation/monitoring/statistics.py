"""Statistics of a tensor before and after rounding, computed on its device without waiting for it."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from presilicon.formats import Format, Scaled, has_triton
from presilicon.records import TensorStatistics


class Measurement(NamedTuple):
    """Sums and extremes of one tensor, or of several: first sums, then largest, then smallest values."""

    numbers: float = 0.0
    nonzero: float = 0.0
    finite: float = 0.0
    nans: float = 0.0
    underflowed: float = 0.0
    overflowed: float = 0.0
    saturated: float = 0.0
    total: float = 0.0
    absolute: float = 0.0
    square: float = 0.0
    signal: float = 0.0
    """Sum of the squares of numbers that are finite before and after rounding."""
    error: float = 0.0
    """Sum of their squared rounding errors."""
    blocks: float = 0.0
    clipped: float = 0.0
    maximum: float = -math.inf
    largest: float = -math.inf
    scale_max: float = -math.inf
    block_range: float = -math.inf
    minimum: float = math.inf
    smallest: float = math.inf
    scale_min: float = math.inf

    def plus(self, other: "Measurement") -> "Measurement":
        """The measurement of both tensors together."""
        sums = [a + b for a, b in zip(self[:_SUMS], other[:_SUMS], strict=True)]
        highs = [max(a, b) for a, b in zip(self[_SUMS:_HIGHS], other[_SUMS:_HIGHS], strict=True)]
        lows = [min(a, b) for a, b in zip(self[_HIGHS:], other[_HIGHS:], strict=True)]
        return Measurement(*sums, *highs, *lows)

    @property
    def underflow(self) -> float:
        """Share of the nonzero numbers that became zero."""
        return self.underflowed / max(self.nonzero, 1)

    @property
    def overflow(self) -> float:
        """Share of the finite numbers that became infinite or NaN."""
        return self.overflowed / max(self.finite, 1)

    @property
    def saturation(self) -> float:
        """Share of the finite numbers that were held at the largest value."""
        return self.saturated / max(self.finite, 1)

    @property
    def nonfinite(self) -> int:
        """Infinities and NaN before rounding."""
        return int(self.numbers - self.finite)

    def statistics(self) -> TensorStatistics:
        """The measurement as a record."""
        count, mean = max(self.finite, 1.0), self.total / max(self.finite, 1.0)
        variance = max(self.square - count * mean * mean, 0.0) / max(count - 1, 1.0)
        is_lossy = self.error > 0 and self.signal > 0
        has_range = 0 < self.smallest <= self.largest < math.inf
        return TensorStatistics(
            numbers=int(self.numbers),
            sqnr_db=10 * math.log10(self.signal / self.error) if is_lossy else None,
            mse=self.error / count,
            underflow=self.underflow,
            overflow=self.overflow,
            saturation=self.saturation,
            nans=int(self.nans),
            infinities=self.nonfinite - int(self.nans),
            largest=self.largest if self.finite else None,
            smallest=_finite(self.smallest),
            minimum=self.minimum if self.finite else None,
            maximum=self.maximum if self.finite else None,
            mean=mean if self.finite else None,
            std=math.sqrt(variance) if self.finite else None,
            l1_norm=self.absolute,
            l2_norm=math.sqrt(self.square),
            dynamic_range=math.log2(self.largest) - math.log2(self.smallest) if has_range else None,
            clipped_blocks=self.clipped / self.blocks if self.blocks else None,
            block_dynamic_range=_finite(self.block_range),
            scale_min=_finite(self.scale_min),
            scale_max=_finite(self.scale_max),
        )


_SUMS = Measurement._fields.index("maximum")
_HIGHS = Measurement._fields.index("minimum")
_MEASURED = (
    "nonzero", "finite", "nans", "underflowed", "overflowed", "saturated", "total", "absolute", "square", "signal",
    "error", "maximum", "minimum", "smallest",
)  # fmt: skip
"""What the kernel measures, in its order."""
_BLOCK, _PROGRAMS = 1024, 1056
_CLIPPED = 1 + 2.0**-20
"""Scales are rounded numbers: a block's largest magnitude may exceed its limit by an error of float32."""


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


class PendingMeasurement(NamedTuple):
    """A measurement whose numbers are on a device in part."""

    names: tuple[str, ...]
    values: Tensor
    """Of these names, as float64."""
    known: dict[str, float]
    """The others that are not at their default."""

    def read(self, values: Iterable[float]) -> Measurement:
        """The measurement, when the values have come from the device."""
        return Measurement(**self.known, **dict(zip(self.names, values, strict=True)))


@torch.no_grad()
def measure(
    before: Tensor, after: Tensor, fmt: Format, *, blocks: bool = False, amax: Tensor | None = None
) -> PendingMeasurement:
    """The measurement of a tensor and its rounded copy; nothing waits for their device.

    `blocks` asks for the scales and the clipping of blocks too. `amax` is the magnitude that a scale follows, if it is
    not the tensor's own.
    """
    x, y = before.detach(), after.detach()
    if x.numel() == 0:
        return _as_row({}, x)
    if x.is_cuda and has_triton() and x.dtype is y.dtype is torch.float32:
        values = measure_in_one_pass(x, y, fmt)
    else:
        is_plain = is_surely_finite(x) and is_surely_finite(y)
        values = (_measure_finite if is_plain else _measure_any)(x, y, fmt)
    return _as_row(values | (_measure_blocks(x, fmt, amax) if blocks else {}), x)


def is_surely_finite(x: Tensor) -> bool:
    """Whether all numbers are known to be finite, by one pass on the CPU; False on devices that would have to wait."""
    return x.device.type == "cpu" and math.isfinite(x.sum())


def measure_in_one_pass(x: Tensor, y: Tensor, fmt: Format) -> dict[str, Tensor | float]:
    """The measurement of float32 numbers by a kernel."""
    from presilicon.emulation.monitoring.triton_statistics import measure_kernel

    programs = min(-(-x.numel() // _BLOCK), _PROGRAMS)
    parts = torch.empty(len(_MEASURED), programs, dtype=torch.float64, device=x.device)
    turns = -(-x.numel() // (_BLOCK * programs))
    measure_kernel[(programs,)](
        x.contiguous(), y.contiguous(), parts, x.numel(), *_limits(fmt), turns,
        BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    sums, high, lows = parts[:-3].sum(1), parts[-3].amax(), parts[-2:].amin(1)
    values: dict[str, Tensor | float] = dict(zip(_MEASURED, (*sums, high, *lows), strict=True))
    return values | {"numbers": float(x.numel()), "largest": torch.maximum(high, -lows[0])}


def _measure_any(x: Tensor, y: Tensor, fmt: Format) -> dict[str, Tensor | float]:
    """The measurement by its definition, on any device."""
    is_finite, nonzero = x.isfinite(), x != 0
    stays_finite = is_finite & y.isfinite()
    values = torch.where(is_finite, x, 0.0).to(torch.float64)
    kept = torch.where(stays_finite, x, 0.0).to(torch.float64)
    magnitude = torch.where(nonzero & is_finite, x.abs(), math.inf)
    high, low = torch.where(is_finite, x, -math.inf).amax(), torch.where(is_finite, x, math.inf).amin()
    return {
        "numbers": float(x.numel()),
        "nonzero": nonzero.sum(),
        "finite": is_finite.sum(),
        "nans": x.isnan().sum(),
        "underflowed": (nonzero & (y == 0)).sum(),
        "overflowed": (is_finite & ~stays_finite).sum(),
        "saturated": _saturated(x, y, fmt),
        "total": values.sum(),
        "absolute": torch.linalg.vector_norm(values, 1),
        "square": torch.linalg.vector_norm(values).square(),
        "signal": torch.linalg.vector_norm(kept).square(),
        "error": torch.linalg.vector_norm(kept - torch.where(stays_finite, y, 0.0)).square(),
        "maximum": high,
        "minimum": low,
        "largest": torch.maximum(high, -low),
        "smallest": magnitude.amin(),
    }


def _measure_finite(x: Tensor, y: Tensor, fmt: Format) -> dict[str, Tensor | float]:
    """The same for finite numbers, in fewer passes."""
    low, high = x.aminmax()
    lowest, highest = _limits(fmt)
    nonzero, kept = int(x.count_nonzero()), int(y.count_nonzero())
    values, magnitude = x.to(torch.float64).flatten(), x.abs()
    square = values.dot(values)
    error = values - y.flatten()
    if nonzero < x.numel():
        magnitude.masked_fill_(magnitude == 0, math.inf)
    return {
        "numbers": float(x.numel()),
        "nonzero": float(nonzero),
        "finite": float(x.numel()),
        "underflowed": float(nonzero - kept),
        "saturated": _saturated(x, y, fmt) if low < lowest or high > highest else 0.0,
        "total": values.sum(),
        "absolute": torch.linalg.vector_norm(values, 1),
        "square": square,
        "signal": square,
        "error": error.dot(error),
        "maximum": high,
        "minimum": low,
        "largest": float(torch.maximum(high, -low)),
        "smallest": magnitude.amin(),
    }


def _as_row(values: dict[str, Tensor | float], like: Tensor) -> PendingMeasurement:
    """Values by name as a row, with one stack for each type of number rather than a conversion of each."""
    on_device = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    names, parts = [], [like.new_zeros(0, dtype=torch.float64)]
    for dtype in dict.fromkeys(value.dtype for value in on_device.values()):
        own = {name: value for name, value in on_device.items() if value.dtype == dtype}
        names += list(own)
        parts.append(torch.stack(list(own.values())).to(torch.float64))
    known = {name: float(value) for name, value in values.items() if not isinstance(value, Tensor)}
    return PendingMeasurement(tuple(names), torch.cat(parts), known)


def _limits(fmt: Format) -> tuple[float, float]:
    """The smallest and the largest number of a format; infinite if it has none, as with a scale that follows the data.

    >>> from presilicon.formats import parse
    >>> _limits(parse("fixed(4, 4)")), _limits(parse("int8"))
    ((-8.0, 7.9375), (-inf, inf))
    """
    highest = getattr(fmt, "max", None)
    if not isinstance(highest, float):
        return -math.inf, math.inf
    return float(getattr(fmt, "min", -highest)), highest


def _saturated(x: Tensor, y: Tensor, fmt: Format) -> Tensor:
    lowest, highest = _limits(fmt)
    is_held = ((x > highest) & (y == highest)) | ((x < lowest) & (y == lowest))
    return (is_held & x.isfinite()).sum()


def _measure_blocks(x: Tensor, fmt: Format, amax: Tensor | None) -> dict[str, Tensor | float]:
    scaled = fmt.scaled_groups(x, amax) if isinstance(fmt, Scaled) else fmt.scaled_groups(x)
    if scaled is None:
        return {}
    groups, scales, limit = scaled
    magnitude = torch.where(groups.isfinite(), groups.abs(), 0.0)
    largest, limits = magnitude.amax(-1), scales * (limit * _CLIPPED)
    smallest = torch.where(magnitude > 0, magnitude, math.inf).amin(-1)
    # Scales that follow the data clip by rule, at most the top of a block; one that does not may clip any number.
    saturated = {"saturated": (magnitude > limits.unsqueeze(-1)).sum()} if amax is not None else {}
    return {
        **saturated,
        "blocks": float(largest.numel()),
        "clipped": (largest > limits).sum(),
        "scale_max": scales.amax(),
        "scale_min": scales.amin(),
        "block_range": torch.where(largest > 0, largest.log2() - smallest.log2(), -math.inf).amax(),
    }
