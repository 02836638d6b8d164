"""The links of a network on chip, the routes through it, and the load of each link.

Data that several cores need goes along a tree: each link carries it once. Sums that several cores have parts of come
back along such a tree, added up where its branches meet. A phase of traffic takes as long as its busiest link; the
latency of hops is not counted, because transfers are long and overlap with computing. The oracle in
`tests/oracles/flits.py` sends every flit.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from presilicon.simulation.cores.description import Cores, Topology

Link = tuple[int, int]
"""From one core to a neighbour."""


class Flow(NamedTuple):
    """Data of one core for some others, or, where it is `summed`, parts of a sum of those others for one core."""

    source: int
    targets: tuple[int, ...]
    size: float
    summed: bool = False


class Network(Struct, frozen=True):
    """Cores in rows and columns, of which some are in use: the first of them, or evenly spaced ones on a ring."""

    topology: Topology
    rows: int
    cols: int

    @classmethod
    def of_cores(cls, cores: Cores) -> "Network":
        """The network of all cores."""
        return cls(cores.network, *cores.sides)

    @property
    def count(self) -> int:
        """Cores."""
        return self.rows * self.cols

    def parts(self) -> "list[Network]":
        """Networks of some of the cores that have the same links: halved again and again, this one first.

        Every second core of a ring has the load of a ring of half as many. A part of a mesh is a rectangle.

        >>> [(part.rows, part.cols) for part in Network("mesh", 2, 4).parts()]
        [(2, 4), (2, 2), (1, 2), (1, 1)]
        """
        parts = [self]
        while parts[-1].count > 1:
            last = parts[-1]
            rows, cols = (last.rows, last.cols // 2) if last.cols > last.rows else (last.rows // 2, last.cols)
            parts.append(Network(self.topology, rows, cols))
        return parts

    def route(self, source: int, target: int) -> list[Link]:
        """The links from one core to another.

        >>> Network("mesh", 2, 3).route(0, 5), Network("ring", 1, 5).route(0, 3)
        ([(0, 1), (1, 2), (2, 5)], [(0, 4), (4, 3)])
        """
        at, links = source, []
        while at != target:
            after = self._step(at, target)
            links.append((at, after))
            at = after
        return links

    def _step(self, at: int, target: int) -> int:
        if self.topology == "all-to-all":
            return target
        if self.topology == "ring":
            ahead = (target - at) % self.count
            return (at + (1 if 2 * ahead <= self.count else -1)) % self.count
        if at % self.cols != target % self.cols:
            return at + (1 if at % self.cols < target % self.cols else -1)
        return at + (self.cols if at < target else -self.cols)

    def links(self) -> list[Link]:
        """All links."""
        return list(_links(self))

    def load(self, flows: Iterable[Flow]) -> dict[Link, float]:
        """Bytes on each link that has any."""
        loads: dict[Link, float] = {}
        for flow in flows:
            tree = {link for target in flow.targets for link in self.route(flow.source, target)}
            for begin, end in tree:
                link = (end, begin) if flow.summed else (begin, end)
                loads[link] = loads.get(link, 0.0) + flow.size
        return loads

    def loads(self, flows: Iterable[Flow]) -> Any:
        """Bytes on each of `links`, as an array."""
        loads = self.load(flows)
        return np.array([loads.get(link, 0.0) for link in self.links()])


@lru_cache(maxsize=64)
def _links(network: Network) -> tuple[Link, ...]:
    cores = range(network.count)
    if network.topology == "all-to-all":
        return tuple((begin, end) for begin in cores for end in cores if begin != end)
    pairs: set[Link] = set()
    for core in cores:
        row, col = divmod(core, network.cols)
        if network.topology == "ring":
            pairs |= {(core, (core + 1) % network.count), ((core + 1) % network.count, core)}
            continue
        if col + 1 < network.cols:
            pairs |= {(core, core + 1), (core + 1, core)}
        if row + 1 < network.rows:
            pairs |= {(core, core + network.cols), (core + network.cols, core)}
    return tuple(sorted(pair for pair in pairs if pair[0] != pair[1]))
