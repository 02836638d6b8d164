"""Bubbles: empty cycles before a chain that reads a row or the carried vector while another chain still computes it."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from presilicon.designs import ALU_FUNCTIONS, Hardware
from presilicon.instrument.firmware.image import Chain

_ADD, _SUB, _MUL, _ABS = (ALU_FUNCTIONS.index(name) + 1 for name in ("add", "sub", "mul", "abs"))
_Register = int | Literal["carried"]


def with_bubbles(chains: tuple[Chain, ...], hardware: Hardware) -> tuple[Chain, ...]:
    """The chains with the fewest bubbles for which every vector after the first runs alike.

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
    """Writer, reader and cycles between them, for readers that would come too early at one chain per cycle.

    Goes from a reader back to the first chain that always writes the register: earlier writes are overwritten, however
    late their results come.
    """
    waits = []
    for reader, other in enumerate(chains):
        registers = _read(other)
        for distance in range(1, len(chains) + 1):
            writer = (reader - distance) % len(chains)
            chain = chains[writer]
            latency = _latency(chain, hardware)
            if distance < latency and _written(chain) & registers:
                waits.append((writer, reader, latency))
            registers = registers - _written(replace(chain, cache=chain.cache and not chain.cache_conditions))
    return waits


def _starts(count: int, waits: Sequence[tuple[int, int, int]], interval: int) -> list[int] | None:
    """The earliest starts, or None if the interval is too short."""
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


def _written(chain: Chain) -> set[_Register]:
    rows: set[_Register] = {chain.cache_row} if chain.cache else set()
    return rows | ({"carried"} if chain.save else set())


def _read(chain: Chain) -> set[_Register]:
    rows: set[_Register] = {chain.alu_row} if chain.alu not in (0, _ABS) else set()
    return rows | ({"carried"} if chain.load else set())
