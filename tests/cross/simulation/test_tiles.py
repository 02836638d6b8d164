"""Mappings of products: walked by an oracle, properties over random products, and the bound on traffic."""

import random
from math import ceil, inf

import pytest
from msgspec.structs import replace

from oracles.tiles import ORDERS, all_tiles, walk
from presilicon.base import ConfigError
from presilicon.records import Gemm
from presilicon.simulation.mapping.tiles import (
    LACKS,
    Buffer,
    ElementBytes,
    Fabric,
    MappingTask,
    TilePrice,
    find_tiles,
    least_traffic,
)

OBJECTIVES = ["time", "energy", "product"]
CYCLES, RELOAD = 50.0, 13.0


def some_task(draw: random.Random, stream: int, most: int = 6) -> tuple[MappingTask, tuple[int, ...]]:
    sizes = [draw.randint(1, most) for _ in range(3)]
    steps = [draw.randint(1, 3) for _ in range(3)]
    steps[stream] = 1
    folds = tuple(1 if dim == stream else ceil(sizes[dim] / steps[dim]) for dim in range(3))
    held = ElementBytes(*(draw.choice([1.0, 2.0, 4.0]) for _ in range(3)))
    task = MappingTask(
        gemm=Gemm(*sizes), held=held, streamed=held, folds=folds, cycles=CYCLES, reload_cycles=RELOAD, fixed_j=7.0
    )
    return task, tuple(steps)


def goal_by_walking(task: MappingTask, fabric: Fabric, tile: tuple[int, ...], objective: str) -> float:
    """The best of all orders of the loops around one tile."""
    gemm, buffer = task.gemm, fabric.buffers[0]
    sizes, totals = (gemm.m, gemm.k, gemm.n), task.held.totals(task.gemm)
    stays = LACKS.index(fabric.stream)
    fold = list(fabric.steps)
    fold[fabric.stream] = tile[fabric.stream]
    best = inf
    for order in ORDERS:
        outside, array = walk(sizes, [(tile, order)], fold)
        loads = array[stays]
        crossings = [loads if operand == stays else task.folds[LACKS[operand]] for operand in range(3)]
        served = sum(total * times for total, times in zip(totals, crossings, strict=True))
        served += totals[2] * (crossings[2] - 1)
        dram = totals[0] * outside[0] + totals[1] * outside[1] + 2 * totals[2] * (outside[2] - 1)
        time = max(task.cycles + (loads - 1) * task.reload_cycles, dram / fabric.dram_bytes_per_cycle)
        energy = task.fixed_j + served * buffer.byte_j + dram * fabric.dram_byte_j
        best = min(best, {"time": time, "energy": energy, "product": time * energy}[objective])
    return best


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("stream", [0, 1, 2], ids=["m", "k", "n"])
def test_no_mapping_is_better(stream: int, objective: str) -> None:
    draw = random.Random(f"{stream} {objective}")
    seen = set()
    for _ in range(35):
        task, steps = some_task(draw, stream)
        capacity = draw.randint(3, 90)
        buffer = Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=capacity, byte_j=draw.choice([0.0, 1.0]))
        fabric = Fabric(
            steps=steps, stream=stream, buffers=(buffer,), dram_bytes_per_cycle=draw.choice([0.5, 4.0]), dram_byte_j=9.0
        )
        gemm = task.gemm
        element = (task.held.a, task.held.b, task.held.sum)
        tiles = list(all_tiles((gemm.m, gemm.k, gemm.n), steps, element, capacity))
        if not tiles:
            with pytest.raises(ConfigError, match="one tile"):
                find_tiles(task, fabric, objective)
            seen.add("none fits")
            continue
        found = find_tiles(task, fabric, objective)
        least = min(goal_by_walking(task, fabric, tile, objective) for tile in tiles)
        assert found.goal(objective)[0] == pytest.approx(least)
        chosen = found.tiles[0]
        assert (chosen.m, chosen.k, chosen.n) in tiles
        assert goal_by_walking(task, fabric, (chosen.m, chosen.k, chosen.n), objective) == pytest.approx(least)
        seen |= {
            kind for kind in ("reads_a", "reads_b", "spills", "loads") if getattr(found, kind) > (kind != "spills")
        }
    assert {"none fits", "reads_a", "reads_b"} <= seen
    assert objective != "energy" or "loads" in seen


