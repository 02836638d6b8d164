"""A whole training run with the built-in e4m3 written again by a user: the same bits in every loss and weight."""

from dataclasses import replace

import pytest

from presilicon.formats import parse
from user_e4m3 import USER_E4M3, convert, same_run, train_digits, truncated_mad

E4M3 = parse("e4m3")


def coarse_div(a, b):
    return convert(1.0)


def test_a_training_run_has_the_bits_of_the_built_in_format() -> None:
    expected = train_digits(E4M3, "digits-mlp", 20)
    assert expected[0][-1] < expected[0][0] - 0.5
    assert same_run(train_digits(USER_E4M3, "digits-mlp", 20), expected)


@pytest.mark.parametrize("change", [{"mad": truncated_mad}, {"div": coarse_div}], ids=["mad", "div"])
def test_another_function_gives_other_bits(change) -> None:
    other = replace(USER_E4M3, name="other_e4m3", **change)
    assert not same_run(train_digits(other, "digits-mlp", 4), train_digits(E4M3, "digits-mlp", 4))


@pytest.mark.slow
@pytest.mark.parametrize("in_master", [False, True], ids=["float32 master", "e4m3 master"])
@pytest.mark.parametrize(("workload", "steps"), [("digits-mlp", 400), ("digits-cnn", 150)])
def test_a_long_run_has_the_same_bits(workload: str, steps: int, in_master: bool) -> None:
    runs = [train_digits(fmt, workload, steps, in_master=in_master) for fmt in (USER_E4M3, E4M3)]
    assert same_run(*runs)
