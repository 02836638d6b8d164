"""The closed forms against an array that is stepped cell by cell, and against SCALE-Sim's published forms."""

import random

import pytest

from presilicon.records import Gemm
from presilicon.simulation.reference import run_array
from presilicon.simulation.systolic import gemm_cycles

DATAFLOWS = ["weight-stationary", "input-stationary", "output-stationary"]


def multiply(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def random_matrix(draw: random.Random, rows: int, cols: int) -> list[list[float]]:
    return [[float(draw.randint(-9, 9)) for _ in range(cols)] for _ in range(rows)]


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_values_and_cycles_equal_the_array_stepped_cell_by_cell(dataflow) -> None:
    draw = random.Random(dataflow)
    for _ in range(60):
        m, k, n = (draw.randint(1, 9) for _ in range(3))
        rows, cols = draw.randint(1, 5), draw.randint(1, 5)
        a, b = random_matrix(draw, m, k), random_matrix(draw, k, n)
        values, cycles = run_array(a, b, rows, cols, dataflow)
        assert values == multiply(a, b)
        assert gemm_cycles(Gemm(m, k, n), rows, cols, dataflow).cycles == cycles


def test_the_comparison_can_fail() -> None:
    _, cycles = run_array([[1.0, 2.0]], [[3.0], [4.0]], 2, 2, "output-stationary")
    assert gemm_cycles(Gemm(1, 2, 1), 2, 2, "output-stationary", "scale-sim").cycles != cycles


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


def test_independent_products_add_up() -> None:
    one = gemm_cycles(Gemm(5, 6, 7), 4, 4, "weight-stationary")
    many = gemm_cycles(Gemm(5, 6, 7, count=3), 4, 4, "weight-stationary")
    assert many.cycles == 3 * one.cycles
    assert many.folds == 3 * one.folds
