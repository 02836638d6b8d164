"""Metrics: a number that says how well a model does on a split, and in which direction it improves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from presilicon.base import ConfigError
from presilicon.records import Direction, reaches

Over = Literal["pieces", "loss", "split"]

_SLACK = 1e-6
"""A mean over pieces of a split may leave its range by a rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric with its direction and range; see `load_metric` for ready-made ones.

    >>> Metric(name="top-5 accuracy", compute=max, better="higher", low=0, high=1).reaches(0.91, target=0.9)
    True
    >>> Metric(name="perplexity", compute=pow)
    Traceback (most recent call last):
    presilicon.base.errors.ConfigError: metric "perplexity": better must be "higher" or "lower", not None
    """

    name: str
    compute: Callable[..., Any]
    """Computes the metric, from what `over` says."""
    better: Direction | None = None
    """The direction in which the metric improves; required."""
    over: Over = "pieces"
    """`pieces`: the mean over pieces of a split of compute(outputs, targets), weighted by their examples; `split`:
    compute(outputs, targets) of the whole split at once; `loss`: compute(mean loss of the split)."""
    low: float = -inf
    high: float = inf

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError(f"a metric's name must be a non-empty string, not {self.name!r}")
        where = f'metric "{self.name}"'
        if not callable(self.compute):
            raise ConfigError(f"{where}: compute must be a function, not {type(self.compute).__name__}")
        if self.better not in ("higher", "lower"):
            raise ConfigError(f'{where}: better must be "higher" or "lower", not {self.better!r}')
        if self.over not in ("pieces", "loss", "split"):
            raise ConfigError(f'{where}: over must be "pieces", "loss" or "split", not {self.over!r}')
        if not (_is_number(self.low) and _is_number(self.high) and self.low < self.high):
            raise ConfigError(f"{where}: low must be below high, not {self.low!r} and {self.high!r}")

    @property
    def is_fraction(self) -> bool:
        """Whether values are shown as percentages."""
        return self.low == 0 and self.high == 1

    @property
    def direction(self) -> Direction:
        """The direction in which the metric improves."""
        assert self.better is not None
        return self.better

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is the target or better; NaN never is."""
        return reaches(value, target, self.direction)

    def check_target(self, target: object) -> None:
        """Refuse a target that the metric cannot have, or that any value would reach.

        Raises:
            ConfigError: says what the target must be.
        """
        worst, best = (self.low, self.high) if self.better == "higher" else (self.high, self.low)
        if _is_number(target) and abs(target) < inf and self.low <= target <= self.high and target != worst:  # type: ignore[arg-type,operator]
            return
        words = ("above", "at most") if self.better == "higher" else ("below", "at least")
        limits = [f"{word} {limit:g}" for word, limit in zip(words, (worst, best), strict=True) if abs(limit) < inf]
        raise ConfigError(f"target must be {' and '.join(limits) or 'a finite number'}, not {target!r}")

    def number(self, value: Any) -> float:
        """The result of `compute` as a number.

        Raises:
            ConfigError: it is not one.
        """
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            shape = getattr(value, "shape", None)
            what = f"a tensor of shape {tuple(shape)}" if shape is not None else repr(value)
            raise ConfigError(f"a workload's {self.name} must be computed as one number, not as {what}") from None

    def check_value(self, value: float) -> float:
        """The value, if it is in the metric's range or NaN.

        Raises:
            ConfigError: it is not.
        """
        if value < self.low - _SLACK or value > self.high + _SLACK:
            hint = "; divide percentages by 100, and counts by the number of examples" if self.is_fraction else ""
            raise ConfigError(f"a workload's {self.name} must be {self._range()}, not {value:g}{hint}")
        return value

    def _range(self) -> str:
        if self.high == inf:
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if self.low == -inf else f"between {self.low:g} and {self.high:g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
