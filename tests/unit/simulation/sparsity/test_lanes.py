"""Lanes that skip pairs with a zero, against a slow schedule that says which lane multiplies which pair when."""

import numpy as np
import pytest

from presilicon.base import ConfigError
from presilicon.simulation.sparsity.lanes import DEPTH, LANES, OPTIONS, lane_cycles, lane_speedup

CURVE = {0.1: 1.10, 0.2: 1.22, 0.3: 1.37, 0.4: 1.53, 0.5: 1.77, 0.6: 2.01, 0.7: 2.36, 0.8: 2.78, 0.9: 2.98, 0.99: 3.0}
DEPTH_TWO = {0.3: 1.30, 0.5: 1.55, 0.7: 1.89, 0.9: 2.0}


def random_pairs(sparsity: float, rows: int = 3000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, LANES)) >= sparsity


def schedule(pairs: np.ndarray, options=OPTIONS, depth: int = DEPTH) -> list[list[tuple[int, int] | None]]:
    """For each cycle, the pair (row, lane) that each lane multiplies."""
    left = {(int(row), int(lane)) for row, lane in zip(*np.nonzero(pairs), strict=True)}
    cycles, first = [], 0
    while first < len(pairs):
        taken: list[tuple[int, int] | None] = []
        for lane in range(LANES):
            wanted = ((first + ahead, (lane + aside) % LANES) for ahead, aside in options)
            found = next((pair for pair in wanted if pair in left), None)
            left.discard(found)
            taken.append(found)
        cycles.append(taken)
        first += 1
        for _ in range(depth - 1):
            if first < len(pairs) and not any(row == first for row, _ in left):
                first += 1
            else:
                break
    assert not left
    return cycles


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_cycles_are_those_of_the_slow_schedule_and_every_pair_is_multiplied_once(sparsity: float):
    pairs = random_pairs(sparsity, rows=97, seed=3)
    cycles = schedule(pairs)
    assert lane_cycles(pairs) == len(cycles)
    multiplied = [pair for taken in cycles for pair in taken if pair is not None]
    assert len(multiplied) == len(set(multiplied)) == int(pairs.sum())
    a, b = np.where(pairs, np.random.default_rng(1).integers(-9, 9, pairs.shape), 0), np.full(pairs.shape, 3)
    assert sum(a[pair] * b[pair] for pair in multiplied) == (a * b).sum()


def test_the_curve_of_speedups_is_the_published_one_for_this_order():
    for sparsity, wanted in CURVE.items():
        assert lane_speedup(random_pairs(sparsity)) == pytest.approx(wanted, abs=0.03)
    near = tuple(option for option in OPTIONS if option[0] < 2)
    for sparsity, wanted in DEPTH_TWO.items():
        assert lane_speedup(random_pairs(sparsity), near, depth=2) == pytest.approx(wanted, abs=0.03)


def test_another_order_of_options_has_another_curve():
    by_row = tuple(sorted(OPTIONS))
    assert lane_speedup(random_pairs(0.5), by_row) == pytest.approx(1.83, abs=0.03)
    assert lane_speedup(random_pairs(0.7), by_row) == pytest.approx(2.39, abs=0.03)


def test_speedups_are_bounded_and_grow_with_zeros():
    curve = [lane_speedup(random_pairs(sparsity / 20, rows=2000)) for sparsity in range(21)]
    assert curve[0] == 1
    assert curve == sorted(curve)
    for number, value in enumerate(curve[:-1]):
        assert value <= min(3, 1 / (1 - number / 20) * 1.03)
    assert curve[-1] == pytest.approx(3, abs=0.01)


def test_lines_that_share_an_operand_advance_together():
    lines = np.stack([random_pairs(0.6, rows=400, seed=seed) for seed in range(4)])
    alone = [lane_cycles(line) for line in lines]
    assert lane_cycles(lines[:1]) == alone[0]
    assert max(alone) <= lane_cycles(lines) <= 400


def test_options_that_cannot_be_are_refused():
    for options in ((), ((1, 0),), ((0, 0), (3, 0))):
        with pytest.raises(ConfigError, match=r"options must begin with \(0, 0\)"):
            lane_cycles(np.ones((4, 16), bool), options)
    assert lane_speedup(np.ones((0, 16), bool)) == 1
