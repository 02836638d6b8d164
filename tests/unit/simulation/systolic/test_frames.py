"""The cells of a small product, cycle by cycle."""

import pytest

from presilicon.base import ConfigError
from presilicon.records import ArrayFrames, Gemm
from presilicon.simulation import gemm_cycles, play_product

DATAFLOWS = ("weight-stationary", "input-stationary", "output-stationary")


def product(play: ArrayFrames) -> list[list[float]]:
    """What left the array, added up; the operands alone decide what it should be."""
    result = [[0.0] * len(play.b[0]) for _ in play.a]
    for frame in play.frames:
        for i, j, value in frame.out:
            result[i][j] += value  # no index outside: idle lanes of a ragged fold are left out
    return result


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("reduction", ["rows", "columns"])
@pytest.mark.parametrize("fold_overlap", [False, True])
@pytest.mark.parametrize("shape", [(4, 4, 4), (5, 3, 7), (1, 9, 2), (5, 7, 3)])
def test_what_leaves_the_cells_is_the_product(dataflow, reduction, fold_overlap, shape) -> None:
    play = play_product(Gemm(*shape), 4, 3, dataflow, reduction=reduction, fold_overlap=fold_overlap)
    wanted = [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*play.b, strict=True)] for row in play.a
    ]
    assert product(play) == wanted == [list(row) for row in play.result]
    cycles = gemm_cycles(Gemm(*shape), 4, 3, dataflow, reduction=reduction, fold_overlap=fold_overlap).cycles
    assert play.cycles == len(play.frames) == cycles
    assert [frame.cycle for frame in play.frames] == list(range(cycles))
    for frame in play.frames:
        for values in frame.registers.values():
            assert len(values) == 4
            assert all(len(row) == 3 for row in values)


def test_weights_stay_and_sums_move_down() -> None:
    play = play_product(Gemm(3, 2, 2), 2, 2, "weight-stationary")
    assert set(play.frames[0].registers) == {"stationary", "loading", "moving", "sum"}
    loaded = [frame for frame in play.frames if frame.registers["stationary"] == play.b]
    assert len(loaded) == 3 + 2 + 2 - 2
    first = loaded[0]
    assert first.registers["moving"] == ((play.a[0][0], 0.0), (0.0, 0.0))
    assert first.registers["sum"] == ((play.a[0][0] * play.b[0][0], 0.0), (0.0, 0.0))


def test_sums_stay_until_they_are_complete() -> None:
    play = play_product(Gemm(2, 5, 2), 2, 2, "output-stationary")
    complete = [frame.cycle for frame in play.frames if frame.registers["sum"] == play.result]
    assert complete[0] == 5 + 2 + 2 - 2 - 1
    assert play.frames[complete[0] + 1].out == ((1, 0, play.result[1][0]), (1, 1, play.result[1][1]))


def test_operands_are_the_same_every_time_and_differ_by_seed() -> None:
    assert play_product(Gemm(3, 3, 3), 2, 2, "weight-stationary") == play_product(
        Gemm(3, 3, 3), 2, 2, "weight-stationary"
    )
    assert (
        play_product(Gemm(3, 3, 3), 2, 2, "weight-stationary", seed=1).a
        != play_product(Gemm(3, 3, 3), 2, 2, "weight-stationary").a
    )


@pytest.mark.parametrize(("shape", "side"), [((4, 4, 4), 128), ((100_000, 4, 4), 4), ((1 << 30,) * 3, 4)])
def test_what_is_too_large_to_play_is_refused_at_once(shape, side) -> None:
    with pytest.raises(ConfigError, match="too many to play"):
        play_product(Gemm(*shape), side, side, "weight-stationary")
