"""Formats whose numbers share an exponent per block, and block floating point.

Blocks run along `axis`, counted as in torch; the last block of a row may be shorter. A GEMM operand is grouped along
its reduction axis: `fmt.along(axis)` gives the same format grouped along another one.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from presilicon.base import FormatError, torch
from presilicon.formats.families.fixed import Fixed
from presilicon.formats.families.float import Float
from presilicon.formats.format import MOST_LISTED_BITS, Format, require, require_bool, require_integer, require_word
from presilicon.formats.kernels.grid import BlockGrid, Grid, block_grid_of, float_bits, value_of_bits
from presilicon.formats.kernels.passes import round_in_blocks, scaled_passes_for

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.codes import BlockCodes
    from presilicon.formats.rounding import Key, Mode


class ElementFields:
    """Properties that a scaled format has from its `element`."""

    __slots__ = ()

    if TYPE_CHECKING:  # a real property would become the default value of the field

        @property
        def element(self) -> Float | Fixed:
            """The format of an element that is divided by its scale."""

    @property
    def bits(self) -> int:
        """Width of an element."""
        return self.element.bits

    @property
    def significand_bits(self) -> int:
        """Significand bits of the element."""
        return self.element.significand_bits

    @property
    def exponent_bits(self) -> int:
        """Exponent bits of the element."""
        return self.element.exponent_bits

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Fields of the element."""
        return self.element.code_fields(code)


def element_of(element: object, name: str) -> Float | Fixed:
    """The element of the scaled format `name`, parsed if it is text. Raises `FormatError` if it cannot be scaled."""
    if isinstance(element, str):
        from presilicon.formats.grammar import parse

        element = parse(element)
    usable = isinstance(element, Float) or (
        isinstance(element, Fixed) and element.signed and element.overflow == "saturate"
    )
    require(usable, name, f"element must be a float or a signed, saturating fixed format, not {element!r}")
    assert isinstance(element, Float | Fixed)
    width = element.significand_bits
    require(width <= 16, name, f"element must have at most 16 significant bits, not {width}")
    return element


class BlockFormat(Format):
    """A format whose numbers share something per block."""

    __slots__ = ()

    is_blocked: ClassVar[bool] = True
    has_exact_steps: ClassVar[bool] = False
    axis: int

    @property
    @abstractmethod
    def group_size(self) -> int:
        """Numbers in a block along its axis."""

    @property
    def is_square(self) -> bool:
        """Whether blocks are square tiles over the last two axes."""
        return False

    @property
    def is_oriented(self) -> bool:
        """Whether blocks lie along an axis; square tiles do not."""
        return not self.is_square

    def along(self, axis: int) -> Self:
        """The same format with blocks along another axis; itself if its blocks do not lie along an axis."""
        return cast(Self, _along(self, axis)) if self.is_oriented else self


@lru_cache(maxsize=1024)
def _along(fmt: BlockFormat, axis: int) -> BlockFormat:
    return cast(BlockFormat, replace(cast(Any, fmt), axis=axis))


