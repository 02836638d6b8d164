"""Floats with a scale per tensor, row, block or tile: the FP8 recipes of today's training software."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from presilicon.base import FormatError, torch
from presilicon.formats.families.block import FittedBlocks, element_of
from presilicon.formats.families.fixed import Fixed
from presilicon.formats.families.float import Float
from presilicon.formats.format import require, require_integer, require_word
from presilicon.formats.kernels.grid import LARGEST_BITS, grid_of, value_of_bits
from presilicon.formats.kernels.passes import deliver, round_on_grid, scaled_passes_for
from presilicon.formats.kernels.reference import float32
from presilicon.formats.rounding import Key, Mode, Rounding, Stochastic, check_rounding

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.codes import BlockCodes

_SMALLEST, _LARGEST = 2.0**-126, value_of_bits(LARGEST_BITS)
"""Limits of a scale: the normal float32 numbers."""


@dataclass(frozen=True, slots=True)
class Scaled(FittedBlocks):
    """`element` numbers with one scale per tensor, row, block or tile, fitted to the data.

    With a the largest magnitude of a group, not less than `least`, and M the largest value of the element, every
    operation rounded to float32, an element x becomes

    - `apply = "reciprocal"`: element(x * s) * (1 / s) with s = M / a (Transformer Engine, torchao);
    - `apply = "divide"`: element(x / d) * d with d = a / M (DeepSeek-V3);
    - `apply = "multiply"`: element(x * (1 / d)) * d with d = a / M (DeepGEMM).

    s is divided by 2^`margin`, and d multiplied. Both are held within [2^-126, the largest float32]; with
    `scale = "e8m0"` they are then powers of two, s rounded down and d up. A group of zeros has the scale 1 if `least`
    is 0. Elements saturate, whatever the element format does alone. A group that holds NaN or an infinity is all NaN,
    as the arithmetic of torchao makes it. The rounding mode is that of the elements; scales are rounded to
    nearest-even. float64 numbers are first rounded to float32.

    >>> from presilicon.formats import parse, quantize
    >>> import torch
    >>> quantize(torch.tensor([1.0, 0.3, -7.0]), parse("scaled(e4m3fn)"))
    tensor([ 1.0000,  0.3125, -7.0000])
    >>> weights = parse("scaled(e4m3fn, per=tile, scale=e8m0)")
    >>> weights.bits_per_element, weights.is_oriented
    (8.00048828125, False)
    """

    kind: ClassVar[str] = "scaled"

    element: Float | Fixed
    """A float, or a signed fixed-point format that saturates, of at most 16 significant bits."""
    per: Literal["tensor", "row", "block", "tile"] = "tensor"
    """What shares a scale: the whole `tensor`; a `row`, which is all numbers along `axis`; a `block` of consecutive
    numbers along `axis`; a `tile` of `block` x `block` numbers over the last two axes."""
    block: int = 128
    """Numbers in a block, or rows and columns of a tile."""
    axis: int = -1
    scale: Literal["float32", "e8m0"] = "float32"
    """The format of the scale: any float32 number, or a power of two."""
    apply: Literal["reciprocal", "divide", "multiply"] = "reciprocal"
    """How the scale is applied."""
    least: float = 0.0
    """The smallest a: 1e-12 in torchao, 1e-4 in DeepGEMM. It is compared in float64 by `reciprocal` and in float32 by
    the others, as those do."""
    margin: int = 0
    """Binades between M and the largest magnitude."""

    def __post_init__(self) -> None:
        name = f"scaled(per={self.per})"
        object.__setattr__(self, "element", element_of(self.element, name))
        require_word(name, "per", self.per, ("tensor", "row", "block", "tile"))
        require_integer(name, "block", self.block, 1, 1 << 20)
        is_used = self.per in ("block", "tile") or self.block == 128
        require(is_used, name, f"block={self.block} needs per=block or per=tile")
        require_integer(name, "axis", self.axis, -8, 7)
        require_word(name, "scale", self.scale, ("float32", "e8m0"))
        require_word(name, "apply", self.apply, ("reciprocal", "divide", "multiply"))
        is_number = isinstance(self.least, int | float) and not isinstance(self.least, bool)
        usable = is_number and 0 <= self.least <= 1
        require(usable, name, f"least must be a number from 0 to 1, not {self.least!r}")
        object.__setattr__(self, "least", float(self.least))
        require_integer(name, "margin", self.margin, 0, 32)

    @property
    def group_size(self) -> int:
        """Numbers in a block, or rows and columns of a tile; 0 for tensors and rows, which have any size."""
        return self.block if self.per in ("block", "tile") else 0

    @property
    def is_square(self) -> bool:
        """Whether groups are square tiles."""
        return self.per == "tile"

    @property
    def is_oriented(self) -> bool:
        """Whether groups are rows or blocks, which lie along an axis."""
        return self.per in ("row", "block")

    @property
    def bits_per_element(self) -> float:
        """Bits of the element, and 32 or 8 bits of scale per block or tile; scales of rows and tensors are left out."""
        members = {"block": self.block, "tile": self.block**2}.get(self.per, math.inf)
        return self.element.bits_per_element + (8 if self.scale == "e8m0" else 32) / members

    def unit_format(self) -> Float | Fixed:
        """The element, saturating."""
        return _saturating(self.element)

    # Scales

    def amax_of(self, x: "Tensor") -> "Tensor":
        """The largest magnitude of each group, in float32 and on the device of `x`; NaN in a group with NaN.

        The shape is that of the scales in `BlockCodes`: () per tensor.
        """
        x = x.detach().to(torch.float32)
        passes = scaled_passes_for(x, "nearest-even") if self.per == "tensor" else None
        if passes is not None:
            largest: Tensor = passes.largest_magnitude(x)
            return largest
        magnitude = x.abs()
        if self.group_size:
            from presilicon.formats.kernels.torch_kernels import to_groups

            return to_groups(magnitude, self)[0].amax(-1)
        if self.per == "tensor":
            return magnitude.amax() if x.numel() else magnitude.new_zeros(())
        from presilicon.formats.kernels.torch_kernels import block_axis

        axis = block_axis(tuple(x.shape), self)
        lines = magnitude.reshape(1) if x.dim() == 0 else magnitude.movedim(axis, -1)
        return lines.amax(-1, keepdim=True) if lines.shape[-1] else lines.new_zeros(*lines.shape[:-1], 1)

    def factors(self, amax: "Tensor") -> "tuple[Tensor, Tensor]":
        """The number that elements are multiplied by (or divided by, with `divide`), and the one that brings them back.

        `amax` holds the largest magnitudes of groups, as float32; no value is read back from its device.
        """
        passes = scaled_passes_for(amax, "nearest-even") if amax.device.type == "cpu" else None
        if passes is not None:
            compiled: tuple[Tensor, Tensor] = passes.scale_factors(amax, self)
            return compiled
        top, spread = self.element.max, 2.0**self.margin
        if self.apply == "reciprocal":
            largest = amax.to(torch.float64).clamp(min=self.least)
            # The quotient of two float32 numbers is the same rounded through float64.
            scale = self._held(torch.full_like(largest, top / spread) / largest, up=False)
            forward = torch.where(largest == 0, 1.0, scale)
            back = torch.ones_like(forward) / forward
        else:
            largest = amax.to(torch.float32).clamp(min=float32(self.least))
            scale = self._held(largest / torch.full_like(largest, top) * spread, up=True)
            back = torch.where(largest == 0, 1.0, scale)
            forward = back if self.apply == "divide" else torch.ones_like(back) / back
        poisoned = ~torch.isfinite(amax)
        return forward.masked_fill(poisoned, torch.nan), back.masked_fill(poisoned, torch.nan)

    def _held(self, scale: "Tensor", up: bool) -> "Tensor":
        scale = scale.to(torch.float32).clamp(_SMALLEST, _LARGEST)
        if self.scale == "float32":
            return scale
        bits = scale.view(torch.int32) + (0x7FFFFF if up else 0)
        return (bits & 0x7F800000).view(torch.float32).clamp(max=2.0**127)

    def scaled_groups(self, x: "Tensor", amax: "Tensor | None" = None) -> "tuple[Tensor, Tensor, float]":
        """The groups, and the numbers that their elements are multiplied by; `amax` as in `round_with`."""
        from presilicon.formats.kernels.torch_kernels import block_axis, to_groups

        _, scales = self.factors(self.amax_of(x) if amax is None else amax)
        if self.per == "tensor":
            return x.reshape(1, -1), scales.reshape(1), self.element.max
        if self.per == "row":
            lines = x.movedim(block_axis(tuple(x.shape), self), -1) if x.dim() else x.reshape(1)
            return lines.unsqueeze(-2), scales, self.element.max
        return to_groups(x, self)[0], scales, self.element.max

    # Rounding

    def round_tensor(self, x: "Tensor", mode: "Mode", key: Key, out: "Tensor | None") -> "Tensor":
        """One pass for the largest magnitudes and one over the elements."""
        return self._round(x, None, mode, key, out)

    def round_with(
        self,
        x: "Tensor",
        amax: "Tensor",
        *,
        rounding: Rounding | Stochastic | None = None,
        key: Key | None = None,
        out: "Tensor | None" = None,
    ) -> "Tensor":
        """`quantize(x, self)` with a largest magnitude from outside, as delayed scaling has it; only per tensor.

        `amax` is a tensor of one float32 number on the device of `x`, where it stays. Magnitudes above it saturate in
        the element, infinities too; NaN becomes what the element has for it. An `amax` of 0 gives the scale 1 if
        `least` is 0; one that is not finite makes all of the result NaN.
        """
        from presilicon.formats.quantization import check_input

        if self.per != "tensor":
            raise FormatError(f"{self}: round_with needs per=tensor, not per={self.per}")
        if amax.numel() != 1:
            raise FormatError(f"{self}: amax must be a tensor of one number, not of shape {tuple(amax.shape)}")
        return self._round(check_input(x, self), amax.detach().view(()), check_rounding(rounding), key or Key(), out)

    def _round(self, x: "Tensor", amax: "Tensor | None", mode: "Mode", key: Key, out: "Tensor | None") -> "Tensor":
        passes = scaled_passes_for(x, mode, self)
        if passes is not None:
            result: Tensor = passes.round_scaled(x, self, amax, mode, key, out)
            return result
        if x.numel() == 0:
            return deliver(x.clone(), out)
        units, back = self._units(x, amax, mode, key)
        return deliver((units * self._over(x, back)).to(x.dtype), out)

    def _take_apart(self, x: "Tensor", mode: "Mode", key: Key, amax: "Tensor | None") -> "tuple[Tensor, Tensor]":
        """The elements, and their scales."""
        from presilicon.formats.kernels.torch_kernels import block_axis

        units, back = self._units(x, amax, mode, key)
        return units, back.movedim(-1, block_axis(tuple(x.shape), self)) if self.is_oriented else back

    def _units(self, x: "Tensor", amax: "Tensor | None", mode: "Mode", key: Key) -> "tuple[Tensor, Tensor]":
        """The elements before they are scaled back, and the scales that do it."""
        x = x.to(torch.float32)
        forward, back = self.factors(self.amax_of(x) if amax is None else amax)
        factor = self._over(x, forward)
        ratio = x / factor if self.apply == "divide" else x * factor
        return round_on_grid(ratio.contiguous(), grid_of(self.unit_format()), mode, key, None), back

    # Codes

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: Key) -> "BlockCodes":
        """The element's codes, and the float32 numbers that they are multiplied by."""
        from presilicon.formats.codes import BlockCodes

        units, back = self._units(x, None, mode, key)
        return BlockCodes(self.element.codes_of(units), back)

    def decode_tensor(self, codes: "BlockCodes") -> "Tensor":
        """Elements times scales, in float32."""
        units = self.element.decode_tensor(codes.elements).to(torch.float32)
        return units * self._over(units, codes.scales)

    def shared_scale(self, codes: "BlockCodes", index: int) -> float:
        """The number that the element is multiplied by."""
        return float(codes.scales.reshape(-1)[index // self.group_size if self.group_size else 0])


@lru_cache(maxsize=256)
def _saturating(element: Float | Fixed) -> Float | Fixed:
    return replace(element, overflow="saturate")
