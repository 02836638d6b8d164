"""Formats with a scale per block: OCP microscaling and NVFP4."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from presilicon.base import FormatError
from presilicon.formats.families.block import BlockFormat, PowerBlocks
from presilicon.formats.families.fixed import Fixed
from presilicon.formats.families.float import Float
from presilicon.formats.format import Format, require, require_bool, require_integer, require_word
from presilicon.formats.kernels.grid import BlockGrid, float_bits, grid_of
from presilicon.formats.kernels.passes import cpu_passes_for, deliver, round_on_grid
from presilicon.formats.kernels.reference import floor_log2

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.codes import BlockCodes
    from presilicon.formats.rounding import Key, Stochastic

SCALE_FORMAT = Float(4, 3, specials="fn", overflow="saturate")
"""NVFP4's scale of a block."""
ELEMENT_FORMAT = Float(2, 1, specials="none")
"""NVFP4's elements."""


@dataclass(frozen=True, slots=True)
class Mx(PowerBlocks):
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
        if isinstance(self.element, str):  # type: ignore[unreachable]
            from presilicon.formats.grammar import parse  # type: ignore[unreachable]

            object.__setattr__(self, "element", parse(self.element))
        name = f"mx(block={self.block})"
        usable = isinstance(self.element, Float) or (
            isinstance(self.element, Fixed) and self.element.signed and self.element.overflow == "saturate"
        )
        rule = f"element must be a float or a signed, saturating fixed format, not {self.element!r}"
        require(usable, name, rule)
        width, exponent = self.element.significand_bits, self.element.exponent_bits
        require(width <= 16, name, f"element must have at most 16 significant bits, not {width}")
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
    def group_size(self) -> int:
        """Numbers in a block."""
        return self.block

    @property
    def bits(self) -> int:
        """Width of an element."""
        return self.element.bits

    @property
    def bits_per_element(self) -> float:
        """Bits of the element, and 8 bits of scale per block."""
        return self.element.bits_per_element + 8 / self.block

    @property
    def significand_bits(self) -> int:
        """Significand bits of the element."""
        return self.element.significand_bits

    @property
    def exponent_bits(self) -> int:
        """Exponent bits of the element."""
        return self.element.exponent_bits

    @property
    def has_negative_zero(self) -> bool:
        """Whether the element has -0."""
        return self.element.has_negative_zero

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

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Fields of the element."""
        return self.element.code_fields(code)

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

    def unit_limit(self, negative: bool) -> Fraction:
        """The largest magnitude of the element with this sign."""
        return Fraction(-self.element.min if negative else self.element.max)

    def block_exponent(self, largest: Fraction) -> int:
        """k by the rule `scale`."""
        floor, top = floor_log2(largest), Fraction(self.element.max)
        emax = floor_log2(top)
        match self.scale:
            case "floor":
                return floor - emax
            case "ceil":
                return floor - emax + int(largest > Fraction(2) ** floor)
            case "rceil":
                ratio = largest / top
                return floor_log2(ratio) + int(ratio > Fraction(2) ** floor_log2(ratio))
        step = Fraction(2) ** (floor - self._amax_bits)
        return floor_log2(math.floor(largest / step + Fraction(1, 2)) * step) - emax

    def exponent_limits(self, exponents: list[int]) -> tuple[int, int]:
        """Those of E8M0."""
        return -127, 127

    def special_value(self, x: float, block: list[float], is_below: bool) -> float | None:
        """NaN in a block with NaN or an infinity."""
        return None if all(math.isfinite(member) for member in block) else math.nan


@dataclass(frozen=True, slots=True)
class Nvfp4(BlockFormat):
    """NVFP4: fp4_e2m1 elements, an e4m3fn scale per block of 16, a float32 scale per tensor.

    With A the tensor's and a the block's largest magnitude: t = A / 2688, s = e4m3fn(a / 6 / t) held within
    [2^-9, 448], x becomes fp4(x / (s * t)) * (s * t), every operation rounded to float32. The scales are rounded to
    nearest-even; the asked rounding is that of the elements. NaN counts as 0 and infinities saturate; a tensor of
    zeros has t = 1.

    >>> Nvfp4().bits_per_element
    4.5
    """

    kind: ClassVar[str] = "nvfp"

    block: int = 16
    axis: int = -1
    tensor_scale: bool = True
    """False: t = 1."""

    def __post_init__(self) -> None:
        name = f"nvfp(block={self.block})"
        require_integer(name, "block", self.block, 1, 1 << 20)
        require_integer(name, "axis", self.axis, -8, 7)
        require_bool(name, "tensor_scale", self.tensor_scale)

    @classmethod
    def names(cls) -> dict[str, Format]:
        """NVFP4 as NVIDIA defines it."""
        return {"nvfp4": Nvfp4()}

    @property
    def group_size(self) -> int:
        """Numbers in a block."""
        return self.block

    @property
    def bits(self) -> int:
        """Width of an element."""
        return ELEMENT_FORMAT.bits

    @property
    def bits_per_element(self) -> float:
        """Bits of the element, and 8 bits of scale per block; the tensor's scale is left out."""
        return 4 + 8 / self.block

    @property
    def significand_bits(self) -> int:
        """Significand bits of the element."""
        return ELEMENT_FORMAT.significand_bits

    @property
    def exponent_bits(self) -> int:
        """Exponent bits of the element."""
        return ELEMENT_FORMAT.exponent_bits

    def scale_of_tensor(self, largest: "Tensor") -> "Tensor":
        """The tensor's scale, from its largest finite magnitude."""
        import torch

        one = torch.ones_like(largest)
        # A tensor as divisor: CUDA multiplies by the rounded reciprocal of a Python number.
        scale = largest / largest.new_tensor(2688.0) if self.tensor_scale else one
        return torch.where(scale >= 2.0**-126, scale, one)

    def scales_of(self, x: "Tensor") -> "tuple[Tensor, Tensor]":
        """The e4m3fn scale of each block (..., blocks) and the tensor's scale, as float32."""
        import torch

        from presilicon.formats.kernels.torch_blocks import to_groups
        from presilicon.formats.kernels.torch_kernels import round_to_grid

        finite = torch.where(torch.isfinite(x), x.abs(), 0.0).to(torch.float32)
        blocks, _ = to_groups(finite, self)
        tensor = self.scale_of_tensor(finite.amax() if x.numel() else finite.new_zeros(()))
        ratio = blocks.amax(-1) / tensor.new_tensor(6.0) / tensor
        scales = round_to_grid(ratio, grid_of(SCALE_FORMAT), "nearest-even").clamp(min=2.0**-9)
        return scales, tensor

    def round_tensor(self, x: "Tensor", mode: "str | Stochastic", key: "Key", out: "Tensor | None") -> "Tensor":
        """Division by the scales, one pass over the element's grid, product with the scales."""
        passes = cpu_passes_for(x, mode)
        if passes is not None:
            result: Tensor = passes.round_nvfp4(x, self, mode, key, out)
            return result
        return deliver(self._round_scaled(x, mode, key), out)

    def _round_scaled(self, x: "Tensor", mode: "str | Stochastic", key: "Key") -> "Tensor":
        import torch

        from presilicon.formats.kernels.torch_blocks import to_groups

        if x.numel() == 0:
            return x.clone()
        scales, tensor = self.scales_of(x)
        blocks, back = to_groups(x.to(torch.float32), self)
        divisor = back((scales * tensor).unsqueeze(-1).expand_as(blocks))
        clean = x.to(torch.float32).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
        elements = round_on_grid((clean / divisor).contiguous(), grid_of(ELEMENT_FORMAT), mode, key, None)
        return (elements * divisor).to(x.dtype)

    def round_value(self, x: float, mode: "str | Stochastic", word: int) -> float:
        """Not available: a number alone has no scale."""
        raise FormatError(f"{self}: the reference does not have scales that are not powers of two")

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Fields of the element."""
        return ELEMENT_FORMAT.code_fields(code)

    def encode_tensor(self, x: "Tensor", mode: "str | Stochastic", key: "Key") -> "BlockCodes":
        """fp4_e2m1 elements and e4m3fn scales."""
        import torch

        from presilicon.formats.codes import BlockCodes
        from presilicon.formats.kernels.torch_blocks import to_groups

        scales, tensor = self.scales_of(x)
        values, back = to_groups(self.round_tensor(x, mode, key, None).to(torch.float32), self)
        units = torch.round(values / (scales * tensor).unsqueeze(-1) * 2) / 2
        return BlockCodes(back(ELEMENT_FORMAT.codes_of(units)), SCALE_FORMAT.codes_of(scales), float(tensor))

    def decode_tensor(self, codes: "BlockCodes") -> "Tensor":
        """Elements times scales, in float32."""
        import torch

        from presilicon.formats.kernels.torch_blocks import to_groups

        elements, back = to_groups(codes.elements, self)
        scales = SCALE_FORMAT.decode_tensor(codes.scales.to(torch.int64)).to(torch.float32)
        whole = scales * torch.tensor(codes.tensor_scale, dtype=torch.float32, device=scales.device)
        return back(ELEMENT_FORMAT.decode_tensor(elements).to(torch.float32) * whole.unsqueeze(-1))

    def shared_scale(self, codes: "BlockCodes", index: int) -> float:
        """The block's scale times the tensor's."""
        code = codes.scales.reshape(-1)[index // self.block]
        return float(SCALE_FORMAT.decode_tensor(code.long()).float() * codes.tensor_scale)

    def values_at_scale(self, scale: float) -> list[float] | None:
        """All elements times the scale, in float32."""
        from presilicon.formats.kernels.value_lists import scaled_values

        return scaled_values(ELEMENT_FORMAT, scale)
