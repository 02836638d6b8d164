"""Laws of the price of a mapping: every term of it, by hand, from a walk over all tiles and folds."""

import random
from math import inf

import pytest

from oracles.tiles import ORDERS, walk
from presilicon.base import ConfigError
from presilicon.records import Gemm
from presilicon.simulation.mapping.tiles import LACKS, Buffer, ElementBytes, Fabric, MappingTask, TilePrice, find_tiles

OBJECTIVES = ("time", "energy", "product")


def some_bytes(draw: random.Random) -> ElementBytes:
    return ElementBytes(*(draw.choice([1.0, 2.0, 4.0]) for _ in range(3)))


def some_case(draw: random.Random) -> tuple[MappingTask, Fabric]:
    """A product of one to three samples on memories of every kind, with every field drawn."""
    stream, sizes = draw.randrange(3), [draw.randint(1, 6) for _ in range(3)]
    steps = [1 if dim == stream else draw.randint(1, 3) for dim in range(3)]
    task = MappingTask(
        gemm=Gemm(*sizes, count=draw.randint(1, 3)),
        held=some_bytes(draw),
        streamed=some_bytes(draw),
        compressed=some_bytes(draw) if draw.random() < 0.5 else None,
        folds=tuple(1 if dim == stream else -(-sizes[dim] // steps[dim]) for dim in range(3)),
        cycles=draw.choice([3.0, 300.0]),
        reload_cycles=draw.choice([0.0, 13.0]),
        fixed_j=7.0,
        other_dram_bytes=draw.choice([0.0, 150.0]),
        dram_shares=(draw.choice([0.25, 0.5, 1.0]), draw.choice([0.125, 0.75, 1.0])),
    )

    def memory(name: str, level: int, holds: tuple[int, ...], room: int) -> Buffer:
        return Buffer(
            name=name, level=level, holds=holds, usable_bytes=room, byte_j=draw.choice([0.5, 2.0]),
            bytes_per_cycle=draw.choice([1.0, 8.0, inf]), has_one_port=draw.random() < 0.5,
            is_doubled=draw.random() < 0.5,
        )  # fmt: skip

    outer = memory("outer", 1, (0, 1, 2), draw.randint(60, 200))
    inner = memory("inner", 0, draw.choice([(2,), (0, 1), (0, 1, 2)]), 40)
    only = memory("only", 0, (0, 1, 2), draw.randint(10, 150))
    fabric = Fabric(
        steps=tuple(steps), stream=stream, buffers=draw.choice([(only,), (inner, outer)]), cycle_j=0.125,
        dram_bytes_per_cycle=draw.choice([0.5, 4.0, 64.0]), dram_byte_j=9.0,
    )  # fmt: skip
    return task, fabric


def price_by_walking(task: MappingTask, fabric: Fabric, found: TilePrice, order: tuple[int, ...]) -> dict[str, float]:
    """What a mapping costs; `order` is that of the loops that it leaves open."""
    gemm, stays = task.gemm, LACKS.index(fabric.stream)
    levels = [
        ((tile.m, tile.k, tile.n), (*(dim for dim in order if dim != tile.innermost), tile.innermost))
        for tile in reversed(found.tiles)
    ]
    fold = [*fabric.steps]
    fold[fabric.stream] = levels[-1][0][fabric.stream]
    *entered, array = walk((gemm.m, gemm.k, gemm.n), levels, fold)
    to_array, between = task.streamed.totals(gemm), (task.compressed or task.held).totals(gemm)
    fetched = [
        to_array[operand] * (array[operand] if operand == stays else task.folds[LACKS[operand]]) for operand in range(3)
    ]
    once, price = list(to_array), {}
    cycles, waits, energy = task.cycles + (array[stays] - 1) * task.reload_cycles, 0.0, task.fixed_j
    for number, buffer in enumerate(fabric.buffers):
        reads = writes = beyond = fills = 0.0
        for operand in buffer.holds:
            own = between[operand] * entered[-1 - buffer.level][operand]
            taken, passed = fetched[operand], own
            if operand == 2:  # each visit but the first takes back what the one before gave
                reads, writes = reads + taken - once[operand], writes + taken
                passed = 2 * own - between[operand]
                reads, writes = reads + own, writes + own - between[operand]
            else:
                reads, writes = reads + taken, writes + own
            is_last = not any(operand in further.holds for further in fabric.buffers[number + 1 :])
            beyond, fills = (beyond + passed, fills) if is_last else (beyond, fills + passed)
            fetched[operand], once[operand] = own, between[operand]
        price[buffer.name] = reads + writes - beyond
        energy += price[buffer.name] * buffer.byte_j
        busy = reads + writes if buffer.has_one_port else max(reads, writes)
        cycles = max(cycles, busy / buffer.bytes_per_cycle)
        if not buffer.is_doubled:
            waits += fills / min(other.bytes_per_cycle for other in fabric.buffers if other.level >= buffer.level)
    a, b, sums = fetched
    dram = a * task.dram_shares[0] + b * task.dram_shares[1] + 2 * (sums - between[2]) + task.other_dram_bytes
    last = fabric.buffers[-1]
    price |= {"cycles": cycles + waits, "dram_cycles": dram / fabric.dram_bytes_per_cycle}
    both = price["cycles"], price["dram_cycles"]
    price["time"] = max(both) if last.is_doubled else sum(both)
    unpacked = a * (1 - task.dram_shares[0]) + b * (1 - task.dram_shares[1])
    price["energy"] = (
        energy + dram * fabric.dram_byte_j + unpacked * last.byte_j + price["time"] * fabric.cycle_j
    )  # fmt: skip
    return price


def test_a_mapping_costs_what_a_walk_with_every_term_costs() -> None:
    draw, seen = random.Random(31), set()
    for _ in range(220):
        task, fabric = some_case(draw)
        try:
            found = find_tiles(task, fabric, draw.choice(OBJECTIVES))
        except ConfigError:
            continue
        price = {
            **found.traffic,
            "cycles": found.cycles,
            "dram_cycles": found.dram_cycles,
            "time": found.time_cycles,
            "energy": found.energy_j,
        }
        assert any(price == pytest.approx(price_by_walking(task, fabric, found, order)) for order in ORDERS)
        seen |= {
            len(fabric.buffers),
            "memory" if found.time_cycles > found.dram_cycles else "dram",
            "waits" if found.time_cycles == found.cycles + found.dram_cycles else "overlaps",
            "again" if found.spills else "once",
            "unpacked" if task.dram_shares != (1.0, 1.0) else "plain",
        }
    assert seen == {1, 2, "memory", "dram", "waits", "overlaps", "again", "once", "unpacked", "plain"}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_memory_is_never_worse_than_its_half(objective: str) -> None:
    """By what is asked for; of mappings that are equal in that, by the other of time and energy."""
    draw = random.Random(f"half {objective}")
    compared = improved = 0
    for _ in range(150):
        task, fabric = some_case(draw)
        try:
            whole, half = (find_tiles(task, each, objective) for each in (fabric, fabric.outermost_halved()))
        except ConfigError:
            continue
        (first, second), (half_first, half_second) = whole.goal(objective), half.goal(objective)
        assert first <= half_first * (1 + 1e-12)
        if first == half_first and len(fabric.buffers) > 1:
            assert second <= half_second * (1 + 1e-9)
        compared, improved = compared + 1, improved + (first < half_first)
    assert compared > 40
    assert improved > 5
