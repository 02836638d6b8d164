"""Grouped matrix products, as in mixtures of experts: one emulated product per group."""

from typing import Any

import torch
from torch import Tensor

from presilicon.emulation.ops.arithmetic import Arithmetic
from presilicon.emulation.ops.calls import part_call


def grouped_mm(
    do: Arithmetic, a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """`torch.nn.functional.grouped_mm`: group g ends at `offs[g]`, along the axis that a matrix operand has in common.

    Rows (a matrix by a stack), columns (a stack by a matrix) or the reduced axis (two matrices) are divided among the
    groups; two stacks are a batch. Results beyond the last group are zero, where torch leaves them undefined.
    """
    if offs is None:
        out = do.multiply(part_call(a, b, (a, b)), "grouped_mm")
    else:
        ends: list[int] = offs.tolist()
        sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        axis = None if a.dim() == b.dim() else 0 if a.dim() == 2 else 1
        lefts = _parts(a, sizes, 1 if axis is None else 0)
        rights = _parts(b, sizes, 0 if axis is None else 1)
        shape = (a.shape[-2], b.shape[-1])
        outs = [
            do.multiply(part_call(left, right, (a, b)), "grouped_mm")
            if left.numel() and right.numel()
            else a.new_zeros(left.shape[0], right.shape[1])
            for left, right in zip(lefts, rights, strict=True)
        ]
        out = torch.stack(outs) if axis is None else _padded(outs, axis, shape[axis])
    out = out if bias is None else do.apply(torch.add, out, bias)
    return out if out_dtype is None else out.to(out_dtype)


def _parts(operand: Tensor, sizes: list[int], axis: int) -> tuple[Tensor, ...]:
    """The operand of each group: a member of a stack, or a part of a matrix."""
    if operand.dim() == 3:
        return tuple(operand.unbind(0))
    rest = operand.shape[axis] - sum(sizes)
    return tuple(operand.split([*sizes, rest], axis)[:-1])


def _padded(outs: list[Tensor], axis: int, length: int) -> Tensor:
    """Results one after another along an axis, with zeros up to `length`."""
    rest = length - sum(out.shape[axis] for out in outs)
    if rest:
        shape = (rest, outs[0].shape[1]) if axis == 0 else (outs[0].shape[0], rest)
        outs = [*outs, outs[0].new_zeros(shape)]
    return torch.cat(outs, axis)
