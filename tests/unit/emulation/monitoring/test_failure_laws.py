"""A failure names exactly what was recorded, and appears exactly where a share is above its limit."""

import random
from itertools import product

import pytest

from presilicon.emulation.monitoring.recorder import ModuleRun, Rounding, failures_of
from presilicon.emulation.monitoring.statistics import Measurement
from presilicon.formats import parse
from presilicon.records import Limits

LIMITS = Limits(overflow=0.25, underflow=0.5, negligible=0.125)
FORMAT = parse("e4m3fn")


def some_measurement(draw: random.Random) -> Measurement:
    return Measurement(
        numbers=100.0, finite=draw.choice([100.0, 100.0, 96.0]), nans=draw.choice([0.0, 3.0]), nonzero=80.0,
        overflowed=draw.choice([0.0, 10.0, 24.0, 50.0]), saturated=draw.choice([0.0, 1.0, 15.0, 24.0]),
        underflowed=draw.choice([0.0, 40.0, 41.0, 80.0]), largest=draw.choice([0.5, 1.0, 2.0]), smallest=0.01,
    )  # fmt: skip


def test_a_rounding_fails_where_it_is_above_a_limit_and_under_its_own_name() -> None:
    draw, seen = random.Random(5), set()
    for _ in range(300):
        numbers, largest = some_measurement(draw), draw.choice([0.0, 4.0, 8.0, 16.0])
        entry = Rounding(
            draw.randrange(9), draw.choice(["", "0", "block.1"]), draw.choice(["weight", "activation", "error"]),
            draw.choice([None, "input_grad", "weight_grad"]), FORMAT, numbers,
        )  # fmt: skip
        expected = ["non-finite"] if numbers.finite < 100 else []
        if (numbers.overflowed + numbers.saturated) / numbers.finite > 0.25:
            expected.append("overflow")
        if numbers.underflowed / 80 > 0.5 and numbers.largest > 0.125 * largest:
            expected.append("underflow")
        failures = list(failures_of(entry, LIMITS, largest))
        assert [failure.symptom for failure in failures] == expected
        for failure in failures:
            named = (failure.step, failure.layer, failure.role, failure.product)
            assert named == (entry.step, entry.layer, entry.role, entry.product)
            assert failure.statistics == numbers.statistics()
            assert failure.format
            assert failure.message.startswith(f"step {entry.step}: {entry.role}s of {entry.layer or 'the model'}")
            assert (f"({entry.product})" in failure.message) == (entry.product is not None)
        seen |= set(expected)
    assert seen == {"non-finite", "overflow", "underflow"}


def test_a_module_fails_where_it_makes_what_it_was_not_given() -> None:
    for bad_inputs, bad_outputs, layer in product((0.0, 2.0), (0.0, 5.0), ("", "0.act")):
        failures = list(failures_of(ModuleRun(4, layer, "GELU", bad_inputs, bad_outputs), LIMITS))
        assert len(failures) == (bad_outputs > 0 and bad_inputs == 0)
        for failure in failures:
            assert (failure.step, failure.layer, failure.role, failure.symptom) == (4, layer, "output", "non-finite")
            assert "5 infinities or NaN" in failure.message
            assert f"GELU {layer or '(root)'}" in failure.message


@pytest.mark.parametrize("share", ["overflow", "saturation", "underflow"])
def test_shares_are_of_the_numbers_that_could_have_them(share: str) -> None:
    numbers = Measurement(numbers=10, finite=8, nonzero=5, overflowed=2, saturated=4, underflowed=1)
    assert getattr(numbers, share) == {"overflow": 2 / 8, "saturation": 4 / 8, "underflow": 1 / 5}[share]
    assert getattr(Measurement(), share) == 0.0
