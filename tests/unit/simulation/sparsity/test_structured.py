"""N:M weights against a count of every group."""

import numpy as np
import pytest

from presilicon.base import ConfigError
from presilicon.simulation.sparsity.description import Sparsity, parse_pattern
from presilicon.simulation.sparsity.structured import keep_largest, structured_share

PATTERNS = ["1:2", "2:4", "1:4", "3:8"]


def cycles_by_hand(mask: np.ndarray, slots: int, group: int) -> int | None:
    """One slot of all groups in a cycle; a group without a weight for a slot waits. None where a group has too many."""
    cycles = 0
    for first in range(0, len(mask), group):
        if any(column.sum() > slots for column in mask[first : first + group].T):
            return None
        cycles += min(slots, len(mask[first : first + group]))
    return cycles


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", [8, 9, 23, 64])
def test_masks_of_the_largest_fit_their_pattern_and_take_its_cycles(pattern: str, length: int):
    weights = np.random.default_rng(length).standard_normal((length, 5))
    mask = keep_largest(weights, pattern)
    slots, group = parse_pattern(pattern)
    share = structured_share(mask, pattern)
    assert share == cycles_by_hand(mask, slots, group) / length
    for first in range(0, length, group):
        kept, size = mask[first : first + group], np.abs(weights[first : first + group])
        assert (kept.sum(0) == min(slots, len(kept))).all()
        assert all(size[kept[:, n], n].min() >= size[~kept[:, n], n].max(initial=0.0) for n in range(5))


def test_one_weight_too_many_is_not_structured():
    mask = keep_largest(np.random.default_rng(0).standard_normal((64, 8)), "2:4")
    for row, column in np.argwhere(~mask)[:20]:
        other = mask.copy()
        other[row, column] = True
        assert structured_share(other, "2:4") is None
        assert cycles_by_hand(other, 2, 4) is None
    fewer = mask & (np.random.default_rng(1).random(mask.shape) < 0.5)
    assert structured_share(fewer, "2:4") == structured_share(mask, "2:4") == 0.5  # empty slots take their time


@pytest.mark.parametrize("pattern", ["4:2", "2:2", "0:4", "2:65", "2", "a:b", "2:4:8"])
def test_patterns_that_cannot_be_are_refused(pattern: str):
    with pytest.raises(ConfigError, match="must be N:M with 1 <= N < M <= 64"):
        parse_pattern(pattern)


def test_indices_of_slots_are_stored():
    assert Sparsity(zeros="2:4").stored_share("weight", 16, 1.0, 0.5) == 0.5 * (16 + 2) / 16
    assert Sparsity(zeros="2:4").stored_share("weight", 16, 1.0, None) == 1
    assert Sparsity(zeros="2:4").stored_share("activation", 16, 0.1, 0.5) == 1
