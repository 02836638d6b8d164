import msgspec
import pytest

from presilicon.base import count_scale, seconds_scale
from presilicon.records import Interval
from presilicon.report.intervals import format_ends, format_interval, rank

NEVER = Interval(None, None, None)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.0087, 0.0081, 0.0097), "8.7 ms [8.1-9.7]"),
        (Interval(0.0087, 0.0087, 0.0087), "8.7 ms [8.7-8.7]"),
        (Interval(0.9, 0.5, 30.0), "900 ms [500-30000]"),
        (Interval(0.0087, 0.0081, None), "8.7 ms [8.1-never]"),
        (Interval(None, 0.0081, None), "never [8.1 ms-never]"),
        (NEVER, "never"),
    ],
)
def test_intervals_are_written_in_one_unit(interval, text):
    assert format_interval(interval, seconds_scale) == text


def test_the_ends_can_stand_alone_or_be_left_out():
    interval = Interval(410.0, 380.0, 455.0)
    assert format_interval(interval, count_scale, ends=False) == "410"
    assert format_ends(interval, count_scale) == "[380-455]"


def test_rank_puts_infinite_medians_last(mixed, comparison):
    assert [result.reached for result in rank(mixed.designs)] == ["5/5", "5/5", "1/5", "0/5"]
    names = [result.name for result in rank(comparison.designs)]
    assert names == ["fp8-systolic", "bf16-systolic", "fp32-systolic"]


def test_equal_designs_keep_the_order_given(comparison):
    first = comparison.designs[0]
    twin = msgspec.structs.replace(first, name="twin")
    assert [result.name for result in rank((twin, first))] == ["twin", first.name]
