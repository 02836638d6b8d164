"""The Pareto front, against a comparison of every pair."""

import random

from presilicon.base import parse_condition
from presilicon.records import PointRecord
from presilicon.study.search.front import broken_limit, pareto_front

NAMES = ("time_per_step_s", "energy_per_step_j", "accuracy")


def record(number, **metrics):
    return PointRecord(key=str(number), number=number, design="d", workload="w", metrics=metrics)


def beats(one, other):
    signs = (1, 1, -1)
    pairs = [(sign * one.metrics[name], sign * other.metrics[name]) for name, sign in zip(NAMES, signs, strict=True)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def test_the_front_is_what_no_other_point_beats():
    generator = random.Random(0)
    records = [record(n, **{name: float(generator.randint(1, 12)) for name in NAMES}) for n in range(200)]
    expected = [one for one in records if not any(beats(other, one) for other in records)]
    front = pareto_front(records, NAMES)
    assert 3 < len(front) < 100
    assert front == expected


def test_points_without_a_metric_or_that_never_arrive_are_not_on_the_front():
    arrives, misses, unknown = record(1, time_s=1.0), record(2, time_s=None), record(3)
    assert pareto_front([arrives, misses, unknown], ["time_s"]) == [arrives]


def test_limits_on_metrics_that_are_not_known_yet_can_wait():
    limits = [parse_condition("accuracy >= 0.9", ["accuracy"], "limit")]
    assert broken_limit(record(1, area_mm2=3.0), limits, known=True) is None
    assert broken_limit(record(1, area_mm2=3.0), limits) == limits[0]
    assert broken_limit(record(1, accuracy=0.95), limits) is None


def test_negating_a_metric_and_turning_its_direction_changes_no_front():
    generator = random.Random(1)
    values = [(generator.randint(1, 9), generator.randint(1, 9)) for _ in range(60)]
    up = [record(n, time_s=float(time), accuracy=float(metric)) for n, (time, metric) in enumerate(values)]
    down = [record(n, time_s=float(time), accuracy=-float(metric)) for n, (time, metric) in enumerate(values)]
    fronts = [pareto_front(up, ["time_s", "accuracy"], "higher"), pareto_front(down, ["time_s", "accuracy"], "lower")]
    assert [one.number for one in fronts[0]] == [one.number for one in fronts[1]]


def test_more_arrivals_are_better():
    points = [record(1, reached=0.6, time_s=1.0), record(2, reached=1.0, time_s=1.0)]
    assert pareto_front(points, ["reached", "time_s"]) == [points[1]]
