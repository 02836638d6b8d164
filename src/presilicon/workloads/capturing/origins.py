"""Origins of tensors: computed from weights, constants or data. Capture and emulation decide here what is a weight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Origin = Literal["weight", "constant", "data"]

_LOOKUPS = frozenset(["embedding", "embedding_bag"])
"""Functions whose results are activations: rows that the data chose from a table."""


def origin_of_result(function: str, origins: Iterable[Origin], *, multiplies: bool = False) -> Origin:
    """The origin of what `function` computes from floating-point tensors of these origins.

    A result of weights and constants alone is a weight: a masked weight, stacked or gathered experts, a product of two
    weights. A matrix product of a constant, such as an initial state, and a weight is not. Integers do not count, so a
    weight that is indexed by data is a weight, except for embedding tables, and positions are constants.

    >>> origin_of_result("mul", ["weight", "constant"]), origin_of_result("mul", ["weight", "data"])
    ('weight', 'data')
    """
    present = set(origins)
    if "data" in present or function.strip("_") in _LOOKUPS or (multiplies and present == {"constant", "weight"}):
        return "data"
    return "weight" if "weight" in present else "constant"
