"""Rounding inside autograd: which tensor is rounded to which role's format, forward or backward."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from presilicon.records import Role

if TYPE_CHECKING:
    from presilicon.emulation.emulation import Site


class _RoundForward(Function):
    """Rounds the value; the gradient passes as it is, or is rounded to another role's format."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, site: "Site", role: Role, grad_role: Role | None) -> Tensor:
        ctx.site, ctx.grad_role = site, grad_role
        return site.round(value, role)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return (grad if ctx.grad_role is None else ctx.site.round(grad, ctx.grad_role)), None, None, None


class _RoundBackward(Function):
    """Passes the value as it is and rounds the gradient that comes back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, site: "Site", role: Role) -> Tensor:
        ctx.site, ctx.role = site, role
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.site.round(grad, ctx.role), None, None


def round_operand(tensor: Tensor, site: "Site") -> Tensor:
    """An operand of a matrix product in its role's format: a parameter as weight, anything else as activation."""
    is_weight = isinstance(tensor, torch.nn.Parameter)
    role: Role = "weight" if is_weight else "activation"
    grad_role: Role | None = "gradient" if is_weight and site.rounds("gradient") else None
    if not site.rounds(role):
        return tensor if grad_role is None else round_gradient(tensor, site, grad_role)
    rounded: Tensor = _RoundForward.apply(tensor, site, role, grad_role)
    return rounded


def round_gradient(tensor: Tensor, site: "Site", role: Role) -> Tensor:
    """The tensor itself; the gradient that comes back to it is rounded to `role`'s format."""
    if not site.rounds(role) or not tensor.requires_grad:
        return tensor
    passed: Tensor = _RoundBackward.apply(tensor, site, role)
    return passed
