"""Numerics: the format of each role that a number can play in a training step."""

from typing import ClassVar, Literal, cast

from msgspec import Struct

from presilicon.formats import Format, MacUnit, Rounding, Stochastic, parse, parse_rounding
from presilicon.records import Phase, Role

Grouping = Literal["per-product", "fixed"]


class RoleFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """How the tensors of one role are stored. In a file, the format's spelling alone is enough."""

    shorthand: ClassVar[str] = "format"

    format: Format
    rounding: str | None = None
    """A rounding mode, nearest-even if none is named (a user-defined format may have a rounding of its own);
    `stochastic(bits=8, source=lfsr)` names the random source that the hardware has."""

    def check(self) -> None:
        """The rounding must be one that exists."""
        if self.rounding is not None:
            parse_rounding(self.rounding)

    @property
    def rounding_mode(self) -> Rounding | Stochastic | None:
        """The rounding as `quantize` takes it."""
        return None if self.rounding is None else cast("Rounding | Stochastic", parse_rounding(self.rounding))

    @property
    def is_stochastic(self) -> bool:
        """Whether rounding draws random numbers."""
        return isinstance(self.rounding_mode, Stochastic)

    def __str__(self) -> str:
        return str(self.format) if self.rounding is None else f"{self.format} ({self.rounding})"


FLOAT32 = RoleFormat(parse("float32"))


class Numerics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The format of each role, and the MAC unit of each product. What is not named stays in float32.

    Forward multiplies activation and weight; the input gradient, error and weight; the weight gradient, activation and
    error. The optimizer works on the master weights; `weight` is a rounded copy of them.
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
    grouping: Grouping = "per-product"
    """How block formats lie. `per-product`: along the reduction axis of each product, so that a tensor used in two of
    them is blocked twice, from its unrounded values. `fixed`: one copy, blocked along the reduction axis of the first
    product that uses it (forward; for errors the input gradient). Square tiles lie the same way in every product."""
    mac: MacUnit = MacUnit()
    """How products are added up, in all three."""
    mac_forward: MacUnit | None = None
    """In place of `mac` where it is named."""
    mac_input_grad: MacUnit | None = None
    mac_weight_grad: MacUnit | None = None

    def of(self, role: Role) -> RoleFormat:
        """The format of `role`."""
        chosen: RoleFormat = getattr(self, role)
        return chosen

    def mac_of(self, phase: Phase) -> MacUnit:
        """The MAC unit of a product."""
        chosen: MacUnit | None = getattr(self, f"mac_{phase}", None)
        return chosen or self.mac
