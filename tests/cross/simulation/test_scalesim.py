"""Our cycles in SCALE-Sim's convention against runs of the real SCALE-Sim, kept in `scalesim_golden.csv`."""

import csv
from collections import Counter
from math import ceil
from pathlib import Path

import pytest
import torch

from presilicon import capture
from presilicon.ops import im2col
from presilicon.records import Convolution, Gemm
from presilicon.simulation import gemm_cycles

LINES = (Path(__file__).with_name("scalesim_golden.csv")).read_text().splitlines()
ROWS = list(csv.DictReader(LINES[1:]))


def shape_of(row: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(side) for side in row["shape"].split("x"))


def product_of(row: dict[str, str]) -> Gemm:
    """The product that SCALE-Sim runs: of a convolution, one row for each window that begins inside the input."""
    if row["kind"] == "gemm":
        return Gemm(*shape_of(row))
    height, width, kernel_h, kernel_w, channels, filters, stride = shape_of(row)
    windows = [ceil((side - kernel + stride) / stride) for side, kernel in ((height, kernel_h), (width, kernel_w))]
    return im2col(
        Convolution(
            batch=1,
            in_channels=channels,
            out_channels=filters,
            input_size=(height, width),
            output_size=(windows[0], windows[1]),
            kernel=(kernel_h, kernel_w),
            stride=(stride, stride),
            padding=(0, 0),
            dilation=(1, 1),
        )
    )


@pytest.mark.parametrize("dataflow", ["weight-stationary", "input-stationary", "output-stationary"])
@pytest.mark.parametrize("kind", ["gemm", "convolution"])
def test_cycles_equal_the_real_scale_sim(kind, dataflow) -> None:
    rows = [row for row in ROWS if (row["kind"], row["dataflow"]) == (kind, dataflow)]
    assert len(rows) >= 40
    ours = [
        gemm_cycles(product_of(row), int(row["rows"]), int(row["cols"]), dataflow, "scale-sim").cycles for row in rows
    ]
    assert ours == [int(row["cycles"]) for row in rows]


def test_the_exact_convention_differs_by_the_drain_and_one_cycle() -> None:
    for row in ROWS:
        rows, cols = int(row["rows"]), int(row["cols"])
        exact = gemm_cycles(product_of(row), rows, cols, row["dataflow"])
        drain = exact.folds * rows if row["dataflow"] == "output-stationary" else 0
        assert exact.cycles - int(row["cycles"]) == drain + 1


def test_the_golden_file_covers_what_it_should() -> None:
    assert LINES[0].startswith("# scalesim 3.0.0")
    assert len({(row["rows"], row["cols"]) for row in ROWS}) >= 5
    folds = Counter()
    for row in ROWS:
        array = gemm_cycles(product_of(row), int(row["rows"]), int(row["cols"]), row["dataflow"])
        folds[array.fold_m > 1, array.fold_k > 1, array.fold_n > 1] += 1
    assert sum(folds.values()) == len(ROWS)
    assert len(folds) == 7  # all but three cut dimensions at once


@pytest.mark.parametrize("layer", ["pointwise", "three", "strided", "oblong", "whole"])
def test_a_captured_convolution_is_the_product_that_scale_sim_runs(layer) -> None:
    row = next(row for row in ROWS if row["layer"] == layer)
    height, width, kernel_h, kernel_w, channels, filters, stride = shape_of(row)
    model = torch.nn.Conv2d(channels, filters, (kernel_h, kernel_w), stride=stride, bias=False)
    forward = capture(model, torch.empty(1, channels, height, width)).ops[0]
    assert forward.gemm == product_of(row)


def test_scale_sim_counts_windows_that_leave_the_input() -> None:
    row = next(row for row in ROWS if row["layer"] == "strided_left_over")
    model = torch.nn.Conv2d(4, 10, 3, stride=2, bias=False)
    forward = capture(model, torch.empty(1, 4, 16, 16)).ops[0]
    assert (forward.gemm.m, product_of(row).m) == (7 * 7, 8 * 8)
