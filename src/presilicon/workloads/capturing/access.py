"""Order in which ops meet the memory of their tensors, from strides, for channels-first and channels-last images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from torch import Tensor

from presilicon.records import Access, OpKind


class Accesses:
    """Follows a step op by op, and says how each one meets its tensors.

    Models are captured as they are, usually channels first. So that the same graph serves channels last, tensors that
    hold images are followed through ops and views: their channels are at a stride of as many elements as an image has
    pixels, and would be innermost.
    """

    def __init__(self, number: Callable[[Tensor], int]) -> None:
        self._number = number
        self._pixels: dict[int, int] = {}
        """Pixels of the images in a storage."""

    def note_existing(self, tensor: Tensor) -> None:
        """Note a tensor from before the step: with four dimensions, it holds images or kernels in the same layout."""
        self._note(tensor, [], is_image=tensor.is_floating_point())

    def access(self, last_axis: bool, kind: OpKind, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> Access:
        """Access of the next op to its largest tensors, all of which it walks through together.

        A product needs unit stride in one of the last two dimensions of each factor, because libraries transpose on the
        fly. Convolutions are left to the machine.
        """
        for tensor in writes:
            self._note(tensor, reads, is_image=kind == "convolution")
        if kind == "convolution":
            return "dense"
        if kind == "gemm":
            return "dense" if all(_has_unit_stride(tensor) for tensor in reads[:2]) else "strided"
        size = max((tensor.numel() for tensor in (*reads, *writes)), default=0)
        whole = [tensor for tensor in (*reads, *writes) if tensor.numel() == size and 0 not in tensor.stride()]
        whole = [tensor for tensor in whole if tensor.squeeze().dim() > 1]
        first = _agree(whole, [_dimension(tensor, 1) for tensor in whole], last_axis)
        last = _agree(whole, [self._innermost_channels_last(tensor) for tensor in whole], last_axis)
        return _ACCESS[first, last]

    def _innermost_channels_last(self, tensor: Tensor) -> int:
        channels = _dimension(tensor, self._pixels.get(self._number(tensor), 1))
        # A view that merges the channels with other dimensions would be a copy.
        return channels if channels >= 0 else _dimension(tensor, 1)

    def _note(self, result: Tensor, reads: Sequence[Tensor], is_image: bool) -> None:
        """Note whether a result holds images: a convolution's do, and those computed from images in their order."""
        number, pixels = self._number(result), prod(result.shape[2:])
        by_size = sorted((self._pixels.get(self._number(tensor), 0), tensor.stride()) for tensor in reads)
        images = {stride: size for size, stride in by_size}
        is_image |= any(len(stride) == 4 and stride[1] == size > 1 for stride, size in images.items())
        if is_image and result.dim() == 4 and result.stride(1) == pixels > 1:
            self._pixels[number] = pixels
        elif images.get(result.stride()):
            self._pixels[number] = images[result.stride()]


_ACCESS: dict[tuple[bool, bool], Access] = {
    (True, True): "dense",
    (False, True): "strided-contiguous",
    (True, False): "strided-channels-last",
    (False, False): "strided",
}


def _agree(tensors: Sequence[Tensor], innermost: Sequence[int], by_rows: bool) -> bool:
    """Whether tensors with these innermost dimensions can be walked through together."""
    known = {(tensor.dim(), position) for tensor, position in zip(tensors, innermost, strict=True)}
    known |= {(tensor.dim(), tensor.dim() - 1) for tensor in tensors if by_rows}
    return len(known) < 2 and all(position >= 0 for _, position in known)


def _dimension(tensor: Tensor, stride: int) -> int:
    """The dimension of a stride; -1 if there is none, as in every second column of a matrix."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return next((position for position, (length, step) in enumerate(steps) if length > 1 and step == stride), -1)


def _has_unit_stride(tensor: Tensor) -> bool:
    return any(length == 1 or step == 1 for length, step in zip(tensor.shape[-2:], tensor.stride()[-2:], strict=True))
