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
        """Networks of some of the cores, this one first: those of smaller chips that its links can stand for.

        Their numbers of cores are powers of two, three times those, and this one halved again and again. A part of a
        mesh is a rectangle that fits in it, or a row that bends once: data goes along rows first, so no link carries
        more. Some cores of a ring have the load of a ring of as many: those between them pass it on.

        >>> [(part.rows, part.cols) for part in Network("mesh", 2, 4).parts()]
        [(2, 4), (2, 3), (2, 2), (1, 3), (1, 2), (1, 1)]
        """
        parts, rows, cols = {self.count: self}, self.rows, self.cols
        while rows * cols > 1:
            rows, cols = (rows, cols // 2) if cols > rows else (rows // 2, cols)
            parts[rows * cols] = Network(self.topology, rows, cols)
        counts = [factor << power for factor in (1, 3) for power in range(self.count.bit_length())]
        for count in {*parts, *counts} - {self.count}:
            chip = Network.of_cores(Cores(count=min(count, self.count), network=self.topology))
            is_rectangle = chip.rows <= self.rows and chip.cols <= self.cols
            is_corner = chip.rows == 1 and chip.cols < self.rows + self.cols
            if count < self.count and (is_rectangle or is_corner or self.topology != "mesh"):
                parts[count] = chip
        return [parts[count] for count in sorted(parts, reverse=True)]

    def route(self, source: int, target: int) -> list[Link]:
        """The links from one core to another.

        >>> Network("mesh", 2, 3).route(0, 5), Network("ring", 1, 5).route(0, 3)
        ([(0, 1), (1, 2), (2, 5)], [(0, 4), (4, 3)])
        """
        at, links = target, []
        while at != source:
            before = self._before(at, source)
            links.append((before, at))
            at = before
        return links[::-1]

    def _before(self, at: int, source: int) -> int:
        """The core before one on the way from a source, which is the same for all that lie behind it."""
        if self.topology == "all-to-all":
            return source
        if self.topology == "ring":
            ahead = (at - source) % self.count
            return (at - (1 if 2 * ahead <= self.count else -1)) % self.count
        side = self.cols if at // self.cols != source // self.cols else 1
        return at + (side if at < source else -side)

    def links(self) -> list[Link]:
        """All links."""
        return list(_links(self))

    def load(self, flows: Iterable[Flow]) -> dict[Link, float]:
        """Bytes on each link that has any."""
        loads: dict[Link, float] = {}
        for flow in flows:
            reached = {flow.source}
            for target in flow.targets:
                at = target
                while at not in reached:
                    reached.add(at)
                    before = self._before(at, flow.source)
                    link = (at, before) if flow.summed else (before, at)
                    loads[link] = loads.get(link, 0.0) + flow.size
                    at = before
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
