"""NVFP4: blocks whose scales are numbers, not powers of two."""

from collections.abc import Callable

import torch
from torch import Tensor

from presilicon.formats.block import Nvfp4
from presilicon.formats.float import Float
from presilicon.formats.grid import grid_of
from presilicon.formats.torch_blocks import to_groups
from presilicon.formats.torch_kernels import round_to_grid

SCALE_FORMAT = Float(4, 3, specials="fn", overflow="saturate")
ELEMENT_FORMAT = Float(2, 1, specials="none")


def block_scales(x: Tensor, fmt: Nvfp4) -> tuple[Tensor, Tensor]:
    """The e4m3fn scale of each block (..., blocks) and the tensor's scale, as float32."""
    finite = torch.where(torch.isfinite(x), x.abs(), 0.0).to(torch.float32)
    blocks, _ = to_groups(finite, fmt)
    tensor = tensor_scale(finite.amax() if x.numel() else finite.new_zeros(()), fmt)
    ratio = blocks.amax(-1) / 6.0 / tensor
    scales = round_to_grid(ratio, grid_of(SCALE_FORMAT), "nearest-even").clamp(min=2.0**-9)
    return scales, tensor


def tensor_scale(largest: Tensor, fmt: Nvfp4) -> Tensor:
    """The tensor's scale, from its largest finite magnitude."""
    one = torch.ones_like(largest)
    tensor = largest / 2688.0 if fmt.tensor_scale else one
    return torch.where(tensor >= 2.0**-126, tensor, one)


def round_scaled_blocks(x: Tensor, fmt: Nvfp4, round_elements: Callable[[Tensor], Tensor]) -> Tensor:
    """`x` in NVFP4, its scaled elements rounded by `round_elements`."""
    if x.numel() == 0:
        return x.clone()
    scales, tensor = block_scales(x, fmt)
    whole = (scales * tensor).unsqueeze(-1)
    blocks, back = to_groups(x.to(torch.float32), fmt)
    divisor = back(whole.expand_as(blocks))
    clean = x.to(torch.float32).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
    return (round_elements((clean / divisor).contiguous()) * divisor).to(x.dtype)
