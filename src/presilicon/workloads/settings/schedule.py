"""Learning-rate schedules: the factor on the optimizer's own rate at each point of training."""

from __future__ import annotations

from math import cos, isfinite, pi
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.workloads.settings.spelling import read_call, write_call

_COMMON = ("warmup", "start", "scale_from")
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "constant": _COMMON,
    "step": ("every", "milestones", "factor", *_COMMON),
    "cosine": ("final", *_COMMON),
    "polynomial": ("power", "final", *_COMMON),
}
"""Parameters of each kind."""


class LearningRateSchedule(Struct, frozen=True, kw_only=True):
    """A learning-rate schedule; positions are steps of `batch_size` samples and may be fractions.

    `constant` keeps the rate; `step` multiplies it by `factor` at each multiple of `every`, or at each of `milestones`;
    `cosine` and `polynomial` lower it to `final` times the rate at the end of the budget. Each may begin with a linear
    warm-up from `start` times the rate over `warmup` steps; what `cosine` and `polynomial` do begins after it.

    >>> schedule = LearningRateSchedule.parse("cosine(warmup=10, start=0.5)")
    >>> [schedule.factor(step, total=30) for step in (0, 5, 10, 20, 30)]
    [0.5, 0.75, 1.0, 0.5, 0.0]
    >>> str(LearningRateSchedule.parse("step(milestones=[10, 20], warmup=0)"))
    'step(milestones=[10, 20])'
    """

    kind: str
    warmup: float = 0
    """Steps of the linear warm-up."""
    start: float = 0.01
    """Factor at the first step of the warm-up."""
    every: float | None = None
    milestones: tuple[float, ...] | None = None
    drop: float = 0.1
    """Factor at each step of the kind `step`; in text `factor`."""
    power: float = 1.0
    final: float = 0.0
    """Factor at the end of the budget."""
    scale_from: int | None = None
    """Samples of an update that the optimizer's rate is meant for; with it the rate grows linearly with the samples."""

    def __post_init__(self) -> None:
        if self.kind not in _PARAMETERS:
            read_call(self.kind, "schedule", _PARAMETERS)
        steps = [value for value in (self.every, *(self.milestones or ())) if value is not None]
        _require(self.kind, "warmup", self.warmup, _is_number(self.warmup, least=0), "at least 0")
        _require(self.kind, "start", self.start, _is_number(self.start, 0) and self.start <= 1, "from 0 to 1")
        _require(self.kind, "every or milestones", steps, all(_is_above(step) for step in steps), "above 0")
        _require(self.kind, "factor", self.drop, _is_above(self.drop), "above 0")
        _require(self.kind, "power", self.power, _is_above(self.power), "above 0")
        _require(self.kind, "final", self.final, _is_number(self.final, 0) and self.final <= 1, "from 0 to 1")
        samples = self.scale_from
        whole = samples is None or (type(samples) is int and samples >= 1)
        _require(self.kind, "scale_from", samples, whole, "a whole number of samples of at least 1")
        if self.kind == "step" and (self.every is None) == (self.milestones is None):
            raise ConfigError("schedule step needs every=N or milestones=[N, ...], and not both")

    @classmethod
    def parse(cls, text: str) -> LearningRateSchedule:
        """The schedule written in a text, such as `step(every=300, factor=0.1)`.

        Raises:
            ConfigError: an unknown kind or parameter, or a value that cannot be.
        """
        kind, values = read_call(text, "schedule", _PARAMETERS)
        fields: dict[str, Any] = {_field(name): value for name, value in values.items()}
        if "milestones" in fields:
            milestones = fields["milestones"]
            fields["milestones"] = tuple(milestones) if isinstance(milestones, list | tuple) else (milestones,)
        return cls(kind=kind, **fields)

    def __str__(self) -> str:
        default = LearningRateSchedule(kind="constant")
        values = {name: getattr(self, _field(name)) for name in _PARAMETERS[self.kind]}
        changed = {name: value for name, value in values.items() if value != getattr(default, _field(name))}
        return write_call(self.kind, changed)

    def factor(self, position: float, total: float) -> float:
        """The factor on the rate after `position` of `total` steps."""
        if position < self.warmup:
            return self.start + (1 - self.start) * position / self.warmup
        if self.kind == "constant":
            return 1.0
        if self.kind == "step":
            return float(self.drop ** self._drops(position))
        progress = min((position - self.warmup) / max(total - self.warmup, 1e-9), 1.0)
        falling = (1 + cos(pi * progress)) / 2 if self.kind == "cosine" else (1 - progress) ** self.power
        return float(self.final + (1 - self.final) * falling)

    def scale(self, samples_per_update: int) -> float:
        """The factor on the rate for updates of this many samples; 1 without `scale_from`."""
        return 1.0 if self.scale_from is None else samples_per_update / self.scale_from

    def stretched(self, ratio: float) -> LearningRateSchedule:
        """The same schedule in steps of another size: every number of steps times `ratio`."""
        return replace(
            self,
            warmup=self.warmup * ratio,
            every=None if self.every is None else self.every * ratio,
            milestones=None if self.milestones is None else tuple(step * ratio for step in self.milestones),
        )

    def _drops(self, position: float) -> int:
        """Number of drops up to a position, which count from the start of training."""
        if self.every is not None:
            return int(position // self.every)
        return sum(milestone <= position for milestone in self.milestones or ())


def _field(parameter: str) -> str:
    """The field that holds a parameter; `factor` is the name of a method."""
    return "drop" if parameter == "factor" else parameter


def _is_number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= least


def _is_above(value: object) -> bool:
    return _is_number(value, 0) and value != 0


def _require(kind: str, name: str, value: object, holds: bool, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"schedule {kind}: {name} must be {allowed}, not {value!r}")
