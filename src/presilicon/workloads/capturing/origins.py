"""Origins of tensors: computed from weights, constants or data. Capture and emulation decide here what is a weight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from presilicon.ops import entry_named

Origin = Literal["weight", "constant", "data"]


def origin_of_result(function: str, origins: Iterable[Origin], *, multiplies: bool = False) -> Origin:
    """The origin of what `function` computes from floating-point tensors of these origins.

    A result of weights and constants alone is a weight: a masked weight, stacked or gathered experts, a product of two
    weights. A matrix product of a constant, such as an initial state, and a weight is not. Integers do not count, so a
    weight that is indexed by data is a weight, except for embedding tables, and positions are constants.

    >>> origin_of_result("mul", ["weight", "constant"]), origin_of_result("mul", ["weight", "data"])
    ('weight', 'data')
    """
    present = set(origins)
    entry = entry_named(function.strip("_"))
    is_lookup = entry is not None and entry.is_lookup
    if "data" in present or is_lookup or (multiplies and present == {"constant", "weight"}):
        return "data"
    return "weight" if "weight" in present else "constant"
