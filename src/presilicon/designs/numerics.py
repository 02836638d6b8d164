"""Numerics: the format of each role that a number can play in a training step."""

from typing import ClassVar, cast

from msgspec import Struct

from presilicon.formats import Format, Rounding, Stochastic, parse, parse_rounding
from presilicon.records import Role


class RoleFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """How the tensors of one role are stored. In a file, the format's spelling alone is enough."""

    shorthand: ClassVar[str] = "format"

    format: Format
    rounding: str = "nearest-even"
    """A rounding mode; `stochastic(bits=8, source=lfsr)` names the random source that the hardware has."""

    def check(self) -> None:
        """The rounding must be one that exists."""
        parse_rounding(self.rounding)

    @property
    def rounding_mode(self) -> Rounding | Stochastic:
        """The rounding as `quantize` takes it."""
        return cast("Rounding | Stochastic", parse_rounding(self.rounding))

    @property
    def is_stochastic(self) -> bool:
        """Whether rounding draws random numbers."""
        return isinstance(self.rounding_mode, Stochastic)

    def __str__(self) -> str:
        return str(self.format) if self.rounding == "nearest-even" else f"{self.format} ({self.rounding})"


FLOAT32 = RoleFormat(parse("float32"))


class Numerics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The format of each role. A role that is not named stays in float32.

    Forward multiplies activation and weight; the input gradient, error and weight; the weight gradient, activation and
    error. Products are added in float32. The optimizer works on the master weights; `weight` is a rounded copy of them.
    """

    weight: RoleFormat = FLOAT32
    activation: RoleFormat = FLOAT32
    error: RoleFormat = FLOAT32
    """Gradients of activations, as they enter the two backward products."""
    gradient: RoleFormat = FLOAT32
    """Gradients of weights, as they enter the optimizer."""
    master: RoleFormat = FLOAT32
    state: RoleFormat = FLOAT32
    """Optimizer state."""

    def of(self, role: Role) -> RoleFormat:
        """The format of `role`."""
        chosen: RoleFormat = getattr(self, role)
        return chosen
