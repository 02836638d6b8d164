"""OCP microscaling: a power-of-two scale per block."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from presilicon.formats.families.block import ElementFields, PowerBlocks, element_of
from presilicon.formats.families.fixed import Fixed
from presilicon.formats.families.float import Float
from presilicon.formats.format import Format, require, require_integer, require_word
from presilicon.formats.kernels.grid import BlockGrid, float_bits, grid_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mx(ElementFields, PowerBlocks):
    """OCP microscaling: `element` numbers with one power-of-two scale (E8M0) per block.

    The scale is 2^k, k from -127 to 127, found from the block's largest magnitude amax and the element's largest value
    M with exponent emax. Elements saturate, whatever the element format does alone; where M * 2^k exceeds float32
    they stop at the largest float32 with the element's precision. A block that holds NaN or an infinity has the scale
    code NaN: all its values are NaN.

    >>> from presilicon.formats import parse
    >>> parse("mxfp4").bits_per_element, str(parse("mxfp8_e4m3(scale=rceil)"))
    (4.25, 'mx(element=e4m3fn, scale=rceil)')
    """

    kind: ClassVar[str] = "mx"

    element: Float | Fixed
    block: int = 32
    scale: Literal["floor", "ceil", "even", "rceil"] = "floor"
    """k is `floor`: floor(log2 amax) - emax, the OCP text. `ceil`: ceil(log2 amax) - emax. `even`: as floor, with amax
    first rounded half up to the element's mantissa bits. `rceil`: ceil(log2(amax / M)), the smallest that does not
    saturate."""
    axis: int = -1

    def __post_init__(self) -> None:
        name = f"mx(block={self.block})"
        object.__setattr__(self, "element", element_of(self.element, name))
        exponent = self.element.exponent_bits
        require(exponent <= 5, name, f"element must have at most 5 exponent bits, not {exponent}")
        require_integer(name, "block", self.block, 1, 1 << 20)
        require_word(name, "scale", self.scale, ("floor", "ceil", "even", "rceil"))
        require_integer(name, "axis", self.axis, -8, 7)

    @classmethod
    def names(cls) -> dict[str, Format]:
        """The concrete formats of the OCP specification."""
        return {
            "mxfp8_e5m2": Mx(Float(5, 2)),
            "mxfp8_e4m3": Mx(Float(4, 3, specials="fn")),
            "mxfp6_e3m2": Mx(Float(3, 2, specials="none")),
            "mxfp6_e2m3": Mx(Float(2, 3, specials="none")),
            "mxfp4": Mx(Float(2, 1, specials="none")),
            "mxint8": Mx(Fixed(2, 6)),
        }

    @property
    def unclipped(self) -> "Mx | None":
        """With `scale=ceil`: the rules `floor` and `even` leave a block's largest number beyond the largest float."""
        return replace(self, scale="ceil") if self.scale in ("floor", "even") and self.element.is_float else None

    @property
    def group_size(self) -> int:
        """Numbers in a block."""
        return self.block

    @property
    def bits_per_element(self) -> float:
        """Bits of the element, and 8 bits of scale per block."""
        return self.element.bits_per_element + 8 / self.block

    @property
    def _amax_bits(self) -> int:
        """Mantissa bits that the rule `even` rounds the largest magnitude to."""
        return self.element.significand_bits - (1 if self.element.is_float else 2)

    def block_grid(self) -> BlockGrid:
        """The element's grid, saturating, under the block's scale."""
        element = self.unit_format()
        fraction = float_bits(element.max) & 0x7FFFFF
        emax = (float_bits(element.max) >> 23) - 127
        bump = {
            "floor": 0,
            "ceil": (1 << 52) - 1,
            "even": 1 << (51 - self._amax_bits),
            "rceil": (1 << 52) - 1 - (fraction << 29),
        }[self.scale]
        return BlockGrid(grid_of(element), emax, bump, -127, 127, window=0, flush=0, poison=1)

    def unit_codes(self, units: "Tensor") -> "Tensor":
        """The element's codes."""
        return self.element.codes_of(units)

    def unit_values(self, codes: "Tensor") -> "Tensor":
        """The element's values."""
        return self.element.decode_tensor(codes)

    def values_at_scale(self, scale: float) -> list[float] | None:
        """All values of the element times the scale."""
        from presilicon.formats.kernels.value_lists import ordered_values

        units = ordered_values(self.element)
        return None if units is None else [value * scale for value in units]

    def unit_format(self) -> Float | Fixed:
        """The element, saturating."""
        return replace(self.element, overflow="saturate")
