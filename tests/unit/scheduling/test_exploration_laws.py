"""Laws of the search for kernels: the order of an axis decides nothing, and every configuration is accounted for."""

from itertools import permutations, product, starmap

import pytest

from presilicon.scheduling.fpga_kernels import Exploration, Space, explore, synthetic_fmax
from presilicon.scheduling.kernel_estimates import FpgaBoard, estimate
from presilicon.scheduling.kernel_ops import KernelConfig, make_input

LAW, BOARD = synthetic_fmax(), FpgaBoard(dsps=700, ram_blocks=900)
SMALL, LARGE = make_input("MatMul", (8, 40, 8)), make_input("MatMul", (256, 64, 128))
GROUPS = (16, 64, 256)
"""The last is larger than the small product, and the second as large."""


def test_a_group_may_be_as_large_as_a_product_and_no_larger() -> None:
    assert SMALL.items == GROUPS[1]
    assert {each.config.work_group for each in explore(SMALL, LAW, space_of(), top=999).best} == set(GROUPS[:2])


def space_of(groups: tuple[int, ...] = GROUPS) -> Space:
    return Space(compute_units=(1, 3), simd=(1, 4, 16), work_groups=groups, unrolls=(1, 3, 9, 30, 50, 200))


def found_in(exploration: Exploration) -> list[tuple[float, KernelConfig]]:
    return [(each.estimate.time_s, each.config) for each in exploration.best]


@pytest.mark.parametrize("op", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("monotone", [True, False])
def test_the_order_of_work_groups_decides_nothing(op, monotone: bool) -> None:
    first = explore(op, LAW, space_of(), board=BOARD, monotone=monotone, top=99)
    for groups in permutations(GROUPS):
        other = explore(op, LAW, space_of(groups), board=BOARD, monotone=monotone, top=99)
        assert found_in(other) == found_in(first)
        counts = ("space", "queries", "infeasible", "skipped", "close")
        assert [getattr(other, name) for name in counts] == [getattr(first, name) for name in counts]


@pytest.mark.parametrize("op", [SMALL, LARGE], ids=["small", "large"])
def test_what_does_not_fit_is_counted_one_by_one(op) -> None:
    space = space_of()
    axes = (getattr(space, name) for name in space.__struct_fields__)
    fitting = []
    for config in starmap(KernelConfig, product(*axes)):
        mhz = LAW(config.compute_units, config.simd, config.unroll)
        if mhz is None or config.unroll > op.longest_loop or config.work_group > op.items:
            continue
        if estimate(op, config, mhz, BOARD).excess(BOARD) is None:
            fitting.append(config)
    full = explore(op, LAW, space, board=BOARD, monotone=False, top=999)
    assert full.infeasible == len(space) - len(fitting) > 0
    assert full.skipped == 0
    assert len(full.best) == len(fitting) - full.close
    assert {each.config for each in full.best} <= set(fitting)
    ranks = [each.indicator_rank for each in full.best]
    assert len(set(ranks)) == len(ranks)
    assert max(ranks) <= len(fitting)
    for group in GROUPS:  # of one group, no two that are kept have nearly the same clock
        clocks = [each.fmax_mhz for each in full.best if each.config.work_group == group]
        assert all(abs(late - early) >= 0.1 * early for at, early in enumerate(clocks) for late in clocks[at + 1 :])
    quick = explore(op, LAW, space, board=BOARD, top=999)
    assert quick.infeasible + quick.skipped + quick.close + len(quick.best) == len(space)
