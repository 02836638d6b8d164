"""NVFP4: a small float as the scale of each block, and a scale per tensor."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from presilicon.base import torch
from presilicon.formats.families.block import FittedBlocks
from presilicon.formats.families.float import Float
from presilicon.formats.format import Format, require_bool, require_integer, require_word
from presilicon.formats.kernels.grid import LARGEST_BITS, grid_of, value_of_bits
from presilicon.formats.kernels.passes import deliver, round_on_grid, scaled_passes_for
from presilicon.formats.rounding import Key, Mode

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.codes import BlockCodes
    from presilicon.formats.rounding import Mode

SCALE_FORMAT = Float(4, 3, specials="fn", overflow="saturate")
"""NVFP4's scale of a block."""
ELEMENT_FORMAT = Float(2, 1, specials="none")
"""NVFP4's elements."""
LEAST_SCALES = {"divide": 2.0**-9, "reciprocal": 0.0, "multiply": 2.0**-6}
"""Lower limit of a block's scale, by `Nvfp4.apply`."""
_LARGEST = value_of_bits(LARGEST_BITS)


@dataclass(frozen=True, slots=True)
class Nvfp4(FittedBlocks):
    """NVFP4: fp4_e2m1 elements, an e4m3fn scale per block of 16, a float32 scale per tensor.

    With A the tensor's and a the block's largest magnitude, every operation rounded to float32, x becomes

    - `apply = "divide"`: fp4(x / (s * t)) * (s * t) with t = A / 2688 and s = e4m3fn(a / 6 / t), at least 2^-9;
    - `apply = "reciprocal"`: fp4(x * (1 / (s * t))) * (s * t) with T = 2688 / A, t = 1 / T and s = e4m3fn(a / 6 * T)
      (Transformer Engine);
    - `apply = "multiply"`: fp4(x * (1 / t / s)) * (s * t) with t and s as in `divide`, but s at least 2^-6 (torchao).

    s is at most 448. The scales are rounded to nearest-even; the asked rounding is that of the elements. NaN counts as
    0 and infinities saturate; a tensor of zeros has t = 1.

    >>> Nvfp4().bits_per_element
    4.5
    >>> str(Nvfp4(square=True))
    'nvfp(square=true)'
    """

    kind: ClassVar[str] = "nvfp"
    element: ClassVar[Float] = ELEMENT_FORMAT

    block: int = 16
    axis: int = -1
    tensor_scale: bool = True
    """False: t = 1."""
    square: bool = False
    """True: blocks are tiles of `block` x `block` over the last two axes, and `axis` is not used."""
    apply: Literal["divide", "reciprocal", "multiply"] = "divide"
    """How the scales are computed and applied."""

    def __post_init__(self) -> None:
        name = f"nvfp(block={self.block})"
        require_integer(name, "block", self.block, 1, 1 << 20)
        require_integer(name, "axis", self.axis, -8, 7)
        require_bool(name, "tensor_scale", self.tensor_scale)
        require_bool(name, "square", self.square)
        require_word(name, "apply", self.apply, ("divide", "reciprocal", "multiply"))

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
    def bits_per_element(self) -> float:
        """Bits of the element, and 8 bits of scale per block; the tensor's scale is left out."""
        return 4 + 8 / self.block ** (2 if self.square else 1)

    def scales_of(self, largest: "Tensor") -> "tuple[Tensor, Tensor]":
        """The e4m3fn scales of blocks with these largest magnitudes, and the tensor's scale, as float32."""
        # Tensors as operands: CUDA multiplies by the rounded reciprocal of a divisor that is a Python number.
        top = largest.amax() if largest.numel() else largest.new_zeros(())
        ratio, one, most = largest / torch.full_like(largest, 6.0), torch.ones_like(top), torch.full_like(top, 2688.0)
        if self.apply == "reciprocal":
            encoding = (most / top).clamp(max=_LARGEST) if self.tensor_scale else one
            tensor, ratio = torch.where(top > 0, one / encoding, one), ratio * encoding
        else:
            tensor = top / most if self.tensor_scale else one
            tensor = torch.where(tensor >= 2.0**-126, tensor, one)
            ratio = ratio / tensor
        scales = round_on_grid(ratio, grid_of(SCALE_FORMAT), "nearest-even", Key(), None)
        return scales.clamp(min=LEAST_SCALES[self.apply]), tensor

    def factors(self, scales: "Tensor", tensor: "Tensor") -> "tuple[Tensor, Tensor]":
        """The number that elements are divided by (`divide`) or multiplied by, and the one that brings them back."""
        whole = scales * tensor
        match self.apply:
            case "divide":
                return whole, whole
            case "reciprocal":
                return (torch.ones_like(whole) / whole).clamp(max=_LARGEST), whole
        return torch.ones_like(tensor) / tensor / scales, whole

    def scaled_groups(self, x: "Tensor") -> "tuple[Tensor, Tensor, float]":
        """Blocks, and their scales times the tensor's."""
        from presilicon.formats.kernels.torch_kernels import to_groups

        blocks, _ = to_groups(x.to(torch.float32), self)
        scales, tensor = self.scales_of(torch.where(blocks.isfinite(), blocks.abs(), 0.0).amax(-1))
        return blocks, scales * tensor, ELEMENT_FORMAT.max

    def round_tensor(self, x: "Tensor", mode: "Mode", key: "Key", out: "Tensor | None") -> "Tensor":
        """One pass for the largest magnitudes and one over the elements."""
        passes = scaled_passes_for(x, mode, self)
        if passes is not None:
            result: Tensor = passes.round_nvfp4(x, self, mode, key, out)
            return result
        if x.numel() == 0:
            return deliver(x.clone(), out)
        units, scales, tensor = self._units(x, mode, key)
        return deliver((units * self._over(x, scales * tensor)).to(x.dtype), out)

    def _take_apart(self, x: "Tensor", mode: "Mode", key: "Key", amax: "Tensor | None") -> "tuple[Tensor, Tensor]":
        """Elements times the scales of their blocks, and the scale of the tensor."""
        units, scales, tensor = self._units(x, mode, key)
        return units * self._over(x, scales), tensor

    def _units(self, x: "Tensor", mode: "Mode", key: "Key") -> "tuple[Tensor, Tensor, Tensor]":
        """The elements before they are scaled back, the scales of the blocks, and that of the tensor."""
        from presilicon.formats.kernels.torch_kernels import to_groups

        finite = torch.where(torch.isfinite(x), x.abs(), 0.0).to(torch.float32)
        scales, tensor = self.scales_of(to_groups(finite, self)[0].amax(-1))
        factor = self._over(x, self.factors(scales, tensor)[0])
        clean = x.to(torch.float32).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
        ratio = clean / factor if self.apply == "divide" else clean * factor
        return round_on_grid(ratio.contiguous(), grid_of(ELEMENT_FORMAT), mode, key, None), scales, tensor

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: "Key") -> "BlockCodes":
        """fp4_e2m1 elements and e4m3fn scales."""
        from presilicon.formats.codes import BlockCodes

        units, scales, tensor = self._units(x, mode, key)
        return BlockCodes(ELEMENT_FORMAT.codes_of(units), SCALE_FORMAT.codes_of(scales), float(tensor))

    def decode_tensor(self, codes: "BlockCodes") -> "Tensor":
        """Elements times scales, in float32."""
        units = ELEMENT_FORMAT.decode_tensor(codes.elements).to(torch.float32)
        scales = SCALE_FORMAT.decode_tensor(codes.scales.to(torch.int64)).to(torch.float32)
        return units * self._over(units, scales * torch.full_like(scales, codes.tensor_scale))

    def shared_scale(self, codes: "BlockCodes", index: int) -> float:
        """The block's scale times the tensor's."""
        code = codes.scales.reshape(-1)[index // self.block]
        return float(SCALE_FORMAT.decode_tensor(code.long()).float() * codes.tensor_scale)
