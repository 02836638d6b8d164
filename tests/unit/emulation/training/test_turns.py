"""Runs that take turns: results in order, one at a time, random numbers of their own, and the first error ends all."""

import pytest
import torch

from presilicon.emulation import take_turns


def drawing(log: list[str], name: str, count: int):
    """A run that draws numbers and passes its turn on in between."""

    def run(pass_on):
        torch.manual_seed(len(name))
        drawn = []
        for _ in range(count):
            log.append(name)
            drawn.append(float(torch.rand(())))
            pass_on()
        return drawn

    return run


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_every_run_draws_the_numbers_it_would_draw_alone(at_once):
    log: list[str] = []
    before = torch.get_rng_state()
    names = ("a", "bb", "ccc")
    results = take_turns([drawing(log, name, 3) for name in names], "cpu", at_once)
    assert torch.equal(torch.get_rng_state(), before)
    alone = [take_turns([drawing([], name, 3)], "cpu", 1)[0] for name in names]
    assert results == alone
    assert len({tuple(result) for result in results}) == 3


def test_turns_go_round():
    log: list[str] = []
    take_turns([drawing(log, "a", 3), drawing(log, "b", 1), drawing(log, "c", 2)], "cpu", 3)
    assert log == ["a", "b", "c", "a", "c", "a"]


def test_the_first_error_ends_all_runs():
    log: list[str] = []

    def failing(pass_on):
        pass_on()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        take_turns([drawing(log, "a", 100), failing, drawing(log, "c", 100)], "cpu", 3)
    assert len(log) < 10
