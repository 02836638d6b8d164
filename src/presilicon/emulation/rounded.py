"""The rounded copies of the tensors of a pass, so that none is rounded twice."""

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from presilicon.formats import Factored
from presilicon.records import Role

Operand = Tensor | Factored
"""A rounded operand of a product: numbers, or codes and scales."""


def version(tensor: Tensor) -> int:
    """Number of writes to a tensor; 0 for tensors of inference mode, which do not count them and are never cached."""
    return 0 if tensor.is_inference() else tensor._version


class _Copy:
    """The rounded copy of a tensor, and how to round that tensor again to the same bits."""

    __slots__ = ("copy", "how", "is_own", "repeat", "source", "version")

    def __init__(
        self, tensor: Tensor, how: object, copy: Operand | None, repeat: Callable[[Tensor], Operand] | None
    ) -> None:
        self.source = weakref.ref(tensor)
        self.version = version(tensor)
        self.how = how
        self.copy = copy
        self.is_own = copy is tensor
        """Whether the tensor itself was rounded, in place."""
        self.repeat = repeat

    def emptied(self) -> "_Copy":
        """This entry without its memory; the tensor is rounded again when the copy is needed."""
        entry: _Copy = _Copy.__new__(_Copy)
        entry.source, entry.version, entry.how = self.source, self.version, self.how
        entry.copy, entry.is_own, entry.repeat = None, self.is_own, self.repeat
        return entry

    def moved_to(self, tensor: Tensor) -> "_Copy":
        """The same without its memory, of a tensor with the same numbers."""
        entry = self.emptied()
        entry.source, entry.version = weakref.ref(tensor), version(tensor)
        return entry

    def is_of(self, tensor: Tensor) -> bool:
        """Whether this is an entry of a tensor, or of what it is a view of, which was not written to since."""
        original = self.source()
        is_view = self.is_own and original is tensor._base and not isinstance(self.how, tuple)
        return original is not None and self.version == version(tensor) and (original is tensor or is_view)

    def of(self, tensor: Tensor) -> Operand | None:
        """The rounded copy if this is an entry of `tensor`, which was not written to since."""
        if self.version != version(tensor):
            return None
        original = self.source()
        if original is tensor or (self.copy is None and original is not None and _is_same_memory(original, tensor)):
            if self.copy is None:
                self.copy = tensor if self.repeat is None else self.repeat(tensor)
            return self.copy
        # A view of a result that was rounded in place is rounded too.
        if self.is_own and original is not None and original is tensor._base and not isinstance(self.how, tuple):
            return tensor.detach()
        return None


def _is_same_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


class Rounded:
    """Cache of the tensors rounded in this forward pass, so that none is rounded twice.

    Weights stay until the pass ends (a recurrent layer uses them at every time step). Of activations only the most
    recent stay, because the three projections of attention read the same one.
    """

    RECENT = 4

    def __init__(self) -> None:
        self._weights: dict[tuple[int, object], _Copy] = {}
        self._recent: deque[_Copy] = deque(maxlen=self.RECENT)
        self._inputs: list[tuple[list[_Copy], list[_Copy]]] = []
        """Copies of the tensors that a checkpointed region was called with: as weights, and the most recent."""
        self._exposed: set[int] = set()

    def find(self, tensor: Tensor, role: Role, how: object) -> Operand | None:
        """The rounded copy of `tensor`, unless it was written to since."""
        if id(tensor) in self._exposed or tensor.is_inference():  # writes to those of inference mode are not counted
            return None
        if role == "weight":
            held = self._weights.get((id(tensor), how))
            return held.of(tensor) if held else None
        for entry in self._recent:
            if entry.how == how and (copy := entry.of(tensor)) is not None:
                return copy
        return None

    def keep(
        self, tensor: Tensor, role: Role, how: object, copy: Operand, repeat: Callable[[Tensor], Operand] | None = None
    ) -> None:
        """Add the rounded copy of `tensor`; `repeat` computes it again, and is None if `copy` is the tensor itself."""
        entry = _Copy(tensor, how, copy, repeat)
        if role == "weight":
            self._weights[id(tensor), how] = entry
        else:
            self._recent.append(entry)

    def emptied(self, inputs: Iterable[Any] = ()) -> "Rounded":
        """A cache of the same tensors that holds no memory: a copy is computed again when it is first needed.

        `inputs` are the tensors that a checkpointed region is called with; see `stand_in`.
        """
        cache = Rounded()
        cache._weights = {key: entry.emptied() for key, entry in self._weights.items()}
        cache._recent.extend(entry.emptied() for entry in self._recent)
        cache._exposed = set(self._exposed)
        cache._inputs = [(self._copies(value, weights=True), self._copies(value)) for value in inputs] or self._inputs
        return cache

    def _copies(self, value: Any, *, weights: bool = False) -> list[_Copy]:
        held = self._weights.values() if weights else self._recent
        return [entry.emptied() for entry in held if entry.is_of(value)] if isinstance(value, Tensor) else []

    def stand_in(self, tensor: Tensor, number: int) -> None:
        """Treat a tensor as that input of the region."""
        if number < len(self._inputs):
            weights, recent = self._inputs[number]
            self._weights |= {(id(tensor), entry.how): entry.moved_to(tensor) for entry in weights}
            self._recent = deque(
                (*(entry.moved_to(tensor) for entry in recent), *self._recent), maxlen=self.RECENT + len(recent)
            )

    def expose(self, tensor: Tensor) -> None:
        """Round a tensor at every use: its `.data` was handed out, and writes to that are not counted."""
        self._exposed.add(id(tensor))

    def clear(self) -> None:
        """Empty the cache at the end of the forward pass."""
        self._weights.clear()
        self._recent.clear()
        self._exposed.clear()
