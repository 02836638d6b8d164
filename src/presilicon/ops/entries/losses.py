"""Entries of losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.ops.entry import OpEntry, function
from presilicon.ops.steps import Steps

if TYPE_CHECKING:
    from torch import Tensor


def nll_loss(
    s: Steps, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """The negated scores of the targets; their mean divides by the converted number of targets, or sum of weights."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    axis = 1 if input.dim() > 1 else 0
    used = target != ignore_index
    chosen = torch.where(used, target, 0).unsqueeze(axis)
    losses = s.neg(s.enter(input).gather(axis, chosen).squeeze(axis))
    shares = None if weight is None else s.enter(weight)[chosen.squeeze(axis)].masked_fill(~used, 0.0)
    losses = (losses if shares is None else s.mul(losses, shares)).masked_fill(~used, 0.0)
    if reduction == "none":
        return losses
    whole = s.total(losses).reshape(())
    if reduction == "sum":
        return whole
    if shares is not None:
        return s.div(whole, s.total(shares).reshape(()))
    return s.mul(whole, s.enter(1 / used.sum().to(input.dtype)))


def _loss(name: str, **facts: Any) -> OpEntry:
    return function(name, "loss", gradient={"table_kind": "LossGrad"}, **facts)


_WIDE: dict[str, Any] = {"width": "float32"}

ENTRIES: list[OpEntry] = [
    _loss(
        "nll_loss", aten="nll_loss_forward nll_loss2d_forward nll_loss",
        backward="nll_loss_backward nll_loss2d_backward", program=nll_loss, picks=True, **_WIDE,
    ),
    OpEntry(
        name="cross_entropy", is_product=True,
        signature="input target weight=None size_average=None ignore_index=-100 reduce=None reduction='mean' "
        "label_smoothing=0.0",
    ),
    OpEntry(
        name="mse_loss", is_product=True, forward=(mse := _loss("mse_loss", **_WIDE)).forward, backward=mse.backward,
        signature="input target size_average=None reduce=None reduction='mean' weight=None",
    ),
    _loss("smooth_l1_loss", **_WIDE),
    _loss("huber_loss", **_WIDE),
    _loss("binary_cross_entropy"),
    _loss("binary_cross_entropy_with_logits", backward="", **_WIDE),
    _loss("soft_margin_loss", **_WIDE),
    _loss("multi_margin_loss", **_WIDE),
    _loss("multilabel_margin_loss", aten="multilabel_margin_loss_forward", **_WIDE),
    _loss("ctc_loss"),
    *(function(name, aten="", backward="") for name in (
        "kl_div", "poisson_nll_loss", "gaussian_nll_loss", "hinge_embedding_loss", "margin_ranking_loss",
        "multilabel_soft_margin_loss", "cosine_embedding_loss", "triplet_margin_loss")),
]  # fmt: skip
