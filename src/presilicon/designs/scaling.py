"""Loss scaling: a factor that lifts small gradients into the range of a narrow format."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from presilicon.base import ConfigError

ScalingKind = Literal["none", "static", "dynamic", "enhanced"]
Scale = Annotated[float, Meta(gt=0, le=2.0**100)]


class Rise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A minimum of the scale that holds from a training step on."""

    from_step: Annotated[int, Meta(ge=0)]
    minimum: Scale


class LossScale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scaling of the loss before the backward pass; gradients are divided by the same factor before the update.

    - `static`: always `initial`.
    - `dynamic`: a step whose gradients are not finite is skipped and multiplies the scale by `backoff`; `interval` good
      steps in a row multiply it by `growth`. The rule of torch's GradScaler.
    - `enhanced`: dynamic, with a minimum that rises over training, so that rare overflows late in training do not
      drive the scale down to where gradients vanish (Mellempudi et al., Mixed precision training with 8-bit floating
      point, 2019).
    """

    shorthand: ClassVar[str] = "kind"

    kind: ScalingKind = "none"
    initial: Scale = 65536.0
    growth: Annotated[float, Meta(gt=1, le=1024)] = 2.0
    backoff: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    interval: Annotated[int, Meta(ge=1)] = 2000
    minimum: Annotated[float, Meta(ge=0, le=2.0**100)] = 0.0
    """A dynamic scale never falls below it."""
    rises: tuple[Rise, ...] = ()
    """For an enhanced scale: minima in the order of the steps from which they hold."""

    def check(self) -> None:
        """A loss that is not scaled has no figures; only an enhanced scale has rises, whose steps and minima rise."""
        if self.rises and self.kind != "enhanced":
            raise ConfigError(f'rises are for kind = "enhanced", not "{self.kind}"')
        if self.kind == "enhanced" and not self.rises:
            raise ConfigError("an enhanced scale needs rises, as in rises = [{ from_step = 1000, minimum = 8192 }]")
        steps = [rise.from_step for rise in self.rises]
        minima = [rise.minimum for rise in self.rises]
        if steps != sorted(set(steps)) or minima != sorted(minima):
            raise ConfigError(f"rises must rise: given steps {steps} and minima {minima}")
        if self.minimum > self.initial:
            raise ConfigError(f"minimum is {self.minimum:g}, above the initial scale {self.initial:g}")
        if self.kind == "none" and self != LossScale():
            raise ConfigError(
                'the loss is not scaled: kind is "none", the default, but other fields are given; set kind to '
                '"static", "dynamic" or "enhanced", or leave them out'
            )

    def minimum_at(self, step: int) -> float:
        """The least scale at a training step."""
        minima = [rise.minimum for rise in self.rises if rise.from_step <= step]
        return max([self.minimum, *minima])

    def check_range(self, largest: float, spelling: str) -> None:
        """Errors begin as the scale itself, so a format that cannot hold it loses every gradient.

        A dynamic scale may begin higher: it comes down. Its minimum may not.
        """
        if self.kind == "none":
            return
        least = self.initial if self.kind == "static" else max([self.minimum, *(rise.minimum for rise in self.rises)])
        if least > largest:
            raise ConfigError(
                f"loss_scale: errors are {spelling}, whose largest value is {largest:g}, below the scale of {least:g}: "
                "take a smaller scale, or errors with more exponent bits"
            )
