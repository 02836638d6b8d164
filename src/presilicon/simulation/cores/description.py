"""The cores of a chip and the network between them, as a design describes them."""

from math import isqrt
from typing import Annotated, Literal

from msgspec import Meta, Struct

Topology = Literal["mesh", "ring", "all-to-all"]
Parallel = Literal["data", "tile", "layer"]
MOST_CORES = 256
PORT_WORDS = 4
"""Words as wide as a link that a router holds for each of its ports. Assumed."""


class Cores(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal cores, each an array with a vector unit and memories, that share the DRAM of the chip.

    >>> Cores(count=12).sides, Cores(count=5).sides, Cores(count=8, network="ring").sides
    ((3, 4), (1, 5), (1, 8))
    """

    count: Annotated[int, Meta(ge=1, le=MOST_CORES)] = 1
    network: Topology = "mesh"
    """`mesh`: cores in rows and columns as nearly square as their number allows; data goes along a row, then along a
    column. `ring`: either way around, the shorter one. `all-to-all`: a link between every two cores."""
    link_bytes: Annotated[float, Meta(gt=0, le=1e6)] = 64.0
    """Bytes that a link carries in a cycle, in each direction."""
    pj_bit_hop: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    """Energy of a bit from one core to the next; without it, that of a wire as long as the side of a core."""
    memory: Literal["private", "shared"] = "private"
    """The outermost memory: `private`, one in each core; `shared`, one in all, whose addresses are spread evenly over
    the cores, so that most accesses cross the network."""
    parallel: Literal[Parallel, "best"] = "best"
    """How cores divide a step. `data`: by samples. `tile`: each product along rows, reduction and columns, as is best
    for it. `layer`: each core has some layers, and micro-batches pass through them. `best`: the fastest of these. All
    may leave cores idle."""

    @property
    def buffer_bits(self) -> float:
        """Bits that the routers hold: some words at each of their ports, to neighbours and to their core."""
        ports = {"mesh": 5, "ring": 3, "all-to-all": self.count}[self.network]
        return self.count * ports * PORT_WORDS * self.link_bytes * 8

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of the mesh; a single row for other networks."""
        if self.network != "mesh":
            return 1, self.count
        rows = next(rows for rows in range(isqrt(self.count), 0, -1) if self.count % rows == 0)
        return rows, self.count // rows
