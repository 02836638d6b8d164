"""NVFP4: a small float as the scale of each block, and a scale per tensor."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from presilicon.base import FormatError
from presilicon.formats.families.block import BlockFormat
from presilicon.formats.families.float import Float
from presilicon.formats.format import Format, require_bool, require_integer
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.passes import cpu_passes_for, deliver, round_on_grid
from presilicon.formats.kernels.reference import float32, word_of

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.codes import BlockCodes
    from presilicon.formats.rounding import Key, Stochastic

SCALE_FORMAT = Float(4, 3, specials="fn", overflow="saturate")
"""NVFP4's scale of a block."""
ELEMENT_FORMAT = Float(2, 1, specials="none")
"""NVFP4's elements."""


@dataclass(frozen=True, slots=True)
class Nvfp4(BlockFormat):
    """NVFP4: fp4_e2m1 elements, an e4m3fn scale per block of 16, a float32 scale per tensor.

    With A the tensor's and a the block's largest magnitude: t = A / 2688, s = e4m3fn(a / 6 / t) held within
    [2^-9, 448], x becomes fp4(x / (s * t)) * (s * t), every operation rounded to float32. The scales are rounded to
    nearest-even; the asked rounding is that of the elements. NaN counts as 0 and infinities saturate; a tensor of
    zeros has t = 1.

    >>> Nvfp4().bits_per_element
    4.5
    >>> str(Nvfp4(square=True))
    'nvfp(square=true)'
    """

    kind: ClassVar[str] = "nvfp"

    block: int = 16
    axis: int = -1
    tensor_scale: bool = True
    """False: t = 1."""
    square: bool = False
    """True: blocks are tiles of `block` x `block` over the last two axes, and `axis` is not used."""

    def __post_init__(self) -> None:
        name = f"nvfp(block={self.block})"
        require_integer(name, "block", self.block, 1, 1 << 20)
        require_integer(name, "axis", self.axis, -8, 7)
        require_bool(name, "tensor_scale", self.tensor_scale)
        require_bool(name, "square", self.square)

    @classmethod
    def names(cls) -> dict[str, Format]:
        """NVFP4 as NVIDIA defines it."""
        return {"nvfp4": Nvfp4()}

    @property
    def group_size(self) -> int:
        """Numbers in a block, or rows and columns of a tile."""
        return self.block

    @property
    def is_square(self) -> bool:
        """Whether blocks are square tiles."""
        return self.square

    @property
    def bits(self) -> int:
        """Width of an element."""
        return ELEMENT_FORMAT.bits

    @property
    def bits_per_element(self) -> float:
        """Bits of the element, and 8 bits of scale per block; the tensor's scale is left out."""
        return 4 + 8 / self.block ** (2 if self.square else 1)

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

    def scaled_groups(self, x: "Tensor") -> "tuple[Tensor, Tensor, float]":
        """Blocks, and their scales times the tensor's."""
        from presilicon.formats.kernels.torch_blocks import to_groups

        scales, tensor = self.scales_of(x)
        return to_groups(x, self)[0], scales * tensor, ELEMENT_FORMAT.max

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
        """Not available: the scales come from a whole tensor; see `round_values`."""
        raise FormatError(f"{self}: a number alone has no scale; round a tensor with quantize")

    def round_values(
        self, values: list[float], shape: tuple[int, ...], mode: "str | Stochastic", key: "Key"
    ) -> list[float]:
        """The definition, one number at a time."""
        magnitudes = [abs(x) if math.isfinite(x) else 0.0 for x in values]
        tensor = float32(max(magnitudes, default=0.0) / 2688) if self.tensor_scale else 1.0
        tensor = tensor if tensor >= 2.0**-126 else 1.0
        results = [0.0] * len(values)
        for members in self.members(shape):
            largest = max(magnitudes[i] for i in members)
            ratio = float32(float32(largest / 6) / tensor)
            whole = float32(max(SCALE_FORMAT.round_value(ratio, "nearest-even", 0), 2.0**-9) * tensor)
            for i in members:
                x = 0.0 if math.isnan(values[i]) else values[i]
                unit = ELEMENT_FORMAT.round_value(float32(x / whole), mode, word_of(key, i, mode))
                results[i] = float32(unit * whole)
        return results

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
