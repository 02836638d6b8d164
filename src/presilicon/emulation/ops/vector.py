"""Torch functions that are vector ops: arithmetic that is not a matrix product.

`vector_functions` maps each such callable to a name (`torch.tanh`, `Tensor.tanh` and `functional.tanh` are all "tanh").
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from presilicon.operators import VECTOR_FUNCTIONS

_HOMES = (torch, torch.Tensor, functional, torch._C._nn, torch.special, torch.linalg)


@cache
def vector_functions() -> Mapping[Callable[..., Any], str]:
    """The name of every torch function that is a vector op, in-place variants included.

    >>> vector_functions()[torch.Tensor.add_], vector_functions()[functional.gelu]
    ('add', 'gelu')
    """
    table: dict[Callable[..., Any], str] = {}
    for name in VECTOR_FUNCTIONS:
        spellings = [name] if name.startswith("__") else [name, f"{name}_"]
        for home in _HOMES:
            for spelling in spellings:
                function = getattr(home, spelling, None)
                if callable(function):
                    table[function] = name
    return table
