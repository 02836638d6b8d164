"""Attention decomposed into two emulated products with a softmax between them."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from presilicon.emulation.ops.arithmetic import Arithmetic
from presilicon.emulation.ops.autograd import first_derivative
from presilicon.formats import has_triton


def scaled_dot_product(
    do: Arithmetic,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, by its documented formula."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    mask = None if attn_mask is None else _additive(attn_mask, query, hides=False)
    probabilities = _probabilities(do, query, key, mask, dropout_p, scale, is_causal=is_causal)
    return do.matmul(probabilities, value)


def _probabilities(
    do: Arithmetic,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    dropout: float,
    scale: float | None = None,
    *,
    is_causal: bool = False,
) -> Tensor:
    """Softmax of the scaled and masked scores; a row that is masked completely gives zeros."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = do.matmul(query, key.transpose(-2, -1))
    if mask is None and do.leaves_vectors and fits(scores):
        probabilities: Tensor = fused_softmax(scores, factor, is_causal=is_causal)
        return do.apply(functional.dropout, probabilities, dropout) if dropout > 0 else probabilities
    blind: Tensor | None = None
    if is_causal:
        mask = query.new_full((query.shape[-2], key.shape[-2]), -math.inf).triu(1)
    if mask is None:
        scores = do.apply(torch.Tensor.mul_, scores, factor)
    else:
        if not is_causal:
            blind = (mask == -math.inf).all(-1, keepdim=True)
            if blind.device.type == "cpu" and not blind.any():
                blind = None
            else:
                mask = mask.masked_fill(blind, 0.0)
        scores = do.apply(torch.add, mask, scores, alpha=factor)
        if do.plan.rounds_vector("activation"):
            # In a format without infinities, masked scores have become finite.
            scores.data.masked_fill_(mask == -math.inf, -math.inf)
    probabilities = do.apply(functional.softmax, scores, -1)
    if blind is not None:
        probabilities = probabilities.masked_fill(blind, 0.0)
    if dropout > 0:
        probabilities = do.apply(functional.dropout, probabilities, dropout)
    return probabilities


def multi_head(
    do: Arithmetic,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`torch.nn.functional.multi_head_attention_forward`."""
    batched = query.dim() == 3
    same = key is query, value is key
    if not batched:
        query = query.unsqueeze(1)
        key = query if same[0] else key.unsqueeze(1)
        value = key if same[1] else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    weights: tuple[Any, ...] | None = None
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    elif in_proj_weight is not None and not (same[0] and same[1]):
        weights = in_proj_weight.chunk(3)  # views of the parameter: still weights
    if weights is None:
        assert in_proj_weight is not None
        q, k, v = do.linear(query, in_proj_weight, in_proj_bias).chunk(3, dim=-1)
    else:
        biases: Any = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = (
            do.linear(x, weight, bias) for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
    mask = _joined_mask(do, attn_mask, key_padding_mask, query, num_heads, key.shape[0], is_causal)
    if bias_k is not None and bias_v is not None:
        extra_k, extra_v = (do.spread(torch.Tensor.repeat, bias, 1, batch, 1) for bias in (bias_k, bias_v))
        k, v = torch.cat([k, extra_k]), torch.cat([v, extra_v])
        mask = None if mask is None else functional.pad(mask, (0, 1))
    head = width // num_heads
    q = q.reshape(length, batch * num_heads, head).transpose(0, 1)
    k = static_k if static_k is not None else k.reshape(k.shape[0], batch * num_heads, -1).transpose(0, 1)
    v = static_v if static_v is not None else v.reshape(v.shape[0], batch * num_heads, -1).transpose(0, 1)
    if add_zero_attn:
        k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
        mask = None if mask is None else functional.pad(mask, (0, 1))
    q, k, v = (part.unflatten(0, (batch, num_heads)) for part in (q, k, v))
    probabilities = _probabilities(do, q, k, mask, dropout_p if training else 0.0)
    mixed = do.matmul(probabilities, v)
    rows = mixed.permute(2, 0, 1, 3).reshape(length * batch, -1)
    out = do.linear(rows, out_proj_weight, out_proj_bias).view(length, batch, -1)
    shown: Tensor | None = None
    if need_weights:
        shown = do.apply(torch.mean, probabilities, 1) if average_attn_weights else probabilities
    if not batched:
        return out.squeeze(1), None if shown is None else shown.squeeze(0)
    return out, shown


def _joined_mask(
    do: Arithmetic,
    attn_mask: Tensor | None,
    padding: Tensor | None,
    query: Tensor,
    heads: int,
    keys: int,
    is_causal: bool,
) -> Tensor | None:
    """Both masks as one that is added to the scores (batch, heads, queries, keys), with -inf for masked ones."""
    length, batch, _ = query.shape
    mask: Tensor | None = None
    if attn_mask is None and is_causal:
        attn_mask = torch.ones(length, keys, dtype=torch.bool, device=query.device).triu(1)
    if attn_mask is not None:
        mask = _additive(attn_mask, query)
        mask = mask.view(batch, heads, length, keys) if mask.dim() == 3 and mask.shape[0] == batch * heads else mask
    if padding is not None:
        hidden = _additive(padding, query).view(batch, 1, 1, keys)
        if mask is None:
            return hidden
        both = (mask == -math.inf) | (hidden == -math.inf)
        mask = do.apply(torch.add, mask, hidden).masked_fill(both, -math.inf)
    return mask


def _additive(mask: Tensor, like: Tensor, *, hides: bool = True) -> Tensor:
    """A mask to add to scores: -inf where a boolean mask is true if it `hides`, or false if it shows."""
    if mask.dtype != torch.bool:
        return mask
    hidden = mask if hides else mask.logical_not()
    return torch.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill_(hidden, -math.inf)


MOST_KEYS = 8192
"""Keys of a row that a program can hold."""


def fits(scores: Tensor) -> bool:
    """Whether the kernels can compute the probabilities of these scores."""
    is_plain = scores.dtype is torch.float32 and scores.is_contiguous() and scores.numel() > 0
    return scores.is_cuda and has_triton() and is_plain and scores.shape[-1] <= MOST_KEYS


def fused_softmax(scores: Tensor, factor: float, *, is_causal: bool) -> Tensor:
    """softmax(scores * factor) along the last axis on a GPU; if `is_causal`, query i sees keys 0 to i only."""
    out: Tensor = _FusedSoftmax.apply(scores, factor, is_causal)
    return out


class _FusedSoftmax(Function):
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
