"""Numbers with float32 scales, taken apart: tensor cores multiply the codes, and sums are scaled afterwards."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from presilicon.base import torch
from presilicon.formats.families.float import Float
from presilicon.formats.families.nvfp import Nvfp4
from presilicon.formats.families.scaled import Scaled
from presilicon.formats.format import Format
from presilicon.formats.rounding import Key, Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from presilicon.formats.mac.unit import MacUnit


@dataclass(frozen=True, eq=False)
class Factored:
    """Numbers as codes times scales.

    Scales have the axes of the codes, of length 1 where they are shared; along an axis of blocks there is one per
    block. A scale of the whole tensor has no axes.
    """

    codes: "Tensor"
    scales: "Tensor"
    block: int = 0
    """Codes per scale along an axis that is neither as long as the codes nor 1."""

    @property
    def shape(self) -> "torch.Size":
        """The shape of the numbers."""
        return self.codes.shape

    @property
    def device(self) -> "torch.device":
        """The device of codes and scales."""
        return self.codes.device

    @property
    def mT(self) -> "Factored":  # noqa: N802, as torch spells it
        """The transposed matrices."""
        return Factored(self.codes.mT, self.scales.mT if self.scales.dim() else self.scales, self.block)

    def t(self) -> "Factored":
        """The transposed matrix."""
        return self.mT

    def reshape(self, rows: int, columns: int) -> "Factored":
        """One matrix whose columns are the last axis."""
        scales = self.scales.reshape(rows, self.scales.shape[-1]) if self.scales.dim() else self.scales
        return Factored(self.codes.reshape(rows, columns), scales, self.block)

    def values(self) -> "Tensor":
        """The numbers, each rounded to float32."""
        return self.codes.to(torch.float32) * self.along(0).along(1).scales

    def along(self, axis: int) -> "Factored":
        """The same numbers with a scale for each row (0) or column (1) of the matrices, where blocks shared one."""
        where = axis - 2
        if not self.scales.dim() or self.scales.shape[where] in (1, self.codes.shape[where]):
            return self
        scales = self.scales.repeat_interleave(self.block, where).narrow(where, 0, self.codes.shape[where])
        return Factored(self.codes, scales, self.block)


def code_format(fmt: Format) -> Format | None:
    """The format of the numbers that are left when float32 scales are taken out; None for formats without them.

    The codes of NVFP4 are its elements times the scales of their blocks, which is exact.
    """
    if isinstance(fmt, Scaled):
        return fmt.unit_format()
    return Float(8, 7) if isinstance(fmt, Nvfp4) else None


def block_of(fmt: Format) -> int:
    """Numbers along an axis that share a float32 scale; 0 where a row or a tensor does."""
    return fmt.block if isinstance(fmt, Scaled) and fmt.per in ("block", "tile") else 0


def factored(
    x: "Tensor", fmt: Format, mode: "Mode | None", key: Key | None, *, amax: "Tensor | None" = None
) -> Factored:
    """A tensor in a format with float32 scales, taken apart; `amax` as in `Scaled.round_with`.

    On a GPU with tensor cores the codes have the type that these read.
    """
    from presilicon.formats.mac.tensor_core import has_tensor_cores

    assert isinstance(fmt, Scaled | Nvfp4)
    dtype = None
    if has_tensor_cores(x.device):
        from presilicon.formats.mac.tensor_core_gpu import type_of

        dtype = type_of(code_format(fmt))
    mode, key = fmt.own_rounding if mode is None else mode, key or Key()
    codes, scales = fmt.taken_apart(x, mode, key, amax, dtype)
    return Factored(codes, scales, block_of(fmt))


def multiply_factored(
    a: "Factored | Tensor",
    b: "Factored | Tensor",
    mac: "MacUnit",
    key: Key | None,
    bias: "Tensor | None",
    matmul: "Callable[..., Tensor]",
) -> "Tensor":
    """The product of the codes, multiplied by the product of the scales.

    Where blocks have scales, the sum of each block is scaled before it is added to the others, in float32.
    """
    a, b = as_factored(a).along(0), as_factored(b).along(1)
    counts = [x.scales.shape[axis] if x.scales.dim() else 1 for x, axis in ((a, -1), (b, -2))]
    if max(counts) == 1:
        out = matmul(a.codes, b.codes, mac, key=key) * (a.scales * b.scales)
    else:
        single = mac.of_one_chunk()
        block = a.block or b.block
        out = torch.zeros((), device=a.device)
        for number, first in enumerate(range(0, a.shape[-1], block)):
            length = min(block, a.shape[-1] - first)
            left, right = a.codes.narrow(-1, first, length), b.codes.narrow(-2, first, length)
            scale = _scale_at(a.scales, -1, number) * _scale_at(b.scales, -2, number)
            own = key if key is None or not number else replace(key, tensor=f"{key.tensor}/block{number}")
            out = out + matmul(left, right, single, key=own) * scale
    return out if bias is None else out + bias


def as_factored(x: "Factored | Tensor") -> Factored:
    """Numbers without scales have a scale of 1."""
    return x if isinstance(x, Factored) else Factored(x, torch.ones((), device=x.device))


def _scale_at(scales: "Tensor", axis: int, number: int) -> "Tensor":
    """The scales of one block; those of a whole row or tensor serve all blocks."""
    return scales.narrow(axis, number, 1) if scales.dim() and scales.shape[axis] > 1 else scales
