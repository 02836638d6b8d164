import math

import pytest

from presilicon.base import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (1e-15, "0.001 ps"),
        (2.5e-9, "2.5 ns"),
        (21.34e-6, "21.3 us"),
        (0.0087, "8.7 ms"),
        (0.9996, "1 s"),
        (59.9, "59.9 s"),
        (60, "1 min"),
        (3 * 86400, "3 d"),
        (-0.002, "-2 ms"),
        (math.inf, "inf s"),
        (math.nan, "nan s"),
    ],
)
def test_seconds(value, text):
    assert units.format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-16, "0.1 fJ"), (3.7e-12, "3.7 pJ"), (1.9e-3, "1.9 mJ"), (999.6, "1 kJ"), (2e12, "2000 GJ")],
)
def test_joules(value, text):
    assert units.format_joules(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1.5 * 1024**3, "1.5 GiB"), (0.5, "0.5 B")],
)
def test_bytes(value, text):
    assert units.format_bytes(value) == text


def test_rounding_up_to_the_next_unit_never_shows_a_thousand():
    for exponent in range(-11, 3):
        assert not units.format_joules(9.9996 * 10**exponent).startswith("1000")
        assert not units.format_seconds(min(9.9996 * 10**exponent, 9.9)).startswith("1000")


@pytest.mark.parametrize(
    ("value", "text"), [(11.2, "11.2 mm2"), (0, "0 mm2"), (0.25, "0.25 mm2"), (2e-5, "20 um2"), (813.0, "813 mm2")]
)
def test_area(value, text):
    assert units.format_area(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (7, "7"), (9999, "9999"), (10_000, "10 k"), (25_600_000, "25.6 M"), (2e15, "2000 T")]
)
def test_count(value, text):
    assert units.format_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0%"), (0.1, "10%"), (0.9744, "97.4%"), (0.99999, "100%"), (1, "100%")]
)
def test_percent(value, text):
    assert units.format_percent(value) == text


@pytest.mark.parametrize("value", [1e-30, 1e22, -4.5678e-9])
def test_extreme_numbers_use_an_exponent(value):
    assert "e" in units.format_number(value)
    assert float(units.format_number(value)) == pytest.approx(value, rel=1e-2)


def test_numbers_round_trip_within_their_digits():
    value = 1.2345e-6
    while value < 1e12:
        assert float(units.format_number(value, digits=4)) == pytest.approx(value, rel=1e-3)
        value *= 3.7


def test_one_scale_serves_both_ends_of_an_interval():
    scale = units.seconds_scale(0.0087)
    assert [scale.apply(value) for value in (0.0081, 0.0087, 0.0097)] == [8.1, 8.7, 9.7]
