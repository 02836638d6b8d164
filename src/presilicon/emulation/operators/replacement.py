"""Where operators take the place of torch's functions: directly, and inside the functions that torch makes of them."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from presilicon.base.errors import ConfigError
from presilicon.emulation.operators.application import apply_operator
from presilicon.emulation.operators.composites import COMPOSITES
from presilicon.emulation.ops.vector import vector_functions
from presilicon.operators import Operator

_CELLS = frozenset(["tanh", "sigmoid"])
_TAKEN_APART: dict[str, frozenset[str]] = {
    "lstm": _CELLS,
    "gru": _CELLS,
    "lstm_cell": _CELLS,
    "gru_cell": _CELLS,
    "rnn_tanh": frozenset(["tanh"]),
    "rnn_tanh_cell": frozenset(["tanh"]),
    "scaled_dot_product_attention": frozenset(["softmax.exp"]),
    "multi_head_attention_forward": frozenset(["softmax.exp"]),
}
"""Functions that emulation takes apart, and what can be replaced inside."""


class Replacements:
    """The operators of an emulated model, by the function that each replaces."""

    def __init__(self, operators: Iterable[Operator] | Operator = ()) -> None:
        given: Any = (operators,) if isinstance(operators, Operator) else tuple(operators)
        self._operators: dict[str, Operator] = {}
        for each in given:
            if not isinstance(each, Operator):
                raise ConfigError(f'operators must be made by @operator("tanh"), table or the like, not {each!r}')
            if each.replaces in self._operators:
                names = f"{self._operators[each.replaces].name} and {each.name}"
                raise ConfigError(f"{names} both replace {each.replaces}; give one of them")
            self._operators[each.replaces] = each

    def __bool__(self) -> bool:
        return bool(self._operators)

    @property
    def operators(self) -> Mapping[str, Operator]:
        """By the function that each replaces."""
        return self._operators

    def find(self, name: str, func: Callable[..., Any]) -> Callable[..., Any] | None:
        """What computes the vector op `name` in place of `func`, or None where nothing in it is replaced."""
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
        """What computes the vector op `name`, forward and backward, as a table of coverage shows it."""
        composite = COMPOSITES.get(name)
        chosen = self._operators.get(name) or (None if composite is None else self._operators.get(composite.part))
        if chosen is None:
            return "activation float32", "error float32"
        text = f"operator {chosen.name}"
        return text, text if chosen.backward == "derived" else "error float32"

    def reaches(self, func: Callable[..., Any]) -> bool:
        """Whether something in a function of torch is replaced, so that it cannot be left to torch."""
        name = vector_functions().get(func)
        if name is not None:
            composite = COMPOSITES.get(name)
            return name in self._operators or (composite is not None and composite.part in self._operators)
        parts = _TAKEN_APART.get(func.__name__)
        return parts is not None and not parts.isdisjoint(self._operators)


def _call(operator: Operator, func: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The operator of `x`, written where the function that it replaces would have written."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        x = torch.as_tensor(x, dtype=torch.get_default_dtype()) if not isinstance(x, Tensor) else x.float()
    result = apply_operator(operator, x)
    name = func.__name__
    in_place = (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace") or args[:1] == (True,)
    if in_place:
        return x.copy_(result)
    if kwargs.get("out") is not None:
        out: Tensor = kwargs["out"]
        return out.copy_(result)
    return result