class PowerBlocks(BlockFormat):
    """A block format whose scale is a power of two: units on a grid, times 2^k."""

    __slots__ = ()

    @abstractmethod
    def block_grid(self) -> BlockGrid:
        """The parameters of the block kernels; cached by `kernels.grid.block_grid_of`."""

    @abstractmethod
    def unit_codes(self, units: "Tensor") -> "Tensor":
        """The codes of elements that are divided by their scale."""

    @abstractmethod
    def unit_values(self, codes: "Tensor") -> "Tensor":
        """The values of element codes under the scale 1, as float64."""

    def exponent_of_code_zero(self, exponents: "Tensor") -> int:
        """The exponent that the scale code 0 stands for in a tensor with these block exponents."""
        return -127

    def round_tensor(self, x: "Tensor", mode: "Mode", key: "Key", out: "Tensor | None") -> "Tensor":
        """One pass over the blocks."""
        return round_in_blocks(x, self, mode, key, out)

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: "Key") -> "BlockCodes":
        """Element codes, and one exponent code per block: 255 for NaN."""
        from presilicon.formats.codes import BlockCodes
        from presilicon.formats.kernels.torch_kernels import power_of_two, shared_exponents, to_groups

        blocks, back = to_groups(x.to(torch.float64), self)
        exponents, flushed, special = shared_exponents(blocks, block_grid_of(self))
        lowest = self.exponent_of_code_zero(exponents)
        values = self.round_tensor(x, mode, key, None).to(torch.float64)
        units = to_groups(values, self)[0] / power_of_two(exponents).unsqueeze(-1)
        units = torch.where((special | flushed).unsqueeze(-1), torch.copysign(torch.zeros_like(units), units), units)
        scales = torch.where(special, 255, torch.where(flushed, 0, exponents - lowest))
        return BlockCodes(back(self.unit_codes(units)), scales, float(2.0**lowest))

    def decode_tensor(self, codes: "BlockCodes") -> "Tensor":
        """Units times the power of two of their block."""
        from presilicon.formats.kernels.torch_kernels import power_of_two, to_groups

        elements, back = to_groups(codes.elements, self)
        lowest = torch.tensor(codes.tensor_scale, dtype=torch.float64).log2().to(torch.int64).to(elements.device)
        values = self.unit_values(elements) * power_of_two(codes.scales.to(torch.int64) + lowest).unsqueeze(-1)
        if block_grid_of(self).poison:
            values = torch.where((codes.scales == 255).unsqueeze(-1), torch.nan, values)
        return back(values)

    def scaled_groups(self, x: "Tensor") -> "tuple[Tensor, Tensor, float]":
        """Blocks and their powers of two."""
        from presilicon.formats.kernels.torch_kernels import power_of_two, shared_exponents, to_groups

        blocks, _ = to_groups(x, self)
        largest = torch.where(blocks.isfinite(), blocks.abs(), 0.0).amax(-1, keepdim=True).to(torch.float64)
        exponents, _, _ = shared_exponents(largest, block_grid_of(self))
        return blocks, power_of_two(exponents), value_of_bits(block_grid_of(self).grid.max_positive)

    def shared_scale(self, codes: "BlockCodes", index: int) -> float:
        """The power of two of the element's block."""
        code = int(codes.scales.reshape(-1)[index // self.group_size])
        is_nan = bool(block_grid_of(self).poison) and code == 255
        return math.nan if is_nan else float(2.0**code) * codes.tensor_scale

    @abstractmethod
    def unit_format(self) -> "Float | Fixed":
        """The format of elements that are divided by their scale."""


class FittedBlocks(ElementFields, BlockFormat):
    """A block format whose scales are float32 numbers, fitted to the data."""

    __slots__ = ()

    def taken_apart(
        self, x: "Tensor", mode: "Mode", key: "Key", amax: "Tensor | None" = None, dtype: "torch.dtype | None" = None
    ) -> "tuple[Tensor, Tensor]":
        """The codes, in a type that holds them (float32 if none is named), and the scales that bring them back.

        The scales have the axes of `x`, with one number per row or block; those of a tensor have none.
        """
        passes = scaled_passes_for(x, mode, self) if dtype is not None and x.is_cuda and x.dim() > 1 else None
        if passes is not None:
            compiled: tuple[Tensor, Tensor] = passes.take_apart(x, self, amax, mode, key, dtype)
            return compiled
        codes, scales = self._take_apart(x, mode, key, None if amax is None else amax.detach().view(()))
        return codes if dtype is None else codes.to(dtype), scales

    @abstractmethod
    def _take_apart(self, x: "Tensor", mode: "Mode", key: "Key", amax: "Tensor | None") -> "tuple[Tensor, Tensor]":
        """`taken_apart` by torch operations, in float32."""

    def _over(self, x: "Tensor", factor: "Tensor") -> "Tensor":
        """Numbers of groups in a shape that broadcasts over `x`."""
        from presilicon.formats.kernels.torch_kernels import block_axis, to_groups

        if self.group_size:
            blocks, back = to_groups(x, self)
            return back(factor.unsqueeze(-1).expand_as(blocks))
        if not self.is_oriented:
            return factor
        return factor.movedim(-1, block_axis(tuple(x.shape), self)) if x.dim() else factor.view(())

    def round_value(self, x: float, mode: "Mode", word: int) -> float:
        """Not available: the scales come from a whole tensor."""
        raise FormatError(f"{self}: a number alone has no scale; round a tensor with quantize")

    def values_at_scale(self, scale: float) -> list[float] | None:
        """All elements times the scale, in float32."""
        from presilicon.formats.kernels.value_lists import scaled_values

        return scaled_values(self.element, scale)


@dataclass(frozen=True, slots=True)
class BlockFloat(PowerBlocks):
    """Block floating point: sign and `mantissa` magnitude bits each, one exponent per group.

    The shared exponent is that of the group's largest magnitude, E = floor(log2 max|x|); the step is
    2^(E - mantissa + 1) and magnitudes stop at 2^mantissa - 1 steps. An infinity counts as the largest float32 and
    saturates, NaN counts as 0. E is at least -126.

    >>> fmt = BlockFloat(mantissa=4, exponent=8, group=16)
    >>> fmt.bits_per_element, str(fmt)
    (5.5, 'bfp(mantissa=4)')
    """

    kind: ClassVar[str] = "bfp"
    exponent_bits: ClassVar[int] = 0
    """The exponent belongs to the group."""

    mantissa: int
    """Magnitude bits, the leading one included, 1 to 23."""
    exponent: int = 8
    """Shared-exponent bits. Fewer than 8 leave a window of 2^exponent exponents below `top`."""
    group: int = 16
    """Numbers in a group, or rows and columns of a square tile."""
    axis: int = -1
    square: bool = False
    """True: groups are tiles of `group` x `group` over the last two axes, and `axis` is not used."""
    top: int | None = None
    """The window's largest exponent; None: the largest of the tensor. Groups above it saturate."""
    below: Literal["denormal", "flush"] = "denormal"
    """Groups below the window: `denormal` keeps them at the window's lowest exponent, `flush` makes them zero."""

    def __post_init__(self) -> None:
        name = f"bfp(mantissa={self.mantissa}, exponent={self.exponent}, group={self.group})"
        require_integer(name, "mantissa", self.mantissa, 1, 23)
        require_integer(name, "exponent", self.exponent, 1, 8)
        require_integer(name, "group", self.group, 1, 1 << 20)
        require_integer(name, "axis", self.axis, -8, 7)
        require_bool(name, "square", self.square)
        require_word(name, "below", self.below, ("denormal", "flush"))
        if self.top is not None:
            require_integer(name, "top", self.top, -126, 127)

    @property
    def group_size(self) -> int:
        """Numbers in a group, or rows and columns of a tile."""
        return self.group

    @property
    def is_square(self) -> bool:
        """Whether groups are square tiles."""
        return self.square

    @property
    def bits(self) -> int:
        """Sign and magnitude."""
        return 1 + self.mantissa

    @property
    def bits_per_element(self) -> float:
        """Sign, mantissa, and the group's exponent divided by its size."""
        return self.bits + self.exponent / self.group ** (2 if self.square else 1)

    @property
    def significand_bits(self) -> int:
        """Magnitude bits."""
        return self.mantissa

    def block_grid(self) -> BlockGrid:
        """Magnitudes of `mantissa` bits below 2, under the block's exponent."""
        largest = float_bits(2.0 - 2.0 ** (1 - self.mantissa))
        grid = Grid(self.mantissa, 128, 0, largest, largest, largest, largest, 0, 1)
        span = (1 << self.exponent) - 1
        flush = int(self.below == "flush")
        if self.top is not None:
            return BlockGrid(grid, 0, 0, max(-126, self.top - span), self.top, 0, flush, poison=0)
        return BlockGrid(grid, 0, 0, -126, 127, span if self.exponent < 8 else 0, flush, poison=0)

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Sign and mantissa."""
        return [("sign", 1), ("mantissa", self.mantissa)]

    def unit_codes(self, units: "Tensor") -> "Tensor":
        """Sign and magnitude in steps."""
        steps = (units.abs() * 2.0 ** (self.mantissa - 1)).to(torch.int64)
        return steps | (torch.signbit(units).to(torch.int64) << self.mantissa)

    def unit_values(self, codes: "Tensor") -> "Tensor":
        """Steps of the smallest magnitude."""
        steps = (codes & ((1 << self.mantissa) - 1)).to(torch.float64) * 2.0 ** (1 - self.mantissa)
        return torch.where(codes >> self.mantissa == 1, -steps, steps)

    def exponent_of_code_zero(self, exponents: "Tensor") -> int:
        """The lower end of the window, or -127 without a window."""
        if self.top is None and self.exponent == 8:
            return -127
        top = self.top if self.top is not None else int(exponents.max()) if exponents.numel() else 0
        return max(top - (1 << self.exponent) + 1, -127)

    def values_at_scale(self, scale: float) -> list[float] | None:
        """All steps, positive and negative."""
        if self.mantissa > MOST_LISTED_BITS:
            return None
        steps = range(-(1 << self.mantissa) + 1, 1 << self.mantissa)
        return [n * scale * 2.0 ** (1 - self.mantissa) for n in steps]

    def unit_format(self) -> Fixed:
        """Fixed point with steps of 2^(1 - mantissa)."""
        return Fixed(2, self.mantissa - 1)
