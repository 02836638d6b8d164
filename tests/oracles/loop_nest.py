"""A loop nest walked step by step: what each store holds, and how often it must be fetched."""

from itertools import product
from math import prod

from presilicon.simulation.mapping.nest import Loop
from presilicon.simulation.mapping.problem import Contraction, Tensor

_INDEXED_BY = {"X": "gbcyxzrst", "W": "gkcrst", "Y": "gbkyxz"}
"""The loops that move on through a tensor of Y[g,b,k,y,x,z] = sum X[g,b,c,y+r,x+s,z+t] W[g,k,c,r,s,t]."""


def count_changes(loops: tuple[Loop, ...], tensor: Tensor, inner: int) -> tuple[int, int]:
    """How often the part of a tensor inside the innermost loops changes, and the number of different parts."""
    outer = loops[inner:]
    now, fetched, seen = None, 0, set()
    for position in product(*(range(loop.count) for loop in reversed(outer))):
        steps = tuple(zip(reversed(outer), position, strict=True))
        part = tuple((i, index) for i, (loop, index) in enumerate(steps) if loop.dim in _INDEXED_BY[tensor])
        if part != now:
            now, fetched = part, fetched + 1
            seen.add(part)
    return fetched, len(seen)


def elements(problem: Contraction, tensor: Tensor, tile: dict[str, int]) -> int:
    """Different elements of a tensor that a tile of the loops touches, one by one."""
    g, b, k, c, y, x, r, s, z, t = (range(tile.get(dim, 1)) for dim in "gbkcyxrszt")
    if tensor == "W":
        return prod(map(len, (g, k, c, r, s, t)))
    if tensor == "Y":
        return prod(map(len, (g, b, k, y, x, z)))
    sizes = []
    for axis, (positions, kernel) in enumerate(((y, r), (x, s), (z, t))):
        stride, dilation = problem.stride[axis], problem.dilation[axis]
        rows = {p * stride + q * dilation for p in positions for q in kernel}
        limit = None if problem.input_size is None else problem.input_size[axis]
        sizes.append(len(rows) if limit is None else min(len(rows), limit))
    return prod(map(len, (g, b, c))) * prod(sizes)