def some_fabric(draw: random.Random, steps: tuple[int, ...], stream: int) -> Fabric:
    """Accumulators or a small memory, a buffer, and DRAM."""
    inner = draw.choice([(2,), (0, 1), (0, 1, 2)])
    buffers = (
        Buffer(name="inner", level=0, holds=inner, usable_bytes=40, byte_j=0.5, bytes_per_cycle=draw.choice([2, inf])),
        Buffer(name="buffer", level=1, holds=(0, 1, 2), usable_bytes=draw.randint(60, 200), byte_j=2.0,
               bytes_per_cycle=draw.choice([1, 8, inf]), has_one_port=draw.random() < 0.5),
    )  # fmt: skip
    return Fabric(steps=steps, stream=stream, buffers=buffers, dram_bytes_per_cycle=2.0, dram_byte_j=9.0)


def walked_traffic(task: MappingTask, fabric: Fabric, found: TilePrice, order: tuple[int, ...]) -> dict[str, float]:
    """Bytes of two memories, without those of DRAM; `order` is that of the loops that `found` leaves open."""
    gemm = task.gemm
    levels = []
    for tile in reversed(found.tiles):
        outer = [dim for dim in order if dim != tile.innermost]
        levels.append(((tile.m, tile.k, tile.n), (*outer, tile.innermost)))
    fold = list(fabric.steps)
    fold[fabric.stream] = levels[-1][0][fabric.stream]
    entered = walk((gemm.m, gemm.k, gemm.n), levels, fold)
    totals = task.held.totals(gemm)
    stays = LACKS.index(fabric.stream)
    traffic = dict.fromkeys(("inner", "buffer"), 0.0)
    for operand in range(3):
        times = entered[2][operand] if operand == stays else task.folds[LACKS[operand]]
        both = 2 if operand == 2 else 1
        for buffer, level in zip(fabric.buffers, (1, 0), strict=True):
            if operand not in buffer.holds:
                continue
            moved = both * times - (both - 1)
            traffic[buffer.name] += totals[operand] * moved
            times = entered[level][operand]
            if buffer.name == "inner":
                traffic["inner"] += totals[operand] * (both * times - (both - 1))
    return traffic


def test_two_levels_move_what_a_walk_moves() -> None:
    draw = random.Random(5)
    compared = 0
    for _ in range(150):
        stream = draw.randrange(3)
        task, steps = some_task(draw, stream)
        fabric = some_fabric(draw, steps, stream)
        try:
            found = find_tiles(task, fabric, draw.choice(OBJECTIVES))
        except ConfigError as error:
            assert "one tile" in str(error)  # noqa: PT017
            continue
        walked = [walked_traffic(task, fabric, found, order) for order in ORDERS]
        assert any(found.traffic == pytest.approx(traffic) for traffic in walked)
        compared += 1
    assert compared > 80


def test_more_room_or_bandwidth_is_never_slower() -> None:
    draw = random.Random(6)
    for _ in range(60):
        stream = draw.randrange(3)
        task, steps = some_task(draw, stream, most=300)
        slow = Fabric(
            steps=steps, stream=stream, dram_bytes_per_cycle=draw.choice([0.5, 8]), dram_byte_j=9.0,
            buffers=(Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=100, byte_j=1, bytes_per_cycle=4),),
        )  # fmt: skip
        task = replace(task, cycles=float(draw.randint(1, 10**6)))
        before = dict.fromkeys(OBJECTIVES, inf)
        for room, width in ((100, 4), (150, 4), (150, 8), (1000, 8), (50_000, 8), (10**7, 64)):
            buffer = Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=room, byte_j=1, bytes_per_cycle=width)
            fabric = replace(slow, buffers=(buffer,))
            for objective in OBJECTIVES:
                goal = find_tiles(task, fabric, objective).goal(objective)[0]
                assert goal <= before[objective] * (1 + 1e-12)
                before[objective] = goal


