"""Random Hadamard transforms of the operands of a product, which spread outliers over a block."""

from functools import lru_cache
from math import prod, sqrt

import torch
from torch import Tensor

from presilicon.formats import Key, has_numba


def transform(x: Tensor, axis: int, length: int, seed: int) -> Tensor:
    """`x` in blocks of `length` (a power of two that divides the axis), each multiplied by H D / sqrt(length).

    H is the Hadamard matrix of Sylvester's construction and D a diagonal of random signs, the same for all blocks,
    layers and steps of a seed. Two operands that are transformed along the axis that their product reduces have the
    same product but for rounding, because H D / sqrt(length) is orthogonal. Additions run in a fixed order in float32,
    stage by stage, so that CPU and GPU give the same bits.

    >>> transform(torch.tensor([8.0, 0.0, 0.0, 0.0]), 0, 4, seed=0).abs()
    tensor([4., 4., 4., 4.])
    """
    if length == 1:
        return x
    axis %= x.dim()
    signs = _signs(length, seed, x.device, x.dtype)
    if x.device.type == "cpu" and x.dtype == torch.float32 and has_numba() and x.numel():
        from presilicon.emulation.ops.hadamard_numba import mixed_blocks

        return mixed_blocks(x, signs, prod(x.shape[axis + 1 :]), 1 / sqrt(length))
    mixed: Tensor = x.unflatten(axis, (-1, length)) * signs.view(-1, *[1] * (x.dim() - 1 - axis))
    half = 1
    while half < length:
        pairs = mixed.unflatten(axis + 1, (-1, 2, half))
        first, second = pairs.select(axis + 2, 0), pairs.select(axis + 2, 1)
        mixed = torch.stack((first + second, first - second), axis + 2).flatten(axis + 1, axis + 3)
        half *= 2
    out: Tensor = (mixed * (1 / sqrt(length))).reshape(x.shape)
    return out


@lru_cache(maxsize=32)
def _signs(length: int, seed: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(Key(seed, 0, f"hadamard/{length}").words(0)[0])
    return (torch.randint(0, 2, (length,), generator=generator) * 2 - 1).to(device, dtype)
