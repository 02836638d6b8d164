"""Numerics: the format of each role that a number can play in a training step."""

from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta, Struct

from presilicon.base.errors import ConfigError
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

    stored_bits: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Bits of an element in memory, where that is more than the format needs: TensorFloat-32 has 19 and takes 32."""

    def check(self) -> None:
        """The rounding must be one that exists, and the format must fit in the bits that it is stored in."""
        if self.rounding is not None:
            parse_rounding(self.rounding)
        needed = self.format.bits_per_element
        if self.stored_bits is not None and self.stored_bits < needed:
            raise ConfigError(f"stored_bits: given {self.stored_bits}, but {self.format} needs {needed:g}")

    @property
    def bits_per_element(self) -> float:
        """Bits of an element in memory, shared exponents and scales included."""
        return self.format.bits_per_element if self.stored_bits is None else float(self.stored_bits)

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


def decode_format(kind: type, value: Any) -> Any:
    """A number format from its spelling in a file; the hook that `decode` takes."""
    if kind is Format:
        if not isinstance(value, str):
            raise ConfigError(f'given {value!r}, expected the spelling of a number format, as in "bfloat16"')
        return parse(value)
    raise TypeError(f"no rule to read a {kind.__name__}")
