"""Emulated matrix products in autograd: three multiplications, each operand in its role's format."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function

from presilicon.emulation.ops.calls import Call
from presilicon.emulation.ops.products import Multiply, Product, numbers_of
from presilicon.emulation.rounded import Operand
from presilicon.emulation.site import Site, Use
from presilicon.emulation.transforms import refuse_second_derivative
from presilicon.formats import Factored
from presilicon.records import ProductPhase, Role

ResultT = TypeVar("ResultT")


def first_derivative(backward: Callable[..., ResultT]) -> Callable[..., ResultT]:
    """Decorates a `backward` that cannot be differentiated; torch's `once_differentiable` misses constant errors."""

    @wraps(backward)
    def checked(ctx: Any, error: Tensor) -> ResultT:
        refuse_second_derivative(error)
        return backward(ctx, error)

    return checked


Roles = tuple[Role, Role, bool, bool]
"""Roles of the two operands, whether the addend is a parameter, and whether gradients are rounded later."""


def multiply_emulated(call: Call, roles: tuple[Role, Role], site: Site, *, bias_is_parameter: bool) -> Tensor:
    """The result of `call` on rounded operands, with a backward pass that rounds its operands too."""
    facts: Roles = (*roles, bias_is_parameter, call.gradient_later)
    out: Tensor = _EmulatedProduct.apply(call.a, call.b, call.bias, facts, call.product, site)
    return out if call.finish is None else call.finish(out)


def gradient_rounded(parameter: Tensor, site: Site) -> Tensor:
    """`parameter`, with its gradient rounded in the backward pass."""
    out: Tensor = _RoundedGradient.apply(parameter, site)
    return out


class _RoundedGradient(Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, site: Site) -> Tensor:
        ctx.site = site
        return parameter.detach()

    @staticmethod
    @first_derivative
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, None]:
        if error.is_sparse:
            values = ctx.site.round(error._values(), Use("gradient"))
            return torch.sparse_coo_tensor(error._indices(), values, error.shape), None
        return ctx.site.round(error, Use("gradient")), None


def _gradient_phase(role: Role) -> ProductPhase:
    """The phase of the product that computes an operand's gradient; attention has input gradients for both."""
    return "weight_grad" if role == "weight" else "input_grad"


def _save(ctx: Any, *operands: Operand) -> None:
    """Save operands for the backward pass."""
    parts = [(x.codes, x.scales) if isinstance(x, Factored) else (x,) for x in operands]
    ctx.blocks = [x.block if isinstance(x, Factored) else None for x in operands]
    ctx.save_for_backward(*(tensor for part in parts for tensor in part))


def _saved(ctx: Any) -> list[Any]:
    """The operands that `_save` has saved."""
    tensors = iter(ctx.saved_tensors)
    return [next(tensors) if block is None else Factored(next(tensors), next(tensors), block) for block in ctx.blocks]


def _ready(multiply: Multiply | None, product: Product, *operands: Operand) -> tuple[Multiply | None, Any, Any]:
    """The multiplication and the operands as a product takes them: numbers, if torch multiplies.

    A convolution spreads out the codes of tensors with one scale each, and its sums are scaled.
    """
    a, b = operands
    if not isinstance(a, Factored) and not isinstance(b, Factored):
        return multiply, a, b
    if multiply is None:
        return None, numbers_of(a), numbers_of(b)
    if not product.has_kernels:
        return multiply, a, b
    scales = [x.scales for x in (a, b) if isinstance(x, Factored)]

    def scaled(a: Any, b: Any, bias: Tensor | None = None) -> Tensor:
        out = multiply(a, b) * (scales[0] * scales[-1] if len(scales) > 1 else scales[0])
        return out if bias is None else out + bias

    return scaled, _codes(a), _codes(b)


def _summable(errors: Tensor) -> Tensor:
    """Errors in a type that torch adds up: bf16 has every number of 8 bits."""
    return errors.to(torch.bfloat16) if errors.dtype.itemsize == 1 else errors


def _codes(operand: Operand) -> Tensor:
    return operand.codes if isinstance(operand, Factored) else operand


