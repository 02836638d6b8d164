"""Rooflines, and the overlap of compute and transfer from one op to the next."""

import random

import pytest

from presilicon.designs import load_design
from presilicon.simulation import simulate
from presilicon.simulation.systolic.pricing import Demand, lay_out

SETTINGS = ["machine.fusion=none", "machine.rows=4", "machine.cols=4", "machine.clock_ghz=1"]


def walk_ticks(demands: list[Demand], prefetch: bool) -> list[int]:
    """The ticks of each op, one at a time: the unit and the channel each do one unit of work in a tick."""
    fetched = [0] * len(demands)
    ticks = []
    for number, demand in enumerate(demands):
        computed = spent = 0
        while computed < demand.compute_s or fetched[number] < demand.transfer_s:
            if fetched[number] < demand.transfer_s:
                fetched[number] += 1
            elif prefetch and number + 1 < len(demands):
                following = demands[number + 1]
                if fetched[number + 1] < min(following.early_s, following.transfer_s):
                    fetched[number + 1] += 1
            computed += 1
            spent += 1
        ticks.append(spent)
    return ticks


@pytest.mark.parametrize("prefetch", [False, True])
def test_the_timeline_equals_a_walk_tick_by_tick(prefetch) -> None:
    draw = random.Random(0)
    for _ in range(200):
        demands = [
            Demand(compute_s=draw.randint(0, 9), transfer_s=draw.randint(0, 9), early_s=draw.randint(0, 9))
            for _ in range(draw.randint(1, 8))
        ]
        spans = lay_out(demands, prefetch=prefetch)
        assert [span.time_s for span in spans] == walk_ticks(demands, prefetch)
        assert spans[-1].start_s + spans[-1].time_s == sum(walk_ticks(demands, prefetch))


def test_the_walk_tells_prefetching_from_none() -> None:
    demands = [Demand(compute_s=5, transfer_s=2), Demand(compute_s=1, transfer_s=4, early_s=2)]
    assert walk_ticks(demands, False) == [5, 4]
    assert walk_ticks(demands, True) == [5, 2]


def test_prefetching_shortens_a_step_and_moves_the_same_bytes(linear_step) -> None:
    graph = linear_step(64, 64, 64)
    settings = [*SETTINGS, "machine.dram_gb_s=4"]
    apart = simulate(graph, load_design("fp32-systolic", settings))
    ahead = simulate(graph, load_design("fp32-systolic", [*settings, "machine.prefetch=true"]))
    leaked = [cost.energy_by_component_j["leakage"] for cost in (ahead, apart)]
    assert ahead.energy_j - leaked[0] == pytest.approx(apart.energy_j - leaked[1])
    assert leaked[0] / leaked[1] == pytest.approx(ahead.time_s / apart.time_s)
    assert [op.bytes_dram for op in ahead.ops] == [op.bytes_dram for op in apart.ops]
    assert all(op.prefetched_s == 0 for op in apart.ops)
    forward, loss, _, input_grad, update = ahead.ops
    assert forward.prefetched_s == 0
    # The loss reads what the op before has just made: nothing of it can come early.
    assert loss.prefetched_s == 0
    # The update waits for nothing that the input gradient makes.
    idle_s = input_grad.compute_s - (input_grad.memory_s - input_grad.prefetched_s)
    assert update.prefetched_s == pytest.approx(min(idle_s, 2 * 64 * 64 * 4 / 4e9))
    assert update.prefetched_s > 0
    assert ahead.time_s == pytest.approx(apart.time_s - update.prefetched_s)
    starts = [0.0] + [op.end_s for op in ahead.ops]
    assert [op.start_s for op in ahead.ops] == pytest.approx(starts[:-1])


def test_prefetching_takes_half_of_the_buffer_at_most(linear_step) -> None:
    settings = [*SETTINGS, "machine.prefetch=true", "machine.dram_gb_s=40", "machine.sram_kib=2"]
    ops = simulate(linear_step(64, 64, 64), load_design("fp32-systolic", settings)).ops
    assert max(op.prefetched_s for op in ops) == pytest.approx(1024 / 40e9)


def test_roofline_by_hand(linear_step) -> None:
    m, k, n = 4, 6, 3
    slow = load_design("fp32-systolic", [*SETTINGS, "machine.dram_gb_s=0.5", "machine.vector_lanes=8"])
    forward, loss = simulate(linear_step(m, k, n), slow).ops[:2]
    assert forward.intensity == pytest.approx(2 * m * k * n / (4 * (m * k + k * n + m * n)))
    assert forward.roof_flops_s == pytest.approx(forward.intensity * 0.5e9)
    assert forward.memory_s == pytest.approx(forward.bytes_dram / 0.5e9)
    assert forward.compute_s == pytest.approx(forward.cycles * 1e-9)
    assert forward.bound == "memory"
    assert forward.flops_s == pytest.approx(forward.roof_flops_s)
    assert loss.intensity == pytest.approx(m * n / (4 * 2 * m * n))
    fast = load_design("fp32-systolic", [*SETTINGS, "machine.dram_gb_s=1000", "machine.vector_lanes=8"])
    forward, loss = simulate(linear_step(m, k, n), fast).ops[:2]
    assert forward.roof_flops_s == 2 * 4 * 4 * 1e9
    assert forward.bound == "compute"
    assert forward.flops_s == pytest.approx(forward.roof_flops_s * forward.utilization)
    assert loss.roof_flops_s == 8 * 1e9


def test_no_op_is_above_its_roof(linear_step) -> None:
    for dram in ("0.1", "10", "1000"):
        design = load_design("bf16-systolic", [*SETTINGS, f"machine.dram_gb_s={dram}"])
        for op in simulate(linear_step(64, 48, 32), design).ops:
            assert op.flops_s <= op.roof_flops_s * (1 + 1e-9)
