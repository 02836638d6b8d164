"""The latency indicator, and the search for kernels that it guides."""

import json
from importlib.resources import files
from itertools import product, starmap

import pytest

from presilicon.base import ConfigError
from presilicon.scheduling.fpga_kernels import Space, explore, latency_indicator, synthetic_fmax, table_fmax
from presilicon.scheduling.kernel_estimates import FpgaBoard, estimate
from presilicon.scheduling.kernel_ops import SHAPES, KernelConfig, make_input

FACTS = json.loads((files("presilicon_evidence.reproductions") / "data" / "hybrid.json").read_text())
WORK = 2048 * 1024 * 1024


def test_the_worked_examples_come_out_to_the_last_digit() -> None:
    assert round(latency_indicator(WORK, 128, 210), 2) == 81.81
    assert round(latency_indicator(WORK, 64, 241), 2) == 142.57


def test_whole_clocks_give_the_published_table() -> None:
    table = FACTS["table4"]
    for row, mhz in zip(table["MatMul"], table["implied_fmax_MHz"]["MatMul(2048x1024x1024)"], strict=True):
        assert round(latency_indicator(WORK, row[2], mhz), 2) == row[5]


def test_no_whole_clocks_give_the_published_table_of_convolutions_to_the_digit() -> None:
    rows = [(row[2], row[5]) for row in FACTS["table4"]["Conv2D"]]
    group, first = rows[0]
    met = 0
    for mhz in range(100, 600):
        ends = (first - 0.005) * group * mhz, (first + 0.005) * group * mhz
        spans = [ends]
        for group_, value in rows[1:]:
            low, high = (value - 0.005) * group_, (value + 0.005) * group_
            spans = [
                (max(left, low * other), min(right, high * other))
                for left, right in spans
                for other in range(int(left / high), int(right / low) + 2)
                if max(left, low * other) < min(right, high * other)
            ]
        met += len(spans)
    assert met == 0


def test_the_space_has_the_published_size() -> None:
    assert len(Space()) == 20_480


def test_bisection_asks_for_few_clocks_and_misses_nothing() -> None:
    op = make_input("MatMul", (2048, 1024, 1024))
    law = synthetic_fmax()
    quick, full = explore(op, law), explore(op, law, monotone=False)
    assert quick.queries < 0.1 * full.queries
    assert full.queries == 20_480 / 4
    assert quick.best[0].config == full.best[0].config
    assert [each.rank for each in quick.best] == [1, 2, 3, 4, 5]
    times = [each.estimate.time_s for each in quick.best]
    assert times == sorted(times)
    everything = quick.infeasible + quick.skipped + quick.close
    assert 20_480 - everything == pytest.approx(len(explore(op, law, top=20_480).best))


@pytest.mark.parametrize("kind", SHAPES)
def test_no_kernel_that_fits_is_estimated_to_be_faster_than_the_recommended_one(kind: str) -> None:
    op, law, board = make_input(kind, SHAPES[kind][1]), synthetic_fmax(), FpgaBoard(dsps=700, ram_blocks=900)
    space = Space(simd=(1, 4, 16), work_groups=(32, 256), unrolls=(1, 3, 9, 50, 200))
    axes = (getattr(space, name) for name in space.__struct_fields__)
    rates = (
        estimate(op, config, mhz, board)
        for config in starmap(KernelConfig, product(*axes))
        if config.unroll <= op.longest_loop
        if (mhz := law(config.compute_units, config.simd, config.unroll)) is not None
    )
    fastest = min(rate.time_s for rate in rates if rate.excess(board) is None)
    assert explore(op, law, space, board=board, monotone=False).best[0].estimate.time_s == fastest


@pytest.mark.parametrize("kind", SHAPES)
def test_the_indicator_prefers_the_least_parallel_kernel_and_the_estimate_does_not(kind: str) -> None:
    found = explore(make_input(kind, SHAPES[kind][1]), synthetic_fmax())
    assert found.preferred.config == (1, 1, 256, 1)
    assert found.preferred.estimate.time_s > 1.5 * found.best[0].estimate.time_s
    assert found.best[0].config.lanes > 1


def test_a_kernel_that_does_not_fit_the_board_is_not_recommended() -> None:
    op = make_input("MatMul", (2048, 1024, 1024))
    for small in (FpgaBoard(dsps=100), FpgaBoard(ram_blocks=300)):
        found = explore(op, lambda *_: 300.0, board=small)
        assert all(each.estimate.excess(small) is None for each in found.best)
        assert found.infeasible > explore(op, lambda *_: 300.0).infeasible


def test_of_two_near_clocks_of_one_work_group_the_faster_is_kept() -> None:
    rows = {(1, 1, 1): 308.0, (1, 1, 2): 280.0, (1, 1, 4): 300.0}
    op = make_input("BiasAddGrad", (64, 64))
    wide = FpgaBoard(memory_gb_s=1e6)
    found = explore(op, table_fmax(rows), Space(work_groups=(16,)), board=wide, monotone=False)
    assert [each.config.unroll for each in found.best] == [4]
    rows[1, 1, 2] = 269.0  # 10.3% below 300
    found = explore(op, table_fmax(rows), Space(work_groups=(16,)), board=wide, monotone=False)
    assert [each.config.unroll for each in found.best] == [4, 2]
    assert found.close == 1


@pytest.mark.parametrize("kind", SHAPES)
def test_every_kind_can_be_explored(kind: str) -> None:
    assert explore(make_input(kind, SHAPES[kind][1]), synthetic_fmax()).best


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_input("Matmul", (1, 2, 3)), ["Matmul", "MatMul"]),
        (lambda: make_input("MatMul", (1, 2)), ["MxKxN"]),
        (lambda: make_input("Mul", (0,)), ["at least 1"]),
        (lambda: latency_indicator(1, 1, 0), ["0 MHz"]),
        (lambda: explore(make_input("Mul", (64, 64)), lambda *_: None), ["no configuration of Mul 64x64"]),
        (lambda: explore(make_input("Mul", (64,)), synthetic_fmax(), Space(simd=())), ["simd"]),
        (lambda: explore(make_input("Mul", (64,)), synthetic_fmax(), Space(unrolls=(2, 1))), ["unrolls must increase"]),
        (lambda: explore(make_input("Mul", (64,)), synthetic_fmax(), board=FpgaBoard(memory_gb_s=0)), ["memory_gb_s"]),
    ],
)
def test_wrong_requests_are_named(call, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)
