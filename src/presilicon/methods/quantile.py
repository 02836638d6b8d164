"""A quantile of a stream of numbers, estimated without keeping them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class QuantileEstimator:
    """DUMIQUE: each number moves the estimate up or down by a small factor, so that a share of them lies below it.

    >>> import torch
    >>> estimator = QuantileEstimator(0.9, rate=1e-3)
    >>> values = torch.rand(200_000, generator=torch.Generator().manual_seed(0))
    >>> for part in values.split(1000):
    ...     threshold = estimator.see(part)
    >>> abs(threshold - 0.9) < 0.02
    True
    """

    def __init__(self, share: float, rate: float) -> None:
        self.share, self.rate = share, rate
        self.value = 0.0
        """The estimate; 0 before the first number."""

    def see(self, values: Tensor) -> float:
        """The estimate after these numbers; the first ones begin at their own quantile.

        They are taken in an order that mixes them, since an estimate follows the last numbers that it has seen.
        """
        import numpy as np
        import torch

        flat = values.detach().to("cpu", torch.float64).flatten().numpy()
        if self.value <= 0:
            self.value = max(float(np.quantile(flat, self.share)), 1e-30)
        stride = int(len(flat) * 0.6180339887) | 1
        while np.gcd(stride, len(flat)) != 1:
            stride += 2
        self.value = _stream(
            flat[np.arange(len(flat)) * stride % len(flat)],
            self.value,
            1 + self.rate * self.share,
            1 - self.rate * (1 - self.share),
        )
        return self.value


def _stream(values: Any, estimate: float, up: float, down: float) -> float:
    return float(_compiled()(values, estimate, up, down))


@cache
def _compiled() -> Callable[..., float]:
    from numba import njit

    @njit(cache=True)
    def stream(values, estimate, up, down):  # type: ignore[no-untyped-def]
        for value in values:
            estimate *= up if value > estimate else down
        return estimate

    return stream  # type: ignore[no-any-return]
