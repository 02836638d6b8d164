"""Which torch functions are matrix products, and where their operands and biases stand."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.nn import functional


class Product(NamedTuple):
    """Positions (or names) of the two operands and of what is added to the product."""

    operands: tuple[int, int]
    operand_names: tuple[str, str]
    bias: int | None = None
    bias_name: str | None = None


_LAYER = Product((0, 1), ("input", "weight"), 2, "bias")
_PLAIN = Product((0, 1), ("input", "other"))
_BATCHED = Product((0, 1), ("input", "mat2"))
_ADDED = Product((1, 2), ("mat1", "mat2"), 0, "input")
_ADDED_BATCHED = Product((1, 2), ("batch1", "batch2"), 0, "input")


@cache
def products() -> Mapping[Callable[..., Any], Product]:
    """Every torch function that emulation takes for a matrix product."""
    table: dict[Callable[..., Any], Product] = {
        functional.linear: _LAYER,
        torch.conv1d: _LAYER,
        torch.conv2d: _LAYER,
        torch.conv3d: _LAYER,
        torch.conv_transpose1d: _LAYER,
        torch.conv_transpose2d: _LAYER,
        torch.conv_transpose3d: _LAYER,
        torch.addmm: _ADDED,
        torch.Tensor.addmm: _ADDED,
        torch.baddbmm: _ADDED_BATCHED,
        torch.Tensor.baddbmm: _ADDED_BATCHED,
    }
    table |= dict.fromkeys([torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__], _PLAIN)
    table |= dict.fromkeys([torch.mm, torch.bmm, torch.Tensor.mm, torch.Tensor.bmm], _BATCHED)
    return table


EINSUM = torch.einsum