def test_traffic_is_never_below_the_bound_nor_the_bound_below_what_must_move() -> None:
    draw = random.Random(7)
    for _ in range(40):
        stream = draw.randrange(3)
        task, steps = some_task(draw, stream, most=400)
        room = draw.choice([200, 3000, 100_000])
        bound = least_traffic(task.gemm, task.held, room)
        buffer = Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=room)
        fabric = Fabric(steps=steps, stream=stream, buffers=(buffer,), dram_byte_j=1.0)
        moved = sum(find_tiles(task, fabric, "energy").dram_bytes(task))
        a, b, sums = task.held.totals(task.gemm)
        assert a + b <= bound <= moved
        assert bound == a + b or a + b + sums > room


def test_the_bound_is_that_of_all_tilings() -> None:
    draw = random.Random(8)
    for _ in range(25):
        task, _ = some_task(draw, 0)
        gemm, element = task.gemm, (task.held.a, task.held.b, task.held.sum)
        sizes, room = (gemm.m, gemm.k, gemm.n), draw.randint(10, 60)
        totals = task.held.totals(gemm)
        least = inf
        for tile in all_tiles(sizes, (1, 1, 1), element, room):
            for order in ORDERS:
                times = walk(sizes, [(tile, order)], tile)[0]
                least = min(least, totals[0] * times[0] + totals[1] * times[1] + 2 * totals[2] * (times[2] - 1))
        assert least_traffic(gemm, task.held, room) == least


def test_a_fold_stays_while_its_stream_passes_in_pieces() -> None:
    # One fold of B per tile: pieces of A stream past it, however small the buffer is.
    one = ElementBytes(1, 1, 1)
    task = MappingTask(gemm=Gemm(1000, 8, 8), held=one, streamed=one, folds=(1, 2, 2), cycles=1e6, reload_cycles=500)
    buffer = Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=100)
    found = find_tiles(task, Fabric(steps=(1, 4, 4), stream=0, buffers=(buffer,)))
    assert found.loads == 1
    assert found.tiles[0].m < 1000
    # Sums that may not leave the chip make B come again instead, for each piece.
    costly = Fabric(steps=(1, 4, 4), stream=0, buffers=(buffer,), dram_byte_j=1.0)
    assert find_tiles(task, costly, "energy").loads > 1


def test_the_products_of_a_batch_are_mapped_one_by_one() -> None:
    one = ElementBytes(1, 1, 1)
    buffer = Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=4000)
    fabric = Fabric(steps=(1, 8, 8), stream=0, buffers=(buffer,), dram_byte_j=1.0)
    common = {"held": one, "streamed": one, "folds": (1, 8, 8), "cycles": 1.0, "reload_cycles": 1.0}
    single, many = (MappingTask(gemm=Gemm(64, 64, 64, count=count), **common) for count in (1, 5))
    first, second = find_tiles(single, fabric), find_tiles(many, fabric)
    assert first.tiles == second.tiles
    assert sum(second.dram_bytes(many)) == 5 * sum(first.dram_bytes(single))


def test_a_dimension_of_very_many_tiles_is_thinned_out_and_still_tiled() -> None:
    one, side = ElementBytes(1, 1, 1), 1 << 20
    task = MappingTask(
        gemm=Gemm(side, side, side), held=one, streamed=one, folds=(1, side, side), cycles=1, reload_cycles=0
    )
    buffer = Buffer(name="sram", level=0, holds=(0, 1, 2), usable_bytes=3000)
    found = find_tiles(task, Fabric(steps=(1, 1, 1), stream=0, buffers=(buffer,), dram_byte_j=1.0), "energy")
    assert found.occupied(task) <= 3000
    # Sums in the buffer, tiles of about 54 x 1 x 54: each operand is read about 2**20 / 54 times.
    assert max(found.reads_a, found.reads_b) < 1.5 * side / 54
