"""Refresh of embedded DRAM, from lifetimes."""

import math

import pytest

from presilicon.designs import load_design
from presilicon.records import Lifetime, MemoryTimeline
from presilicon.simulation import memory_timeline, simulate
from presilicon.simulation.refresh import Edram, price_refresh

DESIGN = load_design("bf16-systolic", ["machine.rows=4", "machine.cols=4"])


def cell(retention_s: float) -> Edram:
    return Edram(retention_s=retention_s, refresh_pj_bit=0.1, label="assumed", source="for this test")


@pytest.mark.parametrize("shape", [(4, 6, 3), (32, 16, 64), (1, 1, 1)])
def test_nothing_is_refreshed_if_and_only_if_all_data_is_read_in_time(linear_step, shape) -> None:
    graph = linear_step(*shape)
    timeline = memory_timeline(graph, DESIGN, simulate(graph, DESIGN))
    longest = max(each.time_s for each in timeline.lifetimes)
    just_enough = math.nextafter(longest, math.inf)
    assert price_refresh(timeline, cell(just_enough)).refreshes == 0
    assert price_refresh(timeline, cell(just_enough)).energy_j == 0.0
    at_its_end = price_refresh(timeline, cell(longest))
    assert at_its_end.refreshes >= 1
    assert at_its_end.energy_j > 0
    assert at_its_end.longest_s == longest
    for retention_s in (longest / 7, longest / 2, longest * 2):
        found = price_refresh(timeline, cell(retention_s))
        assert (found.refreshes == 0) == (longest < retention_s)


def test_energy_is_bits_times_refreshes() -> None:
    lifetimes = tuple(
        Lifetime(tensor=i, role="activation", part=part, size_bytes=size, write_s=1e-6, last_read_s=1e-6 + time_s)
        for i, (part, size, time_s) in enumerate(
            [("activations", 10.0, 35e-6), ("transients", 5.0, 9e-6), ("weights", 100.0, 20e-6)]
        )
    )
    timeline = MemoryTimeline(points=(), lifetimes=lifetimes)
    found = price_refresh(timeline, cell(10e-6), parts=("activations", "transients"))
    assert (found.refreshes, [each.tensor for each in found.refreshed]) == (3, [0])
    assert found.energy_j == pytest.approx(10 * 8 * 3 * 0.1e-12)
    assert price_refresh(timeline, cell(9.5e-6)).energy_j == pytest.approx((10 * 3 + 100 * 2) * 8 * 0.1e-12)
    assert price_refresh(MemoryTimeline(points=(), lifetimes=()), cell(1.0)).longest_s == 0.0
