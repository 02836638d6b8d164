"""Integers with a scale."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from presilicon.base import FormatError, torch
from presilicon.formats.families.fixed import Fixed
from presilicon.formats.format import Format, require, require_bool, require_integer, require_word
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.passes import deliver, round_on_grid, scaled_passes_for
from presilicon.formats.kernels.reference import float32

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.codes import BlockCodes
    from presilicon.formats.rounding import Key, Mode


@dataclass(frozen=True, slots=True)
class Integer(Format):
    """`bits`-bit integers times a scale.

    x becomes n * scale with n = round(x / scale), division and product in float32. A data-dependent scale is
    max|x| / (2^(bits-1) - 1) over the finite numbers of the tensor or channel, 1 if they are all zero. NaN becomes
    0, infinities saturate.

    >>> from presilicon.formats import parse
    >>> parse("int8") == Integer(8), str(Integer(4, scale="channel", axis=1))
    (True, 'int(bits=4, scale=channel, axis=1)')
    """

    kind: ClassVar[str] = "int"
    exponent_bits: ClassVar[int] = 0
    has_exact_steps: ClassVar[bool] = False  # the product with the scale is rounded

    bits: int
    scale: float | Literal["tensor", "channel"] = 1.0
    """A positive number, or `tensor` or `channel` to fit the data."""
    axis: int = 0
    """The channel axis: each index along it has its own scale."""
    signed: bool = True

    def __post_init__(self) -> None:
        name = f"int({self.bits})"
        require_integer(name, "bits", self.bits, 2, 24, wider_integer(self.bits))
        require_integer(name, "axis", self.axis, -8, 7)
        require_bool(name, "signed", self.signed)
        if isinstance(self.scale, str):
            require_word(name, "scale", self.scale, ("tensor", "channel"))
        else:
            number = isinstance(self.scale, int | float) and not isinstance(self.scale, bool)
            usable = number and 2.0**-100 <= self.scale <= 2.0**100
            rule = f"scale must be a number from 2^-100 to 2^100, tensor or channel, not {self.scale!r}"
            require(usable, name, rule)
            object.__setattr__(self, "scale", float(self.scale))

    @classmethod
    def names(cls) -> dict[str, Format]:
        """Integers of the usual widths, with scale 1."""
        return {"int8": Integer(8), "int4": Integer(4)}

    @property
    def significand_bits(self) -> int:
        """The whole width."""
        return self.bits

    @property
    def is_twos_complement(self) -> bool:
        """Whether the integers are signed and not scaled."""
        return self.signed and self.scale == 1.0

    @property
    def has_shared_scales(self) -> bool:
        """Whether the scale fits the data."""
        return isinstance(self.scale, str)

    @property
    def codes(self) -> Fixed:
        """The integers that are stored, as a format of their own."""
        return Fixed(self.bits, 0, signed=self.signed)

    def as_row(self) -> "Integer":
        """Each number of the row is a channel."""
        return replace(self, axis=0)

    def scale_for(self, x: "Tensor") -> "Tensor":
        """The scale for a tensor, in a shape that broadcasts over it."""
        if not isinstance(self.scale, str):
            return torch.tensor(self.scale, dtype=torch.float32, device=x.device).to(x.dtype)
        axis = self._channel_axis(x)
        passes = scaled_passes_for(x, "nearest-even")
        if passes is not None:
            shape = [n if d == axis else 1 for d, n in enumerate(x.shape)]
            largest = passes.largest_by_channel(x, axis).view(() if axis is None else shape)
        else:
            magnitude = torch.where(torch.isfinite(x), x.abs(), 0.0)
            others = [d for d in range(x.dim()) if d != axis]
            if x.numel() == 0:
                largest = magnitude.new_zeros(()) if axis is None else magnitude
            else:
                largest = magnitude.amax(others, keepdim=axis is not None) if others else magnitude
        # A tensor as divisor: CUDA multiplies by the rounded reciprocal of a Python number.
        scale = (largest / torch.full_like(largest, self.codes.max)).to(torch.float32).to(x.dtype)
        return torch.where(scale > 0, scale, 1.0)

    def scaled_groups(self, x: "Tensor") -> "tuple[Tensor, Tensor, float] | None":
        """The channels, or the whole tensor as one group."""
        if not self.has_shared_scales:
            return None
        axis = self._channel_axis(x)
        groups = x.reshape(1, -1) if axis is None else x.movedim(axis, 0).reshape(x.shape[axis], -1)
        return groups, self.scale_for(x).reshape(-1), self.codes.max

    def _channel_axis(self, x: "Tensor") -> int | None:
        """The axis whose indices have their own scales, counted from 0; None: one scale for the tensor."""
        if self.scale != "channel" or x.dim() == 0:
            return None
        if not -x.dim() <= self.axis < x.dim():
            raise FormatError(f"{self}: axis {self.axis} does not exist in a tensor of shape {tuple(x.shape)}")
        return self.axis % x.dim()

    def round_tensor(self, x: "Tensor", mode: "Mode", key: "Key", out: "Tensor | None") -> "Tensor":
        """Division by the scale, one pass over the grid of the integers, product with the scale."""
        if self.scale == 1.0:
            return round_on_grid(x, grid_of(self.codes), mode, key, out)
        scale = self.scale_for(x)
        passes = scaled_passes_for(x, mode)
        if passes is not None:
            result: Tensor = passes.round_by_channel(
                x, scale, self._channel_axis(x), grid_of(self.codes), mode, key, out
            )
            return result
        return deliver(round_on_grid(x / scale, grid_of(self.codes), mode, key, None) * scale, out)

    def round_value(self, x: float, mode: "Mode", word: int) -> float:
        """Every operation rounded to float32; only for a scale that is a number."""
        if isinstance(self.scale, str):
            raise FormatError(f"{self}: the reference does not have scales that fit the data")
        scale = float32(self.scale)
        return float32(self.codes.round_value(float32(x / scale), mode, word) * scale)

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: "Key") -> "Tensor | BlockCodes":
        """The integers; scales that fit the data come with them."""
        from presilicon.formats.codes import BlockCodes

        scale = self.scale_for(x)
        elements = self.codes.encode_tensor(x / scale, mode, key)
        return BlockCodes(elements, scale) if self.has_shared_scales else elements

    def decode_tensor(self, codes: "Tensor | BlockCodes") -> "Tensor":
        """The integers times the scale, in float32."""
        from presilicon.formats.codes import BlockCodes

        elements = codes.elements if isinstance(codes, BlockCodes) else codes
        steps = self.codes.decode_tensor(elements).to(torch.float32)
        return steps * (codes.scales if isinstance(codes, BlockCodes) else self.scale_for(steps))

    def shared_scale(self, codes: "BlockCodes", index: int) -> float:
        """The scale of the tensor, or of the element's channel."""
        scales = codes.scales.reshape(-1)
        return float(scales[index if len(scales) > 1 else 0])

    def values_at_scale(self, scale: float) -> list[float] | None:
        """All integers times the scale, in float32."""
        from presilicon.formats.kernels.value_lists import scaled_values

        return scaled_values(self.codes, scale)


def wider_integer(bits: object) -> str:
    """Advice for integers of 25 to 32 bits, which `int` does not have; empty for other widths."""
    if isinstance(bits, int) and 24 < bits <= 32:
        return f"whole numbers of {bits} bits that saturate, without a scale, are fixed({bits}, 0)"
    return ""
