"""Embedded DRAM is refreshed where data stays longer than it keeps it, and only there."""

from math import floor

import pytest
from msgspec.structs import replace
from torch import float32, long, zeros
from torch.nn import functional

from presilicon.designs import load_design
from presilicon.records import StepGraph
from presilicon.simulation import simulate
from presilicon.simulation.fusion.groups import Group
from presilicon.simulation.fusion.schedule import Stay, Transfers
from presilicon.simulation.systolic.plan import GroupPlan
from presilicon.simulation.systolic.pricing import GroupSpan, refresh_of_groups
from presilicon.simulation.systolic.work import Forgetful, systolic_rates
from presilicon.workloads import capture, sgd
from presilicon.workloads.digits import digits_revnet

SRAM = load_design("edge-bf16", ["machine.sram_kib=2048"])


def rates_of(retention_s: float):
    rates = systolic_rates(SRAM, SRAM.machine, SRAM.technology)
    return replace(rates, forgetful=(Forgetful(retention_s=retention_s, byte_j=1.0, held_bytes=None),))


def plan_of(stays: list[Stay], reserved: list[float]) -> GroupPlan:
    groups = tuple(
        Group(members=(slot,), statistics=(), tiled=-1, sliced=(), slices=1, late=(), reserved_bytes=size)
        for slot, size in enumerate(reserved)
    )
    return GroupPlan(
        groups=groups,
        works=(),
        moved=(),
        transfers=Transfers([], [], tuple(sorted(stays))),
        free_bytes=(),
    )


SPANS = [GroupSpan(start_s=float(slot), time_s=1.0, prefetched_s=0.0) for slot in range(10)]


@pytest.mark.parametrize("retention_s", [0.4, 0.9, 1.0, 2.5, 3.0, 3.1, 8.0, 9.5])
def test_refreshes_are_those_of_every_byte_by_its_life(retention_s: float):
    # Value 7 stays from group 0 to 3 and on to 8; value 9 comes back later.
    stays = [Stay(7, 0, 3, 100.0), Stay(7, 3, 8, 60.0), Stay(9, 1, 2, 10.0), Stay(9, 5, 6, 10.0)]
    lives = [(100.0 - 60.0, 4.0), (60.0, 9.0), (10.0, 2.0), (10.0, 2.0)]
    reserved = [5.0] * 10
    wanted = sum(size * floor(life / retention_s) for size, life in lives)
    wanted += sum(reserved) * floor(1.0 / retention_s)
    found = sum(refresh_of_groups(plan_of(stays, reserved), SPANS, rates_of(retention_s)))
    assert found == pytest.approx(wanted)


def test_nothing_is_refreshed_exactly_when_everything_is_used_in_time():
    plan = plan_of([Stay(1, 0, 4, 8.0)], [1.0] * 10)
    assert sum(refresh_of_groups(plan, SPANS, rates_of(5.0))) > 0
    assert sum(refresh_of_groups(plan, SPANS, rates_of(5.0001))) == 0


def graph_of(blocks: int, recomputes: bool) -> StepGraph:
    model = digits_revnet(blocks=blocks)
    model.blocks.recomputes = recomputes
    return capture(
        model, zeros(32, 1, 8, 8, dtype=float32), targets=zeros(32, dtype=long), loss=functional.cross_entropy,
        optimizer=sgd,
    )  # fmt: skip


def refresh_j(graph: StepGraph, retention_us: float) -> float:
    memory = f'[{{ name = "buffer", kib = 4096, kind = "edram", retention_us = {retention_us} }}]'
    return simulate(graph, load_design("edge-bf16", [f"machine.memories={memory}"])).energy_by_component_j["refresh"]


def test_recomputed_blocks_need_no_refresh_where_kept_ones_do():
    kept, recomputed = (graph_of(8, recomputes) for recomputes in (False, True))
    times = [10.0**power for power in range(1, 7)]
    needs = {
        name: [refresh_j(graph, retention) > 0 for retention in times]
        for name, graph in (("kept", kept), ("recomputed", recomputed))
    }
    assert needs["kept"][0]
    assert not needs["kept"][-1]
    assert sum(needs["recomputed"]) <= sum(needs["kept"])
