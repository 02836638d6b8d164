"""The operations of an emulated layer: products and vector ops, each rounded to the layer's formats."""

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree as pytree

from presilicon.emulation.emulation import Emulation
from presilicon.emulation.layer_plan import LayerPlan
from presilicon.emulation.operators.arguments import call_replaced
from presilicon.emulation.ops.autograd import gradient_rounded, multiply_emulated
from presilicon.emulation.ops.calls import Call, matmul_call, pair_call
from presilicon.emulation.ops.einsum import contract
from presilicon.emulation.ops.products import LinearProduct
from presilicon.emulation.rounded import version
from presilicon.emulation.site import Site
from presilicon.emulation.steps.formulas import steps_of
from presilicon.emulation.steps.primitives import RoundedSteps
from presilicon.ops import Operator, arguments_of, entry_of_function, functions
from presilicon.records import Role


class Arithmetic:
    """Operations in the formats of the layer that is running."""

    def __init__(self, emulation: Emulation, training: bool) -> None:
        self.emulation = emulation
        self.training = training

    @property
    def plan(self) -> LayerPlan:
        """The plan of the running layer."""
        return self.emulation.plan(self.emulation.layer)

    @property
    def leaves_vectors(self) -> bool:
        """Whether vector ops of the running layer are neither rounded, replaced nor listed."""
        emulation = self.emulation
        return not self.plan.rounds_results and not emulation.operators and emulation.watcher is None

    def multiply(self, call: Call, operator: str = "matmul") -> Tensor:
        """A matrix product, with its backward pass."""
        if self.plan.has_steps and call.bias is not None:
            return self._add_bias(call, operator)
        if self._is_constant(call):
            with self._region(operator, "constants float32", "constants float32"):
                out = call.product.forward(call.a, call.b, call.bias, None)
                return out if call.finish is None else call.finish(out)
        site = self.emulation.site(self.training)
        roles = self._roles(call)
        is_parameter = call.bias is not None and self.emulation.origins.is_of_parameters(call.bias)
        if self.emulation.watcher is None:
            return multiply_emulated(call, roles, site, bias_is_parameter=is_parameter)
        operands = dict.fromkeys(roles)
        later: tuple[Role, ...] = ("error", "gradient") if "weight" in operands else ("error",)
        forward = site.plan.spell(operands, ["forward"])
        backward = site.plan.spell([*operands, *later], ["input_grad", "weight_grad"])
        with self._region(operator, forward, backward):
            return multiply_emulated(call, roles, site, bias_is_parameter=is_parameter)

    def _add_bias(self, call: Call, operator: str) -> Tensor:
        """A product whose bias is added by a step, in the format of activations."""
        assert call.bias is not None
        out = self.multiply(call._replace(bias=None, finish=None), operator)
        bias = call.bias
        if call.product.has_kernels:
            bias = self._parameter(bias).view(-1, *(1,) * (out.dim() - 2))
        out = self.apply(torch.add, out, bias)
        return out if call.finish is None else call.finish(out)

    def _is_constant(self, call: Call) -> bool:
        """Whether a product has neither weights nor data: positions by the frequencies of a rotary embedding."""
        origins, operands = self.emulation.origins, call.sources or (call.a, call.b)
        return call.roles[1] is None and all(origins.of(operand) == "constant" for operand in operands)

    def _roles(self, call: Call) -> tuple[Role, Role]:
        """Roles of the two operands: what is computed from weights alone is a weight."""
        a, b = call.sources or (call.a, call.b)
        origins = self.emulation.origins
        return call.roles[0] or origins.role_of(a), call.roles[1] or origins.role_of(b)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Matrices (..., m, k) by (..., k, n)."""
        return self.multiply(matmul_call(a, b))

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, held: bool = False) -> Tensor:
        """Activations by weights; `held` is true if the weights come from `hold_weight`."""
        roles: tuple[Role | None, Role | None] = ("activation", "weight") if held else (None, None)
        return self.multiply(Call(LinearProduct(), x, weight, bias, roles=roles, gradient_later=held), "linear")

    def einsum(self, equation: str, *operands: Tensor) -> Tensor:
        """A chain of matrix products."""
        return contract(equation, operands, lambda pair: self.multiply(pair_call(pair), "einsum"))

    def hold_weight(self, weight: Tensor | None) -> Tensor | None:
        """A parameter used by several products of one op: its gradient is rounded once, after they are added up."""
        return self._with_rounded_gradient(weight, "held") if weight is not None and weight.requires_grad else weight

    def _with_rounded_gradient(self, tensor: Tensor, kind: str) -> Tensor:
        """A tensor whose gradient is rounded; without gradients the call counts too, as checkpointing repeats it."""
        site = self.emulation.site(self.training, kind)
        return gradient_rounded(tensor, site) if torch.is_grad_enabled() else tensor

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A vector op; its result is rounded if the numerics say so."""
        name = functions().get(func, func.__name__)
        plan = self.plan
        replaced = self.emulation.operators.find(name, func, self.emulation.layer)
        if plan.has_steps and replaced is None:
            out = self._apply_steps(name, func, args, kwargs)
            if out is not NotImplemented:
                return out
        if plan.rounds_results and func in _REDUCED_IN_PLACE and self._keeps_extremes(args, kwargs):
            out = self.apply(getattr(torch, name), args[0].clone(), *args[1:], **kwargs)
            return args[0].copy_(out)  # autograd refuses a result that is changed after it was kept
        compute = replaced or func
        if not plan.rounds_results:
            with _NO_REGION if replaced is None else self._region(name, *self._spell_operator(name)):
                return compute(*args, **kwargs)
        site = self.emulation.site(self.training, "vector")
        with self._vector_region(name, plan, args, kwargs, is_replaced=replaced is not None):
            if self.training and plan.rounds_vector("gradient"):
                args = tuple(self._parameter(value) for value in args)
                kwargs = {key: self._parameter(value) for key, value in kwargs.items()}
            inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            before = version(inputs[0]) if inputs else 0
            out = compute(*args, **kwargs)
            if isinstance(out, Tensor) and plan.rounds_vector("activation") and _is_compared(out):
                out = out.clone()  # the op keeps its own result, which is not rounded
        written = bool(inputs) and (version(inputs[0]) != before or _is_written(func, out, inputs[0]))
        if written and self.emulation.origins.is_held(inputs[0]):
            return out  # a buffer that the model updates is not an activation
        written = written or kwargs.get("out") is not None
        for result in out if isinstance(out, tuple) else (out,):
            if isinstance(result, Tensor) and result.is_floating_point() and (written or _is_fresh(result, inputs)):
                self._round_result(result, site)
        return out

    def _keeps_extremes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an in-place reduction writes the largest or smallest numbers of groups to a tensor of the pass."""
        is_extreme = any(value in _EXTREMES for value in (*args, *kwargs.values()) if isinstance(value, str))
        return is_extreme and not self.emulation.origins.is_held(args[0])

    def replace(self, name: str, operator: Operator, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A product or loss that an operator computes; its result is rounded if the numerics say so."""
        with self._region(name, *self._spell_operator(name)):
            out = call_replaced(operator, name, func, args, kwargs)
        if self.plan.rounds_results:
            self._round_result(out, self.emulation.site(self.training, "vector"))
        return out

    def _round_result(self, result: Tensor, site: Site) -> None:
        """Round the result of a vector op in place, and later its error."""
        site.round_result_(result, "activation")
        if result.requires_grad and self.plan.rounds_vector("error"):
            result.register_hook(site.round_error)

    def embed(self, input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Rows of an embedding table, in the weight format."""
        plan = self.plan
        if not plan.rounds_results:
            return functional.embedding(input, weight, *args, **kwargs)
        site = self.emulation.site(self.training, "vector")
        with self._region("embedding", plan.spell(["weight"]), plan.spell(["error", "gradient"])):
            renorms = (len(args) > 1 and args[1] is not None) or kwargs.get("max_norm") is not None
            table = weight if renorms else self._parameter(weight)
            out = functional.embedding(input, table, *args, **kwargs)
        site.round_result_(out, "weight")
        if out.requires_grad and plan.rounds_vector("error"):
            out.register_hook(site.round_error)
        return out

    def spread(self, func: Callable[..., Any], tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        """A function that repeats elements of a tensor; the gradient of a parameter is rounded after it is added up."""
        is_view = func is torch.Tensor.__getitem__ and not any(map(_is_index, pytree.tree_leaves(args)))
        if self.training and not is_view and self.plan.rounds_vector("gradient"):
            tensor = self._parameter(tensor)
        return func(tensor, *args, **kwargs)

    def _parameter(self, value: Any) -> Any:
        """A parameter, or a part or copy of one, with a rounded gradient; any other value is returned unchanged."""
        if self.emulation.origins.is_of_parameters(value) and value.requires_grad:
            return self._with_rounded_gradient(value, "vector")
        return value

    def _apply_steps(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A vector op as a sequence of steps, each in its role's format; NotImplemented if it has no such sequence."""
        entry = entry_of_function(name)
        inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        like = next((value for value in inputs if value.is_floating_point()), None)
        compute = None if entry is None else steps_of(entry)
        if entry is None or compute is None or like is None or kwargs.get("out") is not None:
            return NotImplemented
        args, kwargs = arguments_of(entry, func, args, kwargs)
        site = self.emulation.site(self.training, "vector")
        plain = {key: value for key, value in kwargs.items() if key not in ("inplace", "out")}
        steps = RoundedSteps(*site.lines(name), like)
        trained = self.training and self.plan.rounds_vector("gradient")
        own = [self._parameter(value) if trained else value for value in args]
        named = {key: self._parameter(value) if trained else value for key, value in plain.items()}
        try:
            out = compute(steps, *own, **named)
        except TypeError:  # an argument that the program does not have, or one that torch refuses too
            return NotImplemented
        if out is NotImplemented:
            return out
        for result in out if isinstance(out, tuple) else (out,):
            if result.is_floating_point():
                self._finish_steps(result, site)
        if kwargs.get("inplace") or (func.__name__.endswith("_") and not func.__name__.endswith("__")):
            out = inputs[0].copy_(out)
            self._finish_steps(out, site)
        return out

    def _finish_steps(self, result: Tensor, site: Site) -> None:
        if self.plan.rounds_vector("activation"):
            site.keep_result(result, "activation", result.data)
        if result.requires_grad and self.plan.rounds_vector("error"):
            result.register_hook(site.round_error)

    def _spell_operator(self, name: str) -> tuple[str, str]:
        return self.emulation.operators.spell(name, self.emulation.layer)

    def _vector_region(
        self, name: str, plan: LayerPlan, args: tuple[Any, ...], kwargs: dict[str, Any], is_replaced: bool
    ) -> Any:
        if self.emulation.watcher is None:
            return _NO_REGION
        trained = any(map(self.emulation.origins.is_of_parameters, (*args, *kwargs.values())))
        forward, backward = plan.spell(["activation"]), plan.spell(["error", "gradient"] if trained else ["error"])
        if is_replaced:
            operators = self._spell_operator(name)
            forward, backward = f"{operators[0]}, {forward}", f"{operators[1]}, {backward}"
        elif plan.has_steps:
            forward, backward = (
                f"{forward}, float32 as a whole, converted",
                f"{backward}, float32 as a whole, converted",
            )
        return self._region(name, forward, backward)

    def _region(self, operator: str, forward: str, backward: str) -> Any:
        watcher = self.emulation.watcher
        if watcher is None:
            return _NO_REGION
        return watcher.region(self.emulation.layer, operator, forward, backward)


_NO_REGION = nullcontext()
_REDUCED_IN_PLACE = (torch.Tensor.scatter_reduce_, torch.Tensor.index_reduce_)
_EXTREMES = {"amax", "amin", "max", "min"}
_COMPARED = re.compile(
    "(Amax|Amin|Max|Min|LinalgVectorNorm|Norm|Dist|(Scatter|Index|Segment)Reduce|Logc?u?m?sumexp)Backward."
)
"""Nodes of autograd whose backward pass sets the result against the input."""


def _is_compared(result: Tensor) -> bool:
    """Whether the backward pass looks for the result among the inputs: a rounded one would not be there.

    Norms do for the largest magnitude, and reductions of groups for an extreme; sums of powers set each input against
    the logarithm.
    """
    node = result.grad_fn
    if node is None or not _COMPARED.fullmatch(type(node).__name__):
        return False
    order = getattr(node, "_saved_ord", getattr(node, "_saved_p", math.inf))
    reduces = getattr(node, "_saved_reduce", "max")
    return order in (math.inf, -math.inf) and reduces in _EXTREMES


def _is_written(func: Callable[..., Any], out: Any, first: Tensor) -> bool:
    """Whether a function wrote to its input in inference mode, where torch does not count that.

    Dropout in evaluation returns its input unchanged.
    """
    return out is first and first.is_inference() and not func.__name__.endswith("dropout")


def _is_index(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype != torch.bool


def _is_fresh(result: Tensor, inputs: list[Tensor]) -> bool:
    """Whether a result has its own memory: a function may return its input, as dropout in evaluation does."""
    memory = result.untyped_storage().data_ptr()
    return all(memory != value.untyped_storage().data_ptr() for value in inputs)
