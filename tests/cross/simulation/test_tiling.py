"""The tiling search against a search that tries every tiling and counts transfers by walking the loops."""

import random

import pytest

from oracles.tiling import least_traffic, walk
from presilicon.base import ConfigError
from presilicon.records import Gemm
from presilicon.simulation.systolic.tiling import DIMENSIONS, ElementBytes, Tiling, find_tiling


def occupied(tiling: Tiling, element: ElementBytes) -> float:
    m, k, n = tiling.tile_m, tiling.tile_k, tiling.tile_n
    return m * k * element.a + k * n * element.b + m * n * element.sum


@pytest.mark.parametrize("streamed", [0, 1, 2], ids=DIMENSIONS)
def test_no_tiling_has_less_traffic(streamed) -> None:
    draw = random.Random(streamed)
    seen = set()
    for _ in range(150):
        m, k, n = (draw.randint(1, 12) for _ in range(3))
        steps = [draw.randint(1, 4) for _ in range(3)]
        steps[streamed] = 1
        element = ElementBytes(*(draw.choice([1, 2, 4]) for _ in range(3)))
        capacity = draw.randint(3, 200)
        least = least_traffic(Gemm(m, k, n), tuple(steps), element, capacity)
        if least is None:
            with pytest.raises(ConfigError, match="sram_kib"):
                find_tiling(Gemm(m, k, n), tuple(steps), element, capacity)
            seen.add("none fits")
            continue
        tiling = find_tiling(Gemm(m, k, n), tuple(steps), element, capacity)
        assert tiling.bytes_dram(Gemm(m, k, n), element) == least
        # The tiles and the order that it names fit, and do what it says of them.
        assert occupied(tiling, element) <= capacity
        tiles = (tiling.tile_m, tiling.tile_k, tiling.tile_n)
        assert walk((m, k, n), tiles, tiling.order, element) == least
        for tile, step, size in zip(tiles, steps, (m, k, n), strict=True):
            assert tile % step == 0 or tile == size
        seen.add((tiling.reads_a > 1, tiling.reads_b > 1, tiling.spills > 0))
    assert "none fits" in seen
    assert {(False, False, False), (True, False, False), (False, True, False)} <= seen
    assert any(kind[2] for kind in seen if kind != "none fits")


def test_the_comparison_can_fail() -> None:
    gemm, element = Gemm(8, 8, 8), ElementBytes(1, 1, 1)
    least = least_traffic(gemm, (1, 2, 2), element, 48)
    poor = Tiling(tile_m=1, tile_k=2, tile_n=2, order="mnk", reads_a=4, reads_b=8, spills=0)
    assert poor.bytes_dram(gemm, element) == walk((8, 8, 8), (1, 2, 2), "mnk", element) > least
    # In another order of loops the same tiles move other bytes.
    assert walk((8, 8, 8), (1, 2, 2), "kmn", element) != walk((8, 8, 8), (1, 2, 2), "mnk", element)


def test_a_walk_by_hand() -> None:
    # Two tiles along k and two along n. k outside n: A is read once, B once, and the sums of both n leave and return.
    element = ElementBytes(1, 10, 100)
    assert walk((3, 4, 6), (3, 2, 3), "mkn", element) == 12 + 240 + 2 * 1800
    # n outside k: A is read for each n, and no sum leaves unfinished.
    assert walk((3, 4, 6), (3, 2, 3), "mnk", element) == 2 * 12 + 240


def test_traffic_never_rises_with_the_buffer() -> None:
    gemm, element = Gemm(3000, 1500, 700), ElementBytes(2, 2, 4)
    moved = [
        find_tiling(gemm, (1, 128, 128), element, kib * 1024).bytes_dram(gemm, element) for kib in range(40, 16000, 97)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > moved[-1] == 2 * (3000 * 1500 + 1500 * 700)


def test_the_products_of_a_batch_are_tiled_one_by_one() -> None:
    element = ElementBytes(1, 1, 1)
    one, many = Gemm(64, 64, 64), Gemm(64, 64, 64, count=5)
    tiling = find_tiling(many, (1, 8, 8), element, 4000)
    assert tiling == find_tiling(one, (1, 8, 8), element, 4000)
    assert tiling.bytes_dram(many, element) == 5 * tiling.bytes_dram(one, element)


def test_a_dimension_of_very_many_tiles_is_thinned_out_and_still_tiled() -> None:
    gemm, element = Gemm(1 << 20, 1 << 20, 1 << 20), ElementBytes(1, 1, 1)
    tiling = find_tiling(gemm, (1, 1, 1), element, 3000)
    assert occupied(tiling, element) <= 3000
    # Sums in the buffer, tiles of about 54 x 1 x 54: each operand is read about 2**20 / 54 times.
    assert max(tiling.reads_a, tiling.reads_b) < 1.5 * (1 << 20) / 54
