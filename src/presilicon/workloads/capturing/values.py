"""Values of integer and boolean tensors on the meta device, for models that branch on masks and positions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    """One result of a call that is evaluated when somebody asks for it."""

    function: Callable[..., Any]
    args: Any
    """Arguments, with a `_Result` or a real tensor in the place of each meta tensor."""
    kwargs: Any
    position: int


class Values:
    """Remembers how integer and boolean tensors were computed from known ones, and evaluates them on demand.

    Known are tensors that the caller has given with values, and all that are computed from them and from numbers alone
    (`arange`, comparisons, sums). A call with a floating-point or an unknown tensor, or with random numbers, has
    unknown results. Nothing is computed before `read`, because masks can be large and models rarely look at them.
    """

    def __init__(self) -> None:
        self._known: defaultdict[int, dict[int, tuple[Tensor, _Result | Tensor]]] = defaultdict(dict)
        """By storage, then by the `id` of the tensor, which is referenced so that its id is not reused."""

    def learn(self, replica: Tensor, value: Tensor) -> None:
        """Note the value of a meta tensor, unless it is a floating-point number or unknown too."""
        if not (value.is_meta or value.is_floating_point() or value.is_complex()):
            self._store(replica, value.detach())

    def follow(self, function: Any, args: Any, kwargs: Any, written: Iterable[Tensor], output: Any) -> None:
        """Note a call that was run on the meta device; `written` are the arguments that it has overwritten."""
        overwritten = list(written)
        for tensor in overwritten:
            self._known.pop(tensor.untyped_storage()._cdata, None)
        outputs = pytree.tree_leaves(output)
        counts = [isinstance(leaf, Tensor) and leaf.is_meta and not leaf.is_floating_point() for leaf in outputs]
        if overwritten or not any(counts) or torch.Tag.nondeterministic_seeded in function.tags:
            return
        known = _known_arguments(self, (args, kwargs))
        if known is not None:
            known_args, known_kwargs = known
            for position, (leaf, is_counted) in enumerate(zip(outputs, counts, strict=True)):
                if is_counted:
                    self._store(leaf, _Result(function, known_args, known_kwargs, position))

    def find(self, tensor: Tensor) -> _Result | Tensor | None:
        """The value of a meta tensor or the way to it; None if it is unknown."""
        entry = self._known.get(tensor.untyped_storage()._cdata, {}).get(id(tensor))
        return entry[1] if entry else None

    def read(self, tensor: Tensor) -> Tensor | None:
        """The value of a meta tensor; None if it is unknown."""
        known = self.find(tensor)
        return None if known is None else _evaluate(known, {})

    def _store(self, tensor: Tensor, value: _Result | Tensor) -> None:
        self._known[tensor.untyped_storage()._cdata][id(tensor)] = (tensor, value)


def _known_arguments(values: Values, arguments: tuple[Any, Any]) -> tuple[Any, Any] | None:
    """Arguments with values in the place of meta tensors, on the CPU; None if a tensor is unknown."""
    leaves, structure = pytree.tree_flatten(arguments)
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.is_meta:
            leaves[position] = values.find(leaf)
            if leaves[position] is None:
                return None
        elif isinstance(leaf, torch.device):
            leaves[position] = torch.device("cpu")
    known: tuple[Any, Any] = pytree.tree_unflatten(leaves, structure)
    return known


def _evaluate(known: Any, done: dict[_Result, Any]) -> Any:
    """The real tensor of a result; `done` holds those that were evaluated before. Other values are returned as is."""
    if not isinstance(known, _Result):
        return known
    if known not in done:
        args, kwargs = pytree.tree_map(lambda leaf: _evaluate(leaf, done), (known.args, known.kwargs))
        done[known] = pytree.tree_leaves(known.function(*args, **kwargs))[known.position]
    return done[known]
