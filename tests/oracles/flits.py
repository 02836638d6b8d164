"""A network on chip, flit by flit: every cycle each link takes the first flit that waits for it.

Routers hold as many flits as come. A flit that several cores need is copied where its routes part; parts of a sum wait
for each other where their routes meet. Routes are written down here again, from the rule of each topology.
"""

from collections import deque
from itertools import pairwise


def neighbours_route(topology: str, rows: int, cols: int, source: int, target: int) -> list[int]:
    """The cores on the way, both ends included."""
    count = rows * cols
    if topology == "all-to-all":
        return [source, target]
    if topology == "ring":
        ahead = (target - source) % count
        step = 1 if ahead <= count - ahead else -1
        hops = min(ahead, count - ahead)
        return [(source + step * hop) % count for hop in range(hops + 1)]
    (row, col), (end_row, end_col) = divmod(source, cols), divmod(target, cols)
    way = [source]
    while col != end_col:
        col += 1 if end_col > col else -1
        way.append(row * cols + col)
    while row != end_row:
        row += 1 if end_row > row else -1
        way.append(row * cols + col)
    return way


def send(topology: str, rows: int, cols: int, flows: list[tuple[int, tuple[int, ...], int, bool]]):
    """Cycles until everything has arrived, and the flits on each link.

    A flow is a core, the others, a number of flits, and whether those others send parts of a sum to it.
    """
    waiting: dict[tuple[int, int], deque] = {}
    used: dict[tuple[int, int], int] = {}
    trees = []
    for number, (source, targets, flits, summed) in enumerate(flows):
        children: dict[int, set[int]] = {}
        for target in targets:
            way = neighbours_route(topology, rows, cols, source, target)
            for begin, end in pairwise(way):
                children.setdefault(begin, set()).add(end)
        trees.append((source, children))
        parents = {end: begin for begin, ends in children.items() for end in ends}
        for flit in range(flits):
            if summed:
                for leaf in set(parents) - set(children):
                    waiting.setdefault((leaf, parents[leaf]), deque()).append((number, flit, parents, {}))
            else:
                for end in children.get(source, ()):
                    waiting.setdefault((source, end), deque()).append((number, flit, None, None))
    arrived: dict[tuple[int, int, int], int] = {}
    cycles = 0
    while any(waiting.values()):
        cycles += 1
        moved = [(link, queue.popleft()) for link, queue in waiting.items() if queue]
        for (begin, end), (number, flit, parents, _) in moved:
            used[begin, end] = used.get((begin, end), 0) + 1
            source, children = trees[number]
            if parents is None:
                for after in children.get(end, ()):
                    waiting.setdefault((end, after), deque()).append((number, flit, None, None))
                continue
            key = (number, flit, end)
            arrived[key] = arrived.get(key, 0) + 1
            if arrived[key] == len(children[end]) and end != source:
                waiting.setdefault((end, parents[end]), deque()).append((number, flit, parents, None))
    return cycles, used
