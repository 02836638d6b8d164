"""Row-stationary arrays: every product of a step, and what their machines must have."""

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import Gemm
from presilicon.simulation import simulate, simulate_gemm
from presilicon.simulation.mapping.problem import DIMS, Contraction
from presilicon.simulation.systolic.rows import unroll_rows
from presilicon.workloads import capture_workload, load_workload


@pytest.fixture(scope="module")
def cost():
    graph = capture_workload(load_workload("digits-cnn"), batch_size=8)
    return graph, simulate(graph, load_design("eyeriss"))


def test_all_products_of_a_step_run(cost) -> None:
    graph, priced = cost
    design = load_design("eyeriss")
    cells = design.machine.rows * design.machine.cols
    products = [(op, price) for op, price in zip(graph.ops, priced.ops, strict=True) if op.gemm]
    assert {op.phase for op, _ in products} == {"forward", "input_grad", "weight_grad"}
    for op, price in products:
        assert price.cycles >= op.gemm.macs / cells
        assert 0 < price.utilization <= 1
    # Each memory has a part in the energy, under its own name.
    for memory in design.machine.levels:
        assert priced.energy_by_component_j[memory.name] > 0


def test_operands_cross_dram_at_least_once() -> None:
    gemm = Gemm(m=256, k=64, n=48)
    cost = simulate_gemm(gemm, load_design("eyeriss"))
    assert cost.bytes_dram >= 2 * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)


def test_cells_wait_for_filters_unless_their_memory_is_doubled() -> None:
    """The filters of a pass come over 64 bits; a second half of the memory would take them meanwhile."""
    gemm = Gemm(m=256, k=64, n=48)
    design = load_design("eyeriss")
    waiting = simulate_gemm(gemm, design)
    wide = [replace(m, gb_s=1e9) if m.name == "filters" else m for m in design.machine.memories]
    free = simulate_gemm(gemm, replace(design, machine=replace(design.machine, memories=tuple(wide))))
    words = gemm.k * gemm.n  # each weight enters the cells at least once
    assert waiting.cycles - free.cycles >= words * 16 / 64 - 200
    twice = [replace(m, doubled=True, kib=2 * m.kib) if m.name == "filter pads" else m for m in design.machine.memories]
    doubled = simulate_gemm(gemm, replace(design, machine=replace(design.machine, memories=tuple(twice))))
    assert doubled.cycles < waiting.cycles


def test_a_product_lies_on_as_many_cells_as_eyeriss_uses() -> None:
    for sizes, cells in [((1, 4, 96, 3, 55, 55, 11, 11), 151), ((2, 4, 128, 48, 27, 27, 5, 5), 135)]:
        problem = Contraction(sizes=sizes)
        steps = min(_steps(problem, spatial) for spatial in unroll_rows(problem, 12, 14))
        assert int(problem.macs / steps) == cells


def _steps(problem: Contraction, spatial) -> int:
    steps = 1
    for dim, size in zip(DIMS, problem.sizes, strict=True):
        count = 1
        for axis in spatial:
            for loop in axis:
                count *= loop.count if loop.dim == dim else 1
        steps *= -(-size // count)
    return steps


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["dataflow.forward=weight-stationary"], "use it for all three products"),
        (["fold_overlap=true"], "leave out fold_overlap"),
        (["transpose=transposer"], "fold_overlap and transpose"),
        (["sparsity.zeros=weights"], "skip none"),
        (["sparsity.compressed_in=chip"], "in DRAM only"),
    ],
)
def test_what_such_an_array_cannot_do_is_refused(settings: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_design("eyeriss", [f"machine.{text}" for text in settings])


def test_cells_need_memories() -> None:
    flows = [f"machine.dataflow.{phase}=row-stationary" for phase in ("forward", "input_grad", "weight_grad")]
    with pytest.raises(ConfigError, match='needs memories with per = "cell"'):
        load_design("bf16-systolic", flows)


def test_scale_sim_has_no_count_of_it() -> None:
    with pytest.raises(ConfigError, match="does not model row-stationary"):
        simulate_gemm(Gemm(8, 8, 8), load_design("eyeriss"), convention="scale-sim")
