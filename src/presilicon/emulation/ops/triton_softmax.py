"""Softmax of scaled and masked scores, and its derivative, in Triton; some rows per program."""

import triton
import triton.language as tl


@triton.jit
def _places(lines, queries, keys, IS_CAUSAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of the rows of a program, and which of their scores count."""
    line = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    key = tl.arange(0, BLOCK)
    inside = (line < lines)[:, None] & (key < keys)[None, :]
    counts = inside
    if IS_CAUSAL:
        counts = inside & (key[None, :] <= (line % queries)[:, None])
    return line[:, None] * keys + key[None, :], inside, counts


@triton.jit
def forward_kernel(
    scores, out, lines, queries, keys, factor, IS_CAUSAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Probabilities."""
    offset, inside, counts = _places(lines, queries, keys, IS_CAUSAL, ROWS, BLOCK)
    x = tl.load(scores + offset, mask=counts, other=-float("inf")) * factor
    x = tl.where(counts, x, -float("inf"))
    power = tl.exp(x - tl.max(x, 1, keep_dims=True))
    tl.store(out + offset, power / tl.sum(power, 1, keep_dims=True), mask=inside)


@triton.jit
def backward_kernel(
    error, out, gradient, lines, queries, keys, factor,
    IS_CAUSAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the scores from that of the probabilities."""
    offset, inside, counts = _places(lines, queries, keys, IS_CAUSAL, ROWS, BLOCK)
    p = tl.load(out + offset, mask=counts, other=0.0)
    e = tl.load(error + offset, mask=counts, other=0.0)
    mean = tl.sum(p * e, 1, keep_dims=True)
    tl.store(gradient + offset, tl.where(counts, p * (e - mean) * factor, 0.0), mask=inside)
