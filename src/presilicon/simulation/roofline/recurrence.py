"""Recurrent layers in a captured step: ops that capture records per time step and a library merges into one kernel.

Capture unrolls a recurrent layer over time: every time step has products of its own with the same weights. A library
multiplies the inputs of all time steps at once, and the gradients of the weights too; only products with the state
follow one another. Gates are computed on the way.
"""

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from presilicon.records import Gemm, Op


class Recurrence(Struct, frozen=True, kw_only=True):
    """Changes that a recurrent kernel makes to a step, by indices of ops."""

    merged: dict[int, Gemm]
    """Products that stand for those of all time steps."""
    absorbed: frozenset[int]
    """Ops whose work another one does."""


def find_recurrence(ops: Sequence[Op]) -> Recurrence:
    """The recurrent layers of a step; empty if it has none."""
    recurrent = [op for op in ops if op.recurrent and op.phase != "update"]
    sources: dict[int, set[int]] = defaultdict(set)
    for op in recurrent:
        if op.gemm and op.phase == "forward":
            sources[op.inputs[1].id].add(op.inputs[0].id)
    at_once = {weight for weight, inputs in sources.items() if len(inputs) == 1}
    groups: dict[tuple[str, str, int, Gemm], list[Op]] = defaultdict(list)
    absorbed: set[int] = set()
    for op in recurrent:
        if op.gemm is None:
            absorbed.add(op.index)
        elif op.phase == "weight_grad":
            groups[op.layer, op.phase, 0, op.gemm].append(op)
        elif op.inputs[1].id in at_once:
            groups[op.layer, op.phase, op.inputs[1].id, op.gemm].append(op)
    merged: dict[int, Gemm] = {}
    for (_, phase, _, gemm), group in groups.items():
        times = len(group)
        whole = Gemm(gemm.m, gemm.k * times, gemm.n) if phase == "weight_grad" else Gemm(gemm.m * times, gemm.k, gemm.n)
        merged[group[0].index] = whole
        absorbed.update(op.index for op in group[1:])
    return Recurrence(merged=merged, absorbed=frozenset(absorbed))
