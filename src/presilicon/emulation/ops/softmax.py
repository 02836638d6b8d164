"""The probabilities of attention on a GPU in one pass: scores are scaled, masked and normalized by a Triton kernel."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from presilicon.emulation.ops.autograd import first_derivative
from presilicon.formats import has_triton

MOST_KEYS = 8192
"""Keys of a row that a program can hold."""


def fits(scores: Tensor) -> bool:
    """Whether the kernels can compute the probabilities of these scores."""
    is_plain = scores.dtype is torch.float32 and scores.is_contiguous() and scores.numel() > 0
    return scores.is_cuda and has_triton() and is_plain and scores.shape[-1] <= MOST_KEYS


def probabilities(scores: Tensor, factor: float, *, is_causal: bool) -> Tensor:
    """softmax(scores * factor) along the last axis; if `is_causal`, query i sees keys 0 to i only."""
    out: Tensor = _Probabilities.apply(scores, factor, is_causal)
    return out


class _Probabilities(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, factor: float, is_causal: bool) -> Tensor:
        out = torch.empty_like(scores)
        _launch("forward", (scores, out), out, factor, is_causal)
        ctx.save_for_backward(out)
        ctx.factor, ctx.is_causal = factor, is_causal
        return out

    @staticmethod
    @first_derivative
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, None, None]:
        (out,) = ctx.saved_tensors
        gradient = torch.empty_like(out)
        _launch("backward", (error.contiguous(), out, gradient), out, ctx.factor, ctx.is_causal)
        return gradient, None, None


def _launch(name: str, tensors: tuple[Tensor, ...], like: Tensor, factor: float, is_causal: bool) -> None:
    queries, keys = like.shape[-2:]
    block = 1 << (keys - 1).bit_length()
    rows = max(1, 2048 // block)
    lines = like.numel() // keys
    from presilicon.emulation.ops import triton_softmax

    kernel = getattr(triton_softmax, f"{name}_kernel")
    kernel[(-(-lines // rows),)](
        *tensors, lines, queries, keys, factor, IS_CAUSAL=is_causal, ROWS=rows, BLOCK=block, num_warps=4
    )