class _EmulatedProduct(Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, roles: Roles, product: Product, site: Site
    ) -> Tensor:
        axes = product.axes
        a_role, b_role, *_ = roles
        site.prepare(product, (a_role, b_role), a.device)
        rounded_a = site.round_operand(a, Use(a_role, axes.a_forward, product.groups, "forward"))
        b_groups = product.groups if axes.b_forward == 0 else 1
        part = "b" if a_role == b_role else ""
        rounded_b = site.round_operand(b, Use(b_role, axes.b_forward, b_groups, "forward", part))
        ctx.roles, ctx.product, ctx.site = roles, product, site
        ctx.bias_shape = None if bias is None else bias.shape
        # Operands that the backward products group along another axis are saved unrounded.
        saved_a = a if site.regroups(a_role) else rounded_a
        saved_b = b if site.regroups(b_role) else rounded_b
        _save(ctx, saved_a, saved_b)
        multiply, left, right = _ready(site.multiply("forward", a_role, b_role), product, rounded_a, rounded_b)
        out = product.forward(left, right, bias, multiply)
        # Autograd refuses in-place ops on views that a function returns; `.data` is the same memory and no view.
        return out.data if out._is_view() else out

    @staticmethod
    @first_derivative
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor | None, ...]:
        a, b = _saved(ctx)
        product: Product = ctx.product
        site: Site = ctx.site
        a_role, b_role, bias_is_parameter, later = ctx.roles
        axes, groups = product.axes, product.groups
        needs_a, needs_b, needs_bias = ctx.needs_input_grad[:3]
        a_phase, b_phase = _gradient_phase(a_role), _gradient_phase(b_role)
        grad_a = grad_b = grad_bias = None
        rounded: Operand | None = None
        if needs_bias and site.leaves_sums_of_errors:
            grad_bias, needs_bias = product.bias_grad(error, ctx.bias_shape), False
            grad_bias = site.round(grad_bias, Use("gradient", part="bias")) if bias_is_parameter else grad_bias
        if site.shares_operands:
            rounded = errors = site.round(error, Use("error", axes.error_input, groups, a_phase))
            gradients = product.gradients(errors, a, b, (needs_a, needs_b, needs_bias))
            if gradients is not None:
                grad_a, grad_b, summed = gradients
                if grad_a is not None and a_role == "weight" and not later:
                    grad_a = site.round_gradient(grad_a, errors)
                if grad_b is not None and b_role == "weight" and not later:
                    grad_b = site.round_gradient(grad_b, errors)
                if summed is not None:
                    grad_bias = site.round_gradient(summed, errors, "bias") if bias_is_parameter else summed
                return grad_a, grad_b, grad_bias, None, None, None
        if rounded is None and (needs_a or needs_bias or not site.regroups("error")):
            rounded = site.round_for(error, Use("error", axes.error_input, groups, a_phase))
        if needs_a and rounded is not None:
            b_groups = groups if axes.b_input == 0 else 1
            b_again = site.regroup(b, Use(b_role, axes.b_input, b_groups, a_phase, "input_grad"))
            multiply = site.multiply(a_phase, "error", b_role, "input_grad")
            multiply, left, right = _ready(multiply, product, rounded, b_again)
            grad_a = product.input_grad(left, right, a.shape, multiply)
            grad_a = site.round(grad_a, Use("gradient")) if a_role == "weight" and not later else grad_a
        if needs_b:
            a_again = site.regroup(product.rows(a), Use(a_role, axes.a_weight, 1, b_phase, "weight_grad"))
            if rounded is None or site.regroups("error"):
                rows = product.rows(error)
                e_again = site.regroup(rows, Use("error", axes.error_weight, 1, b_phase, "weight_grad"))
            else:
                e_again = product.rows(rounded)
            factors: tuple[Role, Role] = ("error", a_role) if product.error_first else (a_role, "error")
            multiply = site.multiply(b_phase, *factors, "weight_grad")
            multiply, left, right = _ready(multiply, product, a_again, e_again)
            grad_b = product.weight_grad(left, right, b.shape, multiply)
            grad_b = site.round(grad_b, Use("gradient")) if b_role == "weight" and not later else grad_b
        if needs_bias and rounded is not None:
            if site.transforms(a_phase):  # the bias adds up errors, not their transforms
                rounded = site.round(error, Use("error", axes.error_input, groups, part="bias"))
            grad_bias = product.bias_grad(_summable(numbers_of(rounded)), ctx.bias_shape).to(error.dtype)
            grad_bias = site.round(grad_bias, Use("gradient", part="bias")) if bias_is_parameter else grad_bias
        return grad_a, grad_b, grad_bias, None, None, None
