"""Augmentation of training images, on the device that they are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor


def shift_and_flip(images: Tensor, generator: Generator, pixels: int = 2) -> Tensor:
    """Each image of (batch, channels, height, width) shifted by up to `pixels` both ways, and mirrored half the time.

    What a shift uncovers repeats the image's border.
    """
    import torch
    from torch.nn import functional

    count, _, height, width = images.shape
    device = images.device
    down, right = torch.randint(0, 2 * pixels + 1, (2, count, 1), generator=generator, device=device)
    rows = down + torch.arange(height, device=device)
    columns = right + torch.arange(width, device=device)
    is_mirrored = torch.rand(count, 1, generator=generator, device=device) < 0.5
    columns = torch.where(is_mirrored, columns.flip(1), columns)
    padded = functional.pad(images, (pixels,) * 4, mode="replicate")
    numbers = torch.arange(count, device=device)
    # Indices on both sides of a slice put the sliced axis, the channels, at the end.
    return padded[numbers[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
