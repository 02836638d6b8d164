"""Estimated cycles and traffic of FPGA kernels against kernels that are played through cycle by cycle."""

import json
from importlib.resources import files
from itertools import product

import pytest

from presilicon.base import ConfigError
from presilicon.scheduling.kernel_estimates import Estimate, FpgaBoard, estimate, tile_sides
from presilicon.scheduling.kernel_ops import KernelConfig, make_input

FACTS = json.loads((files("presilicon_evidence.reproductions") / "data" / "hybrid.json").read_text())


def play_product(rows: int, loop: int, columns: int, config: KernelConfig, block: tuple[int, int]) -> tuple[int, int]:
    """Cycles and words moved of a product, every multiply-add started once by a lane that is free."""
    units, simd, group, unroll = config
    tile_rows, tile_columns = tile_sides(group)
    done: set[tuple[int, int, int]] = set()
    cycles = words = 0
    for top, left in product(range(0, rows, block[0]), range(0, columns, block[1])):
        block_rows = range(top, min(top + block[0], rows))
        block_columns = range(left, min(left + block[1], columns))
        tiles = list(product(block_rows[::tile_rows], block_columns[::tile_columns]))
        for start in range(0, loop, unroll):
            steps = range(start, min(start + unroll, loop))
            words += len(steps) * (len(block_rows) + len(block_columns))
            turns = [tiles[first : first + units] for first in range(0, len(tiles), units)]
            for together in turns:
                for first_item in range(0, group, simd):
                    cycles += 1
                    for row, column in together:
                        for item in range(first_item, min(first_item + simd, group)):
                            at = row + item // tile_columns, column + item % tile_columns
                            if at[0] in block_rows and at[1] in block_columns:
                                fresh = {(*at, step) for step in steps}
                                assert not fresh & done
                                done |= fresh
        words += len(block_rows) * len(block_columns)
    assert len(done) == rows * loop * columns
    return cycles, words


@pytest.mark.parametrize("shape", [(8, 6, 8), (7, 5, 9), (1, 12, 10), (13, 1, 3)])
@pytest.mark.parametrize("ram_blocks", [4, 60, 4000])
def test_cycles_and_traffic_of_products_are_those_of_a_kernel_played_through(shape, ram_blocks: int) -> None:
    board = FpgaBoard(ram_blocks=ram_blocks, ram_block_words=8)
    blocks = set()
    for config in product((1, 2, 3), (1, 4), (4, 8, 12), (1, 3, 8)):
        found = estimate(make_input("MatMul", shape), KernelConfig(*config), 100, board)
        assert found.block_results is not None
        blocks.add(found.block_results)
        cycles, words = play_product(*shape, KernelConfig(*config), found.block_results)
        assert (found.compute_cycles, found.dram_bytes) == (cycles, 4 * words), config
    assert len(blocks) > 1


@pytest.mark.parametrize(("kind", "shape"), [("Mul", (9, 7)), ("BiasAddGrad", (7, 9)), ("MaxPool", (1, 2, 3, 3, 2, 2))])
def test_cycles_of_other_ops_are_those_of_a_kernel_played_through(kind: str, shape: tuple[int, ...]) -> None:
    op = make_input(kind, shape)
    for config in (KernelConfig(*numbers) for numbers in product((1, 2, 3), (1, 2), (1, 4, 6), (1, 3, 4))):
        waiting = list(range(0, op.items, config.work_group))
        cycles = 0
        while waiting:
            waiting = waiting[config.compute_units :]
            for _ in range(0, config.work_group, config.simd):
                cycles += len(range(0, op.longest_loop, config.unroll))
        assert estimate(op, config, 100, FpgaBoard()).compute_cycles == cycles


def _estimate(shape=(256, 256, 256), config=(2, 4, 64, 8), mhz: float = 200, **board: float) -> Estimate:
    return estimate(make_input("MatMul", shape), KernelConfig(*config), mhz, FpgaBoard(**board))


def test_more_of_anything_takes_no_longer() -> None:
    few = _estimate()
    for more in ({"mhz": 400}, {"memory_gb_s": 100}, {"config": (2, 4, 64, 16)}, {"config": (4, 4, 64, 8)}):
        assert _estimate(**more).time_s <= few.time_s
    times = [_estimate(ram_blocks=count, memory_gb_s=0.5).time_s for count in (100, 300, 1000, 10_000)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_the_three_products_of_a_convolution_have_the_same_multiply_adds() -> None:
    shape = 2, 3, 5, 5, 4, 3, 3
    kinds = [make_input(f"Conv2D{name}", shape) for name in ("", "BackpropFilter", "BackpropInput")]
    for op in kinds:
        assert op.product is not None
        assert op.product.rows * op.product.reduction * op.product.columns == op.work
    one_lane = [estimate(op, KernelConfig(1, 1, 1, 1), 100, FpgaBoard()).compute_cycles for op in kinds]
    assert one_lane == [kinds[0].work] * 3


def test_a_published_time_is_below_what_its_multipliers_can_do() -> None:
    """Row 4 starts 128 multiply-adds per cycle on a board; its time needs 1,066, and so even three boards too few."""
    row = FACTS["table4"]["MatMul"][3]
    mhz = FACTS["table4"]["implied_fmax_MHz"]["MatMul(2048x1024x1024)"][3]
    config = KernelConfig(*row[:4])
    found = estimate(make_input("MatMul", (2048, 1024, 1024)), config, mhz, FpgaBoard())
    assert found.time_s == pytest.approx(2**31 / (config.lanes * mhz * 1e6))
    assert found.time_s / (row[4] * 1e-3) == pytest.approx(1066 / 128, rel=1e-3)


def test_build_parameters_below_1_are_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        _estimate(config=(1, 0, 1, 1))
