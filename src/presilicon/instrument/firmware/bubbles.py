"""How close chains can follow each other: a chain waits for a row or the carried vector that another still computes."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from presilicon.designs import ALU_FUNCTIONS, Hardware
from presilicon.instrument.firmware.image import Chain

_ADD, _SUB, _MUL, _ABS = (ALU_FUNCTIONS.index(name) + 1 for name in ("add", "sub", "mul", "abs"))
_Place = int | Literal["carried"]


def with_bubbles(chains: tuple[Chain, ...], hardware: Hardware) -> tuple[Chain, ...]:
    """The chains with the fewest empty cycles before them that let every vector after the first run alike.

    Chain i starts `t[i]` cycles after its vector's first chain, and the next vector's first chain `interval` cycles
    after this one's. A chain that reads what chain j writes, and no chain between them writes in any case, starts at
    least j's latency after it: in the same vector if j comes before it, else after j of the vector before. The
    smallest interval for which such `t` exist is taken, and the earliest `t`.
    """
    waits = _waits(chains, hardware)
    interval = len(chains)
    while (starts := _starts(len(chains), waits, interval)) is None:
        interval += 1
    before = [starts[-1] - interval, *starts[:-1]]
    pairs = zip(chains, starts, before, strict=True)
    return tuple(replace(chain, bubbles=start - previous - 1) for chain, start, previous in pairs)


def _waits(chains: Sequence[Chain], hardware: Hardware) -> list[tuple[int, int, int]]:
    """Writer, reader and cycles between them, where one chain per cycle is not slow enough anyway.

    From a reader back to the first chain that writes the place in any case: what was written before that one is
    overwritten, however late its result comes.
    """
    waits = []
    for reader, other in enumerate(chains):
        places = _read(other)
        for distance in range(1, len(chains) + 1):
            writer = (reader - distance) % len(chains)
            chain = chains[writer]
            latency = _latency(chain, hardware)
            if distance < latency and _written(chain) & places:
                waits.append((writer, reader, latency))
            places = places - _written(replace(chain, cache=chain.cache and not chain.cache_conditions))
    return waits


def _starts(count: int, waits: Sequence[tuple[int, int, int]], interval: int) -> list[int] | None:
    """The earliest starts, or None where the interval is too short."""
    starts = list(range(count))
    for _ in range(count + 1):
        before = list(starts)
        for index in range(1, count):
            starts[index] = max(starts[index], starts[index - 1] + 1)
        for writer, reader, latency in waits:
            earlier = 0 if reader > writer else interval
            starts[reader] = max(starts[reader], starts[writer] + latency - earlier)
        if starts[0] > 0 or starts[-1] >= interval:
            return None
        if starts == before:
            return starts
    return None


def _latency(chain: Chain, hardware: Hardware) -> int:
    if chain.alu == _MUL:
        return hardware.multiply_latency
    return hardware.add_latency if chain.alu in (_ADD, _SUB) else 1


def _written(chain: Chain) -> set[_Place]:
    rows: set[_Place] = {chain.cache_row} if chain.cache else set()
    return rows | ({"carried"} if chain.save else set())


def _read(chain: Chain) -> set[_Place]:
    rows: set[_Place] = {chain.alu_row} if chain.alu not in (0, _ABS) else set()
    return rows | ({"carried"} if chain.load else set())
