"""Loops that a compiler makes of the ops of a step that are no products, by the rules of torch.compile (Inductor).

Nodes that walk through the same elements and share data become one loop.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from presilicon.records import Op
from presilicon.simulation.roofline.lowering import Node

_LARGE, _MANY = 5 * 2**20, 4096
"""Elements, and rows, of a tensor that one loop sums up along rows and along columns."""


class FusedLoop(NamedTuple):
    """A kernel of merged ops."""

    op: int
    """Position of the op that it begins with."""
    size_bytes: float


def fuse(nodes: Sequence[Node], ops: Sequence[Op]) -> list[FusedLoop]:
    """Merge the nodes of a step into loops, in their order.

    A node joins a loop that computes what it reads, or else one that reads the same, unless something else that it
    reads depends on that loop. Each kernel has a rank in the order; a loop's limit is the lowest rank that reads from
    it, so a kernel of a lower rank does not depend on it.
    """
    home: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    loops: list[list[Node]] = []
    ranks: list[int] = []
    limits: list[float] = []
    for node in nodes:
        sources = {home[value] for value in node.reads if value in home}
        near = {loop for value in node.reads for loop in users.get(value, ())} - sources
        own = -1
        for loop in [*sorted(sources, reverse=True), *sorted(near, reverse=True)] if node.kept else ():
            others = [ranks[source] for source in sources - {loop}]
            is_same_pass = (ops[loops[loop][0].op].phase == "forward") == (ops[node.op].phase == "forward")
            if is_same_pass and all(rank < limits[loop] for rank in others) and _fits(loops[loop], node):
                own = loop
                ranks[own] = max([ranks[own], *others])
                break
        if own < 0:
            own = len(loops)
            loops.append([])
            ranks.append(own)
            limits.append(inf)
        loops[own].append(node)
        for source in sources - {own}:
            limits[source] = min(limits[source], ranks[own])
        home.update(dict.fromkeys(node.writes, own))
        for value in node.reads:
            users.setdefault(value, []).append(own)
    return [FusedLoop(loop[0].op, _edge_bytes(loop, index, users)) for index, loop in enumerate(loops) if loop[0].kept]


def _fits(loop: Sequence[Node], node: Node) -> bool:
    """Whether a node walks through the same elements as a loop."""
    if not loop[0].kept or any(_are_mixed(member, node) for member in loop):
        return loop[0].kept > 0
    has_rows = any(member.reduces and not member.by_columns for member in loop)
    return all(_match(member, node) for member in loop if not (has_rows and member.by_columns))


def _match(left: Node, right: Node) -> bool:
    if left.total != right.total:
        few, many = sorted((left, right), key=lambda node: node.total)
        return not few.reduces and few.total == many.kept
    if left.reduces and right.reduces:
        return (left.kept, left.by_columns) == (right.kept, right.by_columns)
    return not (left.is_part or right.is_part)


def _are_mixed(left: Node, right: Node) -> bool:
    """Whether nodes reduce a large tensor along rows and along columns."""
    rows, columns = max(left.kept, right.kept), min(left.kept, right.kept)
    is_mixed = left.by_columns != right.by_columns and rows * columns == left.total == right.total
    return is_mixed and left.total >= _LARGE and rows >= max(_MANY, 2 * columns)


def _edge_bytes(loop: Sequence[Node], index: int, users: dict[int, list[int]]) -> float:
    """Bytes that a loop reads and writes: each value once, and none that stays inside."""
    read: dict[int, float] = {}
    written: dict[int, float] = {}
    for node in loop:
        for value, size in node.reads.items():
            if value not in written:
                read[value] = max(read.get(value, 0.0), size)
        written.update(node.writes)
    needed = (size for value, size in written.items() if set(users.get(value, [-1])) != {index})
    return sum(read.values()) + sum(needed)
