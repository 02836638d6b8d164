"""The arithmetic of one role: a step at a time on float32 tensors, each result in the role's format.

A user-defined format computes a step by its own function on codes, or without one in float32, converted. Any other
format computes each step in float32 and rounds the result. There is no autograd here.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from presilicon.designs import RoleFormat
from presilicon.formats import Key, exact_step, function_behind, quantize, user_step

Note = Callable[[str, str, int], None]
"""Takes the name of a step, the formats in words, and its number of results."""


class Line:
    """The steps of one role in one op."""

    def __init__(
        self,
        role_format: RoleFormat | None,
        role: str,
        key_of: Callable[[str], Key],
        note: Note,
        unlisted: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        """`role_format` is None where steps are float32 and not rounded."""
        self._role_format, self._role, self._key_of = role_format, role, key_of
        self._note, self._unlisted = note, unlisted
        self._count = 0

    def compute(self, name: str, *operands: Tensor) -> Tensor:
        """One step on tensors that broadcast."""
        key = self._next_key()
        own = None if self._role_format is None else self._role_format.format.arithmetic
        with self._unlisted():
            if own is not None:
                out = user_step(own, name, operands, key).to(operands[0].dtype)
            else:
                out = self._rounded(exact_step(name, operands), key)
        self._note(name, self._spell(name), out.numel())
        return out

    def enter(self, x: Tensor) -> Tensor:
        """`x` in the role's format."""
        key = self._next_key()
        with self._unlisted():
            return self._rounded(x, key)

    def share(self, x: Tensor, count: Tensor | int) -> Tensor:
        """`x` divided by a number of equal terms, in the role's format."""
        key = self._next_key()
        with self._unlisted():
            return self._rounded(x / count, key)

    def total(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        """The sum over some axes, which stay with length 1: a tree that adds neighbours, level by level.

        An odd number of terms leaves the last for the next level. Several axes are one long axis, the last innermost.
        """
        if not dims:
            return x
        if self._role_format is None:
            self._note("add", self._spell("add"), x.numel())
            with self._unlisted():
                return x.sum(dims, keepdim=True)
        return restore(self._tree("add", flatten(x, dims))[0], x, dims)

    def extreme(self, name: str, x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The maximum or minimum over some axes, and its index among them; the first of equal ones."""
        rows = flatten(x, dims)
        values, indices = self._tree(name, rows)
        return restore(values, x, dims), restore(indices, x, dims)

    def _tree(self, name: str, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The last axis joined by a tree of steps; for a maximum or minimum, with the index of the chosen element."""
        if rows.shape[-1] == 0:
            empty = rows.new_zeros((*rows.shape[:-1], 1))
            return self.enter(empty), empty
        chooses = name != "add"
        indices = torch.arange(rows.shape[-1], device=rows.device).expand(rows.shape) if chooses else rows
        while rows.shape[-1] > 1:
            even = rows.shape[-1] // 2 * 2
            left, right, rest = rows[..., 0:even:2], rows[..., 1:even:2], rows[..., even:]
            joined = self.compute(name, left, right)
            if chooses:
                chosen = torch.where(joined == left, indices[..., 0:even:2], indices[..., 1:even:2])
                indices = torch.cat([chosen, indices[..., even:]], -1)
            rows = torch.cat([joined, rest], -1) if rest.shape[-1] else joined
        return rows, indices

    def _rounded(self, x: Tensor, key: Key | None) -> Tensor:
        if self._role_format is None:
            return x
        return quantize(x, self._role_format.format, rounding=self._role_format.rounding_mode, key=key)

    def _next_key(self) -> Key | None:
        self._count += 1
        is_drawn = self._role_format is not None and self._role_format.is_stochastic
        return self._key_of(f"{self._role}/step{self._count}") if is_drawn else None

    def _spell(self, name: str) -> str:
        own = None if self._role_format is None else self._role_format.format.arithmetic
        if self._role_format is None:
            return f"{self._role} float32"
        if own is None:
            return f"{self._role} {self._role_format}, rounded"
        function = function_behind(own, name)
        how = "float32, converted" if function is None else f"by its `{function}`"
        return f"{self._role} {own}, {how}"


def flatten(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Some axes moved last, as one."""
    rest = [axis for axis in range(x.dim()) if axis not in dims]
    return x.permute(*rest, *dims).flatten(len(rest)) if dims else x.unsqueeze(-1)


def restore(rows: Tensor, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """A reduced tensor with the axes of `x`, those reduced of length 1."""
    return rows.reshape([1 if axis in dims else size for axis, size in enumerate(x.shape)])
