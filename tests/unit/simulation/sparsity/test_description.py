"""Hardware for zeros, as designs describe it."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design


@pytest.mark.parametrize(
    ("zeros", "words"),
    [("foo", "must be computed, gated, pairs, weights or N:M"), ("4:2", "must be N:M with 1 <= N < M <= 64")],
)
def test_unknown_hardware_for_zeros_is_refused(zeros: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_design("bf16-systolic", [f"machine.sparsity.zeros={zeros}"])
