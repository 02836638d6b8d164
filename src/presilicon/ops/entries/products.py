"""Entries of matrix products, and of operators that hide some."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from presilicon.ops.entry import Captured, OpEntry, plain
from presilicon.records import Gemm, OpKind

if TYPE_CHECKING:
    from torch import Tensor

    Shaped = tuple[Gemm, tuple[Tensor, ...]]


def _mm(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(left.shape[0], left.shape[1], right.shape[1]), (left, right)


def _bmm(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(left.shape[1], left.shape[2], right.shape[2], left.shape[0]), (left, right)


def _mv(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(left.shape[0], left.shape[1], 1), (left, right)


def _added(product: Callable[..., Shaped]) -> Callable[..., Shaped]:
    """The shape of a product to which its first argument is added."""
    return lambda added, left, right, *_: (product(left, right)[0], (left, right, added))


def _dot(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(1, left.shape[0], 1), (left, right)


def _linear(left: Tensor, weight: Tensor, bias: Tensor | None = None) -> Shaped:
    operands = (left, weight) if bias is None else (left, weight, bias)
    return Gemm(prod(left.shape[:-1]), left.shape[-1], weight.shape[0]), operands


def _grouped_mm(left: Tensor, right: Tensor, offs: Tensor | None = None, *_: Any) -> Shaped:
    """A grouped product: as many equal ones as there are groups, or a single one if the groups cannot be equal."""
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    if offs is None:
        return Gemm(m, k, n, left.shape[0]), (left, right)
    groups = len(offs)
    sizes = {"m": m, "k": k, "n": n}
    divided = "k" if left.dim() == right.dim() else "m" if left.dim() == 2 else "n"
    if sizes[divided] % groups:
        return Gemm(**sizes), (left, right)
    sizes[divided] //= groups
    return Gemm(**sizes, count=groups), (left, right)


def _product(names: str, shape: Callable[..., Shaped] | None = None, kind: OpKind = "gemm", **more: Any) -> OpEntry:
    words = names.split()
    return OpEntry(
        name=words[0].strip("_"), forward=Captured(names=tuple(words), kind=kind, product=shape), is_product=True,
        **more,
    )  # fmt: skip


def _function(name: str, signature: str = "", parts: str = "", **facts: Any) -> OpEntry:
    return OpEntry(name=name, signature=signature, is_product=True, parts=tuple(parts.split()), **facts)


_OPERANDS = "input other"
_CONVOLUTION = "input weight bias=None stride=1 padding=0 dilation=1 groups=1"

ENTRIES: list[OpEntry] = [
    _product("mm _int_mm _scaled_mm _sparse_mm", _mm, signature=_OPERANDS),
    _product("addmm _addmm_activation _sparse_addmm", _added(_mm)),
    _product("bmm", _bmm, signature=_OPERANDS),
    _product("baddbmm addbmm", _added(_bmm)),
    _product("mv", _mv),
    _product("addmv", _added(_mv)),
    _product("dot vdot", _dot),
    _product("linear", _linear, signature="input weight bias=None"),
    _product("_grouped_mm grouped_mm_fallback", _grouped_mm),
    OpEntry(
        name="convolution",
        forward=Captured(
            names=("convolution", "convolution_overrideable", "cudnn_convolution", "mkldnn_convolution"),
            kind="convolution",
        ),
        backward=Captured(names=("convolution_backward",), kind="convolution"),
        is_product=True,
    ),
    _function("matmul", _OPERANDS),
    *(_function(f"conv{spatial}d", _CONVOLUTION, by_channel=True) for spatial in (1, 2, 3)),
    _function(
        "scaled_dot_product_attention",
        "query key value attn_mask=None dropout_p=0.0 is_causal=False scale=None enable_gqa=False",
        parts="softmax.exp softmax",
    ),
    _function("multi_head_attention_forward", parts="softmax.exp softmax"),
    *(_function(name, parts="tanh sigmoid") for name in ("lstm", "gru", "lstm_cell", "gru_cell")),
    *(_function(name, parts="tanh") for name in ("rnn_tanh", "rnn_tanh_cell")),
    *plain("other", "addr cdist cdist_backward pdist pdist_backward", multiplies=True),
    *plain("other", "cdist_forward pdist_forward", multiplies=True, width="float32"),
]

HIDING = ("fft", "linalg")
"""Beginnings of the names of operators that multiply matrices inside."""
