import msgspec

from presilicon.records import CurvePoint
from presilicon.report.charts.curves import median_curve


def seed_of(result, points):
    curve = tuple(CurvePoint(step=s, value=a, time_s=s * 1.0, energy_j=s * 2.0) for s, a in points)
    return msgspec.structs.replace(result.seeds[0], curve=curve)


def curve_of(comparison, *seeds):
    result = comparison.designs[0]
    return median_curve(msgspec.structs.replace(result, seeds=tuple(seed_of(result, points) for points in seeds)))


def test_the_median_of_each_step(comparison):
    curve = curve_of(comparison, [(10, 0.1), (20, 0.2)], [(10, 0.3), (20, 0.4)], [(10, 0.8), (20, 0.9)])
    assert [(point.step, point.value, point.time_s) for point in curve] == [(10, 0.3, 10.0), (20, 0.4, 20.0)]


def test_a_single_seed_is_its_own_median(comparison):
    result = comparison.designs[0]
    alone = msgspec.structs.replace(result, seeds=result.seeds[:1])
    assert median_curve(alone) == result.seeds[0].curve


def test_a_seed_that_stopped_counts_with_its_last_accuracy(comparison):
    curve = curve_of(comparison, [(10, 0.97)], [(10, 0.5), (20, 0.6)], [(10, 0.4), (20, 0.5)])
    assert [point.value for point in curve] == [0.5, 0.6]


def test_it_ends_when_most_seeds_have_stopped(comparison):
    long = [(step, step / 100) for step in range(10, 60, 10)]
    curve = curve_of(comparison, long, [(10, 0.9), (20, 0.95)], [(10, 0.9), (20, 0.96)])
    assert [point.step for point in curve] == [10, 20]


def test_seeds_evaluated_at_different_steps(comparison):
    curve = curve_of(comparison, [(5, 0.1), (15, 0.3)], [(10, 0.2), (20, 0.4)])
    assert [point.step for point in curve] == [10, 15, 20]


def test_no_points_no_curve(comparison):
    assert curve_of(comparison, [], []) == ()
    assert [point.step for point in curve_of(comparison, [], [(10, 0.5)])] == [10]
