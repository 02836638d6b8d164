"""Replacement of torch functions by operators: directly, and inside functions composed of them."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import unmatched_pattern
from presilicon.emulation.operators.arguments import call_replaced, function_name
from presilicon.emulation.operators.composites import COMPOSITES
from presilicon.emulation.ops.vector import vector_functions
from presilicon.operators import PRODUCTS, Operator, apply_operator, split_pattern

_CELLS = frozenset(["tanh", "sigmoid"])
_DECOMPOSED: dict[str, frozenset[str]] = {
    "lstm": _CELLS,
    "gru": _CELLS,
    "lstm_cell": _CELLS,
    "gru_cell": _CELLS,
    "rnn_tanh": frozenset(["tanh"]),
    "rnn_tanh_cell": frozenset(["tanh"]),
    "scaled_dot_product_attention": frozenset(["softmax.exp", "softmax"]),
    "multi_head_attention_forward": frozenset(["softmax.exp", "softmax"]),
}
"""Functions that emulation decomposes, and the functions that can be replaced inside."""


@cache
def product_functions() -> Mapping[Callable[..., Any], str]:
    """The name of every function of torch that is a product or a loss, and that an operator can replace."""
    homes = (torch, Tensor, functional, torch._C._nn, torch.linalg)
    table = {function: name for home in homes for name in PRODUCTS if callable(function := getattr(home, name, None))}
    return table | {Tensor.__matmul__: "matmul"}


class Replacements:
    """The operators of an emulated model, by the function that each replaces."""

    def __init__(self, operators: Iterable[Operator] | Operator = ()) -> None:
        members: Any = (operators,) if isinstance(operators, Operator) else tuple(operators)
        self._operators: dict[str, Operator] = {}
        """Functions of one number, which are replaced inside other functions too."""
        self._whole: dict[str, dict[str, Operator]] = {}
        """Functions that are replaced as a whole: by name, operators by pattern of layers."""
        for operator in members:
            if not isinstance(operator, Operator):
                raise ConfigError(f'operators must be made by @operator("tanh"), table or the like, not {operator!r}')
            if operator.replaces is None:
                raise ConfigError(f"{operator.where} replaces nothing; name a function, as @operator('softmax')")
            layers, name = split_pattern(operator.replaces)
            is_inner = operator.is_inner
            table = self._operators if is_inner else self._whole.setdefault(name, {})
            key = name if is_inner else layers
            if key in table:
                names = f"{table[key].name} and {operator.name}"
                raise ConfigError(f"{names} both replace {operator.replaces}; give one of them")
            table[key] = operator

    def __bool__(self) -> bool:
        return bool(self._operators or self._whole)

    def check_layers(self, layers: Iterable[str]) -> None:
        """Every pattern must match a layer of the model.

        Raises:
            ConfigError: one matches none.
        """
        names = list(layers)
        for function, by_layer in self._whole.items():
            for pattern in by_layer:
                if pattern and not any(fnmatchcase(name, pattern) for name in names):
                    raise unmatched_pattern("operators", f"{pattern}.{function}", names)

    def whole(self, name: str, layer: str) -> Operator | None:
        """The operator that replaces a function as a whole in a layer: a pattern goes before a plain name."""
        by_layer = self._whole.get(function_name(name)[0]) if self._whole else None
        if by_layer is None:
            return None
        matches = [pattern for pattern in by_layer if pattern and fnmatchcase(layer, pattern)]
        return by_layer[max(matches, key=len)] if matches else by_layer.get("")

    def product(self, func: Callable[..., Any], layer: str) -> tuple[str, Operator] | None:
        """The name and the operator of a product that is replaced."""
        name = product_functions().get(func) if self._whole else None
        operator = None if name is None else self.whole(name, layer)
        return None if name is None or operator is None else (name, operator)

    def find(self, name: str, func: Callable[..., Any], layer: str = "") -> Callable[..., Any] | None:
        """The function that computes the vector op `name` instead of `func`, or None if nothing in it is replaced."""
        whole = self.whole(name, layer)
        if whole is not None:
            return lambda *args, **kwargs: call_replaced(whole, name, func, args, kwargs)
        if name in self._operators:
            return partial(_call, self._operators[name], func)
        composite = COMPOSITES.get(name)
        if composite is None:
            return None
        inner = {part: partial(apply_operator, self._operators[part]) for part in self._operators}
        if composite.part not in inner:
            return None
        return partial(composite.compute, func, inner[composite.part])

    def spell(self, name: str, layer: str = "") -> tuple[str, str]:
        """The operator that computes the op `name`, forward and backward, as text for coverage."""
        composite = COMPOSITES.get(name)
        operator = self.whole(name, layer) or self._operators.get(name)
        operator = operator or (None if composite is None else self._operators.get(composite.part))
        if operator is None:
            return "activation float32", "error float32"
        text = f"operator {operator.name}"
        return text, text if operator.backward == "derived" else "error float32"

    def reaches(self, func: Callable[..., Any]) -> bool:
        """Whether an operator replaces a torch function or a function inside it."""
        name = vector_functions().get(func)
        if name is not None:
            composite = COMPOSITES.get(name)
            is_inner = name in self._operators or (composite is not None and composite.part in self._operators)
            return is_inner or function_name(name)[0] in self._whole
        parts = _DECOMPOSED.get(func.__name__)
        return parts is not None and not parts.isdisjoint({*self._operators, *self._whole})


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
