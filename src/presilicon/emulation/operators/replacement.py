"""Replacement of torch functions by operators: directly, and inside functions composed of them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from presilicon.base import ConfigError
from presilicon.emulation.operators.composites import COMPOSITES
from presilicon.emulation.ops.vector import vector_functions
from presilicon.operators import Operator, apply_operator

_CELLS = frozenset(["tanh", "sigmoid"])
_DECOMPOSED: dict[str, frozenset[str]] = {
    "lstm": _CELLS,
    "gru": _CELLS,
    "lstm_cell": _CELLS,
    "gru_cell": _CELLS,
    "rnn_tanh": frozenset(["tanh"]),
    "rnn_tanh_cell": frozenset(["tanh"]),
    "scaled_dot_product_attention": frozenset(["softmax.exp"]),
    "multi_head_attention_forward": frozenset(["softmax.exp"]),
}
"""Functions that emulation decomposes, and the functions that can be replaced inside."""


class Replacements:
    """The operators of an emulated model, by the function that each replaces."""

    def __init__(self, operators: Iterable[Operator] | Operator = ()) -> None:
        members: Any = (operators,) if isinstance(operators, Operator) else tuple(operators)
        self._operators: dict[str, Operator] = {}
        for operator in members:
            if not isinstance(operator, Operator):
                raise ConfigError(f'operators must be made by @operator("tanh"), table or the like, not {operator!r}')
            if operator.replaces in self._operators:
                names = f"{self._operators[operator.replaces].name} and {operator.name}"
                raise ConfigError(f"{names} both replace {operator.replaces}; give one of them")
            self._operators[operator.replaces] = operator

    def __bool__(self) -> bool:
        return bool(self._operators)

    def find(self, name: str, func: Callable[..., Any]) -> Callable[..., Any] | None:
        """The function that computes the vector op `name` instead of `func`, or None if nothing in it is replaced."""
        if name in self._operators:
            return partial(_call, self._operators[name], func)
        composite = COMPOSITES.get(name)
        if composite is None:
            return None
        inner = {part: partial(apply_operator, self._operators[part]) for part in self._operators}
        if composite.part not in inner:
            return None
        return partial(composite.compute, func, inner[composite.part])

    def spell(self, name: str) -> tuple[str, str]:
        """The operator that computes the vector op `name`, forward and backward, as text for coverage."""
        composite = COMPOSITES.get(name)
        operator = self._operators.get(name) or (None if composite is None else self._operators.get(composite.part))
        if operator is None:
            return "activation float32", "error float32"
        text = f"operator {operator.name}"
        return text, text if operator.backward == "derived" else "error float32"

    def reaches(self, func: Callable[..., Any]) -> bool:
        """Whether an operator replaces a torch function or a function inside it."""
        name = vector_functions().get(func)
        if name is not None:
            composite = COMPOSITES.get(name)
            return name in self._operators or (composite is not None and composite.part in self._operators)
        parts = _DECOMPOSED.get(func.__name__)
        return parts is not None and not parts.isdisjoint(self._operators)


def _call(operator: Operator, func: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The operator of `x`, written to the tensor that the replaced function would write to."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        x = torch.as_tensor(x, dtype=torch.get_default_dtype()) if not isinstance(x, Tensor) else x.float()
    name = func.__name__
    in_place = (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace") or args[:1] == (True,)
    if in_place:  # the derivative is computed from the old values
        return x.copy_(apply_operator(operator, x.clone()))
    result = apply_operator(operator, x)
    if kwargs.get("out") is not None:
        out: Tensor = kwargs["out"]
        return out.copy_(result)
    return result
