"""Axes of a study: lists and spans, grids and random draws."""

import math

import pytest

from presilicon.base import ConfigError
from presilicon.study.search.axes import ValueSpan, draw, grid, grid_size, read_axes


def test_nested_tables_are_paths_and_single_values_are_axes_of_one():
    axes = read_axes({"machine": {"rows": [8, 16], "cores": {"count": 4}}, "numerics": ["bf16"]})
    assert [(axis.path, axis.values) for axis in axes] == [
        ("machine.rows", (8, 16)),
        ("machine.cores.count", (4,)),
        ("numerics", ("bf16",)),
    ]


def test_spans_count_by_step_or_by_factor_and_include_their_end():
    by_step, by_factor, plain = read_axes(
        {
            "a": {"from": 1, "to": 7, "step": 3},
            "b": {"from": 64, "to": 1024, "times": 4},
            "c": {"from": 0.5, "to": 2.0},
        }
    )
    assert by_step.values == (1, 4, 7)
    assert by_factor.values == (64, 256, 1024)
    assert plain.values == ()
    assert plain.span is not None


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"a": []}, "vary.a: give at least one value"),
        ({"a": [1, 2, 1]}, "vary.a: 1 is there twice"),
        ({"a": {"from": 4, "to": 4, "step": 1}}, "from must be below to"),
        ({"a": {"from": 4}}, "missing required field"),
        ({"a": {"from": 1, "to": 4, "step": 1, "times": 2}}, "step or times, not both"),
        ({"a": {"from": 0, "to": 4, "log": True}}, "above 0 for log"),
    ],
)
def test_axes_without_sense_are_refused(vary, message):
    with pytest.raises(ConfigError, match=message):
        read_axes(vary)


def test_a_draw_takes_different_points_of_the_grid_and_the_same_ones_for_a_seed():
    axes = read_axes({"a": [1, 2, 3], "b": list(range(10)), "c": ["x", "y"]})
    everything = set(grid(axes))
    assert grid_size(axes) == len(everything) == 60
    drawn = list(draw(axes, 25, seed=3))
    assert len(set(drawn)) == 25
    assert set(drawn) <= everything
    assert drawn == list(draw(axes, 25, seed=3)) != list(draw(axes, 25, seed=4))
    assert set(draw(axes, 1000, seed=0)) == everything


def test_spans_are_drawn_within_their_ends_evenly_on_their_scale():
    (axis, whole) = read_axes({"a": {"from": 1.0, "to": 1e4, "log": True}, "b": {"from": 2, "to": 9}})
    values = [value for (value,) in draw([axis], 400, seed=0)]
    assert all(1 <= value <= 1e4 for value in values)
    assert 170 < sum(math.log10(value) < 2 for value in values) < 230
    assert grid_size([axis]) is None
    assert {value for (value,) in draw([whole], 100, seed=0)} == set(range(2, 10))


def test_a_factor_near_one_gives_each_whole_number_once():
    assert ValueSpan(low=2, high=6, times=1.2).values() == (2, 3, 4, 5, 6)
