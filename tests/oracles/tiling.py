"""Slow reference of tilings: every tile size, every order of loops, and the transfers counted by walking the loops."""

from collections.abc import Iterator
from itertools import product

from presilicon.records import Gemm
from presilicon.simulation.systolic.tiling import ORDERS, ElementBytes


def least_traffic(
    gemm: Gemm, steps: tuple[int, int, int], element: ElementBytes, capacity_bytes: float
) -> float | None:
    """The least DRAM traffic of one product, finished results left out; None when no tiling fits. Small shapes only."""
    sizes = (gemm.m, gemm.k, gemm.n)
    choices = [
        [min(size, tile) for tile in range(step, size + step, step)] for size, step in zip(sizes, steps, strict=True)
    ]
    counted = [
        walk(sizes, tiles, order, element)
        for tiles in product(*choices)
        if tiles[0] * tiles[1] * element.a + tiles[1] * tiles[2] * element.b + tiles[0] * tiles[2] * element.sum
        <= capacity_bytes
        for order in ORDERS
    ]
    return min(counted, default=None)


def walk(sizes: tuple[int, ...], tiles: tuple[int, ...], order: str, element: ElementBytes) -> float:
    """Bytes that cross DRAM while the loops over tiles run in `order`, outermost first."""
    spans = {name: list(_spans(size, tile)) for name, size, tile in zip("mkn", sizes, tiles, strict=True)}
    held_a = held_b = held_sum = None
    started: set[tuple[int, int]] = set()
    steps_done: dict[tuple[int, int], int] = {}
    moved = 0.0
    for place in product(*(range(len(spans[name])) for name in order)):
        at = dict(zip(order, place, strict=True))
        m, k, n = (spans[name][at[name]] for name in "mkn")
        if held_a != (at["m"], at["k"]):
            held_a = (at["m"], at["k"])
            moved += m * k * element.a
        if held_b != (at["k"], at["n"]):
            held_b = (at["k"], at["n"])
            moved += k * n * element.b
        sums = (at["m"], at["n"])
        if held_sum != sums:
            if held_sum is not None and steps_done[held_sum] < len(spans["k"]):
                moved += spans["m"][held_sum[0]] * spans["n"][held_sum[1]] * element.sum
            if sums in started:
                moved += m * n * element.sum
            held_sum = sums
            started.add(sums)
        steps_done[sums] = steps_done.get(sums, 0) + 1
    return moved


def _spans(size: int, tile: int) -> Iterator[int]:
    for begin in range(0, size, tile):
        yield min(tile, size - begin)
