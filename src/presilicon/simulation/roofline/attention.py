"""Scaled dot-product attention in a captured step: the ops that one fused kernel replaces.

Capture records attention in full, with its score matrix; `_safe_softmax` occurs there and nowhere else. A fused
kernel computes the scores block by block and never stores them.
"""

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from presilicon.ops import AttentionPart, facts_of_op
from presilicon.records import Op


class FusedAttention(Struct, frozen=True, kw_only=True):
    """Changes that fused attention makes to a step; numbers are indices of ops, or storages."""

    products: frozenset[int]
    """Products with the scores: the kernel itself."""
    causal: frozenset[int]
    """Products whose scores have a triangular mask: half of the work is skipped."""
    absorbed: frozenset[int]
    """Ops that disappear into the kernel."""
    scores: frozenset[int]
    """Storages that are never written to memory."""


NO_ATTENTION = FusedAttention(products=frozenset(), causal=frozenset(), absorbed=frozenset(), scores=frozenset())


def find_attention(ops: Sequence[Op]) -> FusedAttention:
    """The fused attention of a step; empty where the step has no scaled dot-product attention."""
    softmaxes = [op for op in ops if _part(op) == "scores" and not facts_of_op(op).is_gradient]
    if not softmaxes:
        return NO_ATTENTION
    scores = _scores(ops, softmaxes)
    products = {op.index for op in ops if op.gemm and any(tensor.id in scores for tensor in op.inputs + op.outputs)}
    absorbed = {
        op.index
        for op in ops
        if not op.gemm and any(tensor.id in scores for tensor in op.outputs) and op.index not in products
    }
    consumers: dict[int, set[int]] = {}
    for op in ops:
        for tensor in op.inputs:
            consumers.setdefault(tensor.id, set()).add(op.index)
    fused = products | absorbed
    for op in reversed(ops):
        if op.index in fused or _part(op) not in ("move", "mask"):
            continue
        readers = {reader for tensor in op.outputs for reader in consumers.get(tensor.id, ())} - {op.index}
        if readers and readers <= fused:
            fused.add(op.index)
    product_outputs = {tensor.id for op in ops if op.index in products for tensor in op.outputs}
    for op in ops:
        scales = facts_of_op(op).captured.scales and op.phase != "forward" and op.index not in fused
        if scales and any(tensor.id in product_outputs for tensor in op.inputs):
            fused.add(op.index)
    triangles = {op.layer for op in ops if op.index in fused and facts_of_op(op).captured.is_triangle}
    causal = {op.index for op in ops if op.index in products and op.layer in triangles}
    return FusedAttention(
        products=frozenset(products),
        causal=frozenset(causal),
        absorbed=frozenset(fused - products),
        scores=frozenset(scores),
    )


def _part(op: Op) -> AttentionPart:
    """The part of an op in attention, as far as its operator can tell."""
    facts = facts_of_op(op)
    return "" if facts.is_in_place else facts.captured.attention


def _scores(ops: Sequence[Op], softmaxes: Sequence[Op]) -> set[int]:
    """Storages of score matrices: inputs and outputs of softmax, and results of elementwise ops on them."""
    scores = {tensor.id for op in softmaxes for tensor in (op.inputs[0], *op.outputs)}
    sizes = {prod(op.outputs[0].shape) for op in softmaxes}
    grows = True
    while grows:
        grows = False
        for op in ops:
            if op.gemm or not op.outputs or op.outputs[0].elements not in sizes:
                continue
            backward = _part(op) == "scores" and facts_of_op(op).is_gradient
            if op.kind not in ("elementwise", "copy", "random", "other") and not backward:
                continue
            linked = [tensor.id for tensor in op.inputs + op.outputs if tensor.elements in sizes]
            if any(storage in scores for storage in linked) and not all(storage in scores for storage in linked):
                scores.update(linked)
                grows = True
    return scores
