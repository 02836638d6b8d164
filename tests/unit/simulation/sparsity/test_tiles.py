"""Sparse weights on columns of cells, against a count of each column's work."""

from itertools import permutations

import numpy as np
import pytest

from presilicon.simulation.sparsity.structured import packed_share


def random_mask(density: float, shape: tuple[int, int] = (64, 48), seed: int = 0, spread: float = 0.0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    by_output = np.clip(density + spread * generator.standard_normal(shape[1]), 0, 1)
    return generator.random(shape) < by_output


def fullest(mask: np.ndarray, columns: int) -> float:
    """Cycles by definition: one weight of each column in a cycle, until the tile has none left."""
    cycles = 0
    for first in range(0, mask.shape[1], columns):
        work = [list(np.nonzero(mask[:, output])[0]) for output in range(first, min(first + columns, mask.shape[1]))]
        while any(work):
            cycles += 1
            work = [left[1:] for left in work]
    return cycles / (-(-mask.shape[1] // columns) * mask.shape[0])


@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("columns", [1, 7, 16])
def test_the_fullest_column_decides(density: float, columns: int):
    mask = random_mask(density)
    assert packed_share(mask, columns, balanced=False) == pytest.approx(fullest(mask, columns))


@pytest.mark.parametrize("seed", range(5))
def test_balancing_never_slows_a_product_and_never_beats_its_density(seed: int):
    mask = random_mask(0.2, seed=seed, spread=0.15)
    plain, balanced = (packed_share(mask, 16, balanced=word) for word in (False, True))
    assert mask.mean() <= balanced <= plain


def test_pairs_of_opposite_halves_are_perfect_where_densities_are_symmetric():
    mask = np.zeros((16, 4), bool)
    for output, filled in enumerate((8, 6, 2, 0)):
        mask[:filled, output] = True
        mask[8 : 16 - filled, output] = True
    assert packed_share(mask, 4, balanced=True) == mask.mean() == 0.5


def test_pairing_the_fullest_with_the_emptiest_is_the_best_of_all_pairings():
    counts = np.array([[5, 1, 3], [2, 6, 0]])
    mask = np.zeros((12, 3), bool)
    for output in range(3):
        mask[: counts[0, output], output] = True
        mask[6 : 6 + counts[1, output], output] = True
    best = min(
        max(a + b for a, b in zip(order[::2], order[1::2], strict=True)) for order in permutations(counts.ravel())
    )
    assert packed_share(mask, 3, balanced=True) == best / 12
    assert packed_share(np.zeros((0, 3), bool), 3, balanced=True) == 1
