"""Findings about the last few objects: a step is priced on many designs, and its structure is always the same."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Found = TypeVar("Found")


class Recent(Generic[Found]):
    """Results by the identity of an object, which is kept so that no other one takes its place.

    >>> squares = Recent[int](2)
    >>> number = [3]
    >>> squares.find(number, "square", lambda: number[0] ** 2), squares.find(number, "square", lambda: 0)
    (9, 9)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[tuple[int, Hashable], tuple[Any, Found]] = OrderedDict()

    def find(self, owner: object, key: Hashable, make: Callable[[], Found]) -> Found:
        """The result for an object and a key; `make` is called if it is not there."""
        entry = self._entries.get((id(owner), key))
        if entry is None:
            entry = self._entries[id(owner), key] = (owner, make())
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)
        return entry[1]
