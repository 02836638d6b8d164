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
from presilicon.emulation.steps.exact import ExactSteps
from presilicon.ops import (
    OpEntry,
    Operator,
    apply_operator,
    arguments_of,
    entry_named,
    entry_of_function,
    follow,
    functions,
    product_names,
    split_pattern,
)


@cache
def product_functions() -> Mapping[Callable[..., Any], str]:
    """The name of every function of torch that is a product or a loss, and that an operator can replace."""
    homes = (torch, Tensor, functional, torch._C._nn, torch.linalg)
    table = {
        function: name for home in homes for name in product_names() if callable(function := getattr(home, name, None))
    }
    return table | {Tensor.__matmul__: "matmul"}


follow(product_functions.cache_clear)


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
            table = self._operators if is_inner else self._whole.setdefault(function_name(name)[0], {})
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
        entry = entry_of_function(name)
        if entry is None or entry.inner not in self._operators:
            return None
        return partial(_around, entry, {entry.inner: partial(apply_operator, self._operators[entry.inner])}, func)

    def spell(self, name: str, layer: str = "") -> tuple[str, str]:
        """The operator that computes the op `name`, forward and backward, as text for coverage."""
        entry = entry_of_function(name)
        operator = self.whole(name, layer) or self._operators.get(name)
        operator = operator or (None if entry is None else self._operators.get(entry.inner))
        if operator is None:
            return "activation float32", "error float32"
        text = f"operator {operator.name}"
        return text, text if operator.backward == "derived" else "error float32"

    def reaches(self, func: Callable[..., Any]) -> bool:
        """Whether an operator replaces a torch function or a function inside it."""
        name = functions().get(func)
        if name is not None:
            entry = entry_of_function(name)
            assert entry is not None
            return name in self._operators or entry.inner in self._operators or function_name(name)[0] in self._whole
        composite = entry_named(func.__name__)
        return composite is not None and any(part in self._operators or part in self._whole for part in composite.parts)


def _around(
    entry: OpEntry, replaced: Mapping[str, Callable[[Tensor], Tensor]], func: Callable[..., Any], *args: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """A function computed around the operator of a function inside it, in place if that is asked for."""
    in_order, named = arguments_of(entry, func, args, kwargs)
    words = [word.partition("=")[0] for word in entry.signature.split()]
    named = {**dict(zip(words, in_order, strict=False)), **named} if "inplace" in words else named
    in_order = () if "inplace" in words else in_order
    is_inplace = bool(named.pop("inplace", False)) or (func.__name__.endswith("_") and not func.__name__.endswith("__"))
    target = named["input"] if "input" in named else in_order[0]
    x = target.clone() if is_inplace else target  # the derivative is computed from the old values
    if in_order:
        in_order = (x, *in_order[1:])
    else:
        named["input"] = x
    assert entry.program is not None
    out = entry.program(ExactSteps(replaced, x), *in_order, **named)
    if out is NotImplemented:
        return func(*args, **kwargs)
    return target.copy_(out) if is_inplace else out


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
