"""Origins of the tensors of a forward pass: which of them were computed from weights and constants alone."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from presilicon.records import Role
from presilicon.workloads import Origin, constants_of, origin_of_result, tensors_in


class Origins:
    """Tracks derived weights and constants through the functions of a forward pass; all else is data."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], Origin]] = {}
        self._substitutes: dict[int, weakref.ref[Tensor]] = {}
        self._held: dict[int, weakref.ref[Tensor]] = {}
        self._moved: dict[int, weakref.ref[Tensor]] = {}
        self._inputs: list[tuple[Origin, bool, bool, bool]] = []
        """Of the tensors that a checkpointed region was called with: origin, whether parameter, held and moved."""

    def of(self, tensor: Tensor) -> Origin:
        """The origin of a tensor: parameters are weights, views are what they are views of."""
        if self.is_parameter(tensor):
            return "weight"
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        base = tensor._base
        return "data" if base is None else self.of(base)

    def is_parameter(self, value: Any) -> bool:
        """Whether a value is a parameter, or a tensor that `torch.func.functional_call` put in its place."""
        if isinstance(value, nn.Parameter):
            return True
        substitute = self._substitutes.get(id(value)) if self._substitutes else None
        return substitute is not None and substitute() is value

    def is_of_parameters(self, value: Any) -> bool:
        """Whether a value is a parameter, or a part, a copy or several of them joined, each number once."""
        if not isinstance(value, Tensor) or self.is_parameter(value):
            return isinstance(value, Tensor)
        moved = self._moved.get(id(value))
        if moved is not None and moved() is value:
            return True
        is_part = value._base is not None and 0 not in value.stride()
        return is_part and self.is_of_parameters(value._base)

    def is_held(self, tensor: Tensor) -> bool:
        """Whether a module holds a tensor, or what it is a view of, as a parameter or buffer."""
        if self.is_parameter(tensor):
            return True
        held = self._held.get(id(tensor))
        if held is not None and held() is tensor:
            return True
        return tensor._base is not None and self.is_held(tensor._base)

    def role_of(self, operand: Tensor) -> Role:
        """The role of an operand of a product."""
        return "weight" if self.of(operand) == "weight" else "activation"

    def note_members(self, module: nn.Module) -> None:
        """Register the tensors that a module holds: constants, and those in place of parameters."""
        members: Iterable[Tensor | None] = module._parameters.values()
        for value in members:
            if value is not None and not isinstance(value, nn.Parameter):
                self._substitutes[id(value)] = weakref.ref(value)
        for tensor in constants_of([module]):
            self._held[id(tensor)] = weakref.ref(tensor)
            if tensor.is_floating_point() and not tensor.requires_grad:
                self._note(tensor, "constant")

    def note_result(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        result: Any,
        *,
        multiplies: bool,
        moves: bool = False,
    ) -> None:
        """Register what a function returned, unless it is data; a tensor that data is written to becomes data.

        `multiplies`: whether the function is a matrix product; `moves`: whether it computes nothing.
        """
        name = getattr(func, "__name__", "")
        origins: list[Origin] = []
        for tensor in tensors_in((*args, *kwargs.values()) if kwargs else args):
            if tensor.is_floating_point():
                origin = self.of(tensor)
                if origin == "data":
                    if name.endswith("_") and args and isinstance(args[0], Tensor):  # in place
                        self._forget(args[0])
                    return
                origins.append(origin)
                moves = moves and (origin == "constant" or self.is_of_parameters(tensor))
        origin = origin_of_result(name, origins, multiplies=multiplies)
        if origin != "data":
            for tensor in tensors_in(result if isinstance(result, list | tuple) else (result,)):
                if tensor.is_floating_point() and not self.is_parameter(tensor):
                    self._note(tensor, origin)
                    if moves and origin == "weight":
                        self._moved[id(tensor)] = weakref.ref(tensor)

    def copied(self, inputs: Iterable[Any] = ()) -> "Origins":
        """A copy, for a forward pass that continues from here in a region that is called with `inputs`."""
        copy = Origins()
        copy._known, copy._substitutes, copy._held = dict(self._known), dict(self._substitutes), dict(self._held)
        copy._moved = dict(self._moved)
        copy._inputs = [self._kind_of(value) for value in inputs] or self._inputs
        return copy

    def _kind_of(self, value: Any) -> tuple[Origin, bool, bool, bool]:
        if not isinstance(value, Tensor):
            return "data", False, False, False
        return self.of(value), self.is_parameter(value), self.is_held(value), self.is_of_parameters(value)

    def stand_in(self, tensor: Tensor, number: int) -> None:
        """Treat a tensor as that input of the region."""
        if number >= len(self._inputs):
            return
        origin, *kinds = self._inputs[number]
        for table, belongs in zip((self._substitutes, self._held, self._moved), kinds, strict=True):
            if belongs:
                table[id(tensor)] = weakref.ref(tensor)
        if origin != "data":
            self._note(tensor, origin)

    def clear(self) -> None:
        """Forget everything at the end of the forward pass."""
        self._known.clear()
        self._substitutes.clear()
        self._held.clear()
        self._moved.clear()

    def _forget(self, tensor: Tensor) -> None:
        for written in (tensor, tensor._base):
            if written is not None:
                self._known.pop(id(written), None)
                self._moved.pop(id(written), None)

    def _note(self, tensor: Tensor, origin: Origin) -> None:
        self._known[id(tensor)] = (weakref.ref(tensor), origin)
