"""The closed forms against an array that is stepped cell by cell, and against SCALE-Sim's published forms."""

import random

import pytest

from oracles.transposer import run_transposer
from presilicon.base import ConfigError
from presilicon.records import Gemm
from presilicon.simulation.systolic.cycles import gemm_cycles, transposer_cycles
from presilicon.simulation.systolic.reference import run_array, run_in_place, run_products

DATAFLOWS = ["weight-stationary", "input-stationary", "output-stationary"]
REDUCTIONS = ["rows", "columns"]


def multiply(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def transpose(a: list[list[float]]) -> list[list[float]]:
    return [list(line) for line in zip(*a, strict=True)]


def random_matrix(draw: random.Random, rows: int, cols: int) -> list[list[float]]:
    return [[float(draw.randint(-9, 9)) for _ in range(cols)] for _ in range(rows)]


@pytest.mark.parametrize("fold_overlap", [False, True], ids=["folds apart", "folds overlap"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_values_and_cycles_equal_the_array_stepped_cell_by_cell(dataflow, reduction, fold_overlap) -> None:
    draw = random.Random(f"{dataflow} {reduction} {fold_overlap}")
    seen = set()
    for _ in range(60):
        m, k, n = (draw.randint(1, 9) for _ in range(3))
        rows, cols, passes = draw.randint(1, 5), draw.randint(1, 5), draw.choice([1, 1, 2, 3])
        a, b = random_matrix(draw, m, k), random_matrix(draw, k, n)
        values, cycles = run_array(a, b, rows, cols, dataflow, reduction, fold_overlap=fold_overlap, passes=passes)
        assert values == multiply(a, b)
        closed = gemm_cycles(
            Gemm(m, k, n), rows, cols, dataflow, passes=passes, reduction=reduction, fold_overlap=fold_overlap
        )
        assert closed.cycles == cycles
        seen.add((closed.fold_m > 1, closed.fold_k > 1, closed.fold_n > 1))
    assert len(seen) == 4  # each of the two dimensions that are cut, in one fold and in several


@pytest.mark.parametrize("fold_overlap", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_in_place_input_gradient_equals_the_cells(reduction, fold_overlap) -> None:
    draw = random.Random(reduction)
    other = {"rows": "columns", "columns": "rows"}[reduction]
    for kept in [True, False] * 30:
        m, k, n = (draw.randint(1, 9) for _ in range(3))
        rows, cols = draw.randint(1, 5), draw.randint(1, 5)
        x, w, e = random_matrix(draw, m, k), random_matrix(draw, k, n), random_matrix(draw, m, n)
        y, dx, forward, backward = run_in_place(
            x, w, e, rows, cols, reduction, fold_overlap=fold_overlap, tile_stays=kept
        )
        assert y == multiply(x, w)
        assert dx == multiply(e, transpose(w))
        closed = {"dataflow": "weight-stationary", "fold_overlap": fold_overlap}
        assert gemm_cycles(Gemm(m, k, n), rows, cols, reduction=reduction, **closed).cycles == forward
        in_place = gemm_cycles(Gemm(m, n, k), rows, cols, reduction=other, resident=kept, **closed)
        assert in_place.cycles == backward


X, W, E = [[1.0, 4.0], [5.0, 2.0]], [[2.0, 3.0], [0.0, 1.0]], [[3.0, 4.0], [1.0, 2.0]]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_three_products_of_a_layer_on_a_2x2_array(reduction) -> None:
    y, dx, forward, backward = run_in_place(X, W, E, 2, 2, reduction)
    assert y == [[2.0, 7.0], [10.0, 17.0]]
    assert dx == [[18.0, 4.0], [8.0, 2.0]]
    # Two cycles of load and four of streaming; the input gradient finds W where it is.
    assert (forward, backward) == (6, 4)
    dw, cycles = run_array(transpose(X), E, 2, 2, "output-stationary", reduction)
    assert dw == [[8.0, 14.0], [14.0, 20.0]]
    assert cycles == gemm_cycles(Gemm(2, 2, 2), 2, 2, "output-stationary", reduction=reduction).cycles == 6


def test_a_separate_transposer_equals_its_registers() -> None:
    draw = random.Random(0)
    for _ in range(30):
        height, width, rows, cols = (draw.randint(1, 7) for _ in range(4))
        matrix = random_matrix(draw, height, width)
        result, cycles = run_transposer(matrix, rows, cols)
        assert result == transpose(matrix)
        assert transposer_cycles(height, width, rows, cols) == cycles


@pytest.mark.parametrize("fold_overlap", [False, True])
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_independent_products_add_up(dataflow, fold_overlap) -> None:
    draw = random.Random(1)
    products = [(random_matrix(draw, 5, 6), random_matrix(draw, 6, 7)) for _ in range(3)]
    results, cycles = run_products(products, 4, 3, dataflow, fold_overlap=fold_overlap)
    assert results == [multiply(a, b) for a, b in products]
    many = gemm_cycles(Gemm(5, 6, 7, count=3), 4, 3, dataflow, fold_overlap=fold_overlap)
    one = gemm_cycles(Gemm(5, 6, 7), 4, 3, dataflow, fold_overlap=fold_overlap)
    assert many.cycles == cycles
    assert many.folds == 3 * one.folds
    assert many.cycles == 3 * one.cycles - (2 * 4 if fold_overlap else 0)


@pytest.mark.parametrize("fold_overlap", [False, True])
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_folds_that_come_again_for_a_piece_of_the_stream_equal_the_cells(dataflow, fold_overlap) -> None:
    draw = random.Random(2)
    side = {"weight-stationary": 0, "output-stationary": 1, "input-stationary": 2}[dataflow]
    for pieces in (2, 3):
        sizes = [5, 6, 7]
        cut = [list(sizes) for _ in range(pieces)]
        for index, piece in enumerate(cut):
            piece[side] = sizes[side] * (index + 1) // pieces - sizes[side] * index // pieces
        products = [(random_matrix(draw, m, k), random_matrix(draw, k, n)) for m, k, n in cut]
        _, cycles = run_products(products, 4, 3, dataflow, fold_overlap=fold_overlap)
        whole = gemm_cycles(Gemm(*sizes), 4, 3, dataflow, fold_overlap=fold_overlap, loads=pieces)
        assert whole.cycles == cycles


def test_the_comparison_can_fail() -> None:
    _, cycles = run_array([[1.0, 2.0]], [[3.0], [4.0]], 2, 2, "output-stationary")
    assert gemm_cycles(Gemm(1, 2, 1), 2, 2, "output-stationary", "scale-sim").cycles != cycles
    # 1 x 4 cells: four folds along the reduction, or one across it.
    a, b = [[1.0, 2.0, 3.0, 4.0]], [[1.0], [2.0], [3.0], [4.0]]
    _, cycles = run_array(a, b, 1, 4, "weight-stationary", "columns")
    assert gemm_cycles(Gemm(1, 4, 1), 1, 4, "weight-stationary", reduction="rows").cycles != cycles
    # The layout of W is not its transposed one: the judge sees values, not only cycles.
    _, dx, _, _ = run_in_place(X, transpose(W), E, 2, 2)
    assert dx != multiply(E, transpose(W))


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        # ceil(K/R) ceil(N/C) (2R + C + M - 2) - 1 and its kin, for M=512 K=256 N=128 on 32 x 32
        ("weight-stationary", 8 * 4 * (64 + 32 + 512 - 2) - 1),
        ("input-stationary", 8 * 16 * (64 + 32 + 128 - 2) - 1),
        ("output-stationary", 16 * 4 * (32 + 32 + 256 - 2) - 1),
    ],
)
def test_scale_sim_convention(dataflow, cycles: int) -> None:
    assert gemm_cycles(Gemm(512, 256, 128), 32, 32, dataflow, "scale-sim").cycles == cycles


@pytest.mark.parametrize(
    "asked", [{"reduction": "columns"}, {"fold_overlap": True}, {"passes": 2}, {"resident": True}], ids=str
)
def test_what_scale_sim_does_not_model_is_refused(asked) -> None:
    with pytest.raises(ConfigError, match="SCALE-Sim does not model"):
        gemm_cycles(Gemm(2, 2, 2), 2, 2, "weight-stationary", "scale-sim", **asked)


def test_output_stationary_folds_have_no_resident_tile() -> None:
    with pytest.raises(ConfigError, match="load no tile"):
        gemm_cycles(Gemm(2, 2, 2), 2, 2, "output-stationary", resident=True)
