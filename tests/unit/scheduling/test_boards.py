"""Boards that hold one set of kernels, and devices with limited memory, as system files give them."""

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import load_system
from presilicon.records import Mode
from presilicon.scheduling import build_problem, parse_graph, solve_best
from presilicon.scheduling.checker import faults
from presilicon.scheduling.solvers.heft import heft
from presilicon.study import schedule

SETS = 'devices.fpga.kernels={products = ["MatMul", "Conv2D"], rest = ["Mul", "Transpose"]}'
GRAPH = {
    "ops": [
        {"id": 0, "kind": "Conv2D", "size": "S", "bytes_out": 1000},
        {"id": 1, "kind": "Mul", "size": "S", "bytes_out": 1000, "deps": [0]},
        {"id": 2, "kind": "MatMul", "size": "S", "bytes_out": 1000, "deps": [1]},
        {"id": 3, "kind": "Mul", "size": "S", "deps": [1]},
    ]
}


def test_every_board_gets_one_of_its_sets() -> None:
    systems = load_system("v100-3xs10", [SETS]).configurations()
    counts = [{name: device.count for name, device in each.devices.items() if name != "gpu"} for each in systems]
    assert counts == [
        {"fpga": 3},
        {"fpga-products": 2, "fpga-rest": 1},
        {"fpga-products": 1, "fpga-rest": 2},
        {"fpga": 3},
    ]
    problem = build_problem(systems[1], parse_graph(GRAPH))
    assert [{mode.device for mode in task.modes} - {"gpu"} for task in problem.tasks] == [
        {"fpga-products"}, {"fpga-rest"}, {"fpga-products"}, {"fpga-rest"},
    ]  # fmt: skip
    # A product takes both of its boards, and half as long again as on three.
    alone, spread = (build_problem(each, parse_graph(GRAPH)).tasks[0].modes[-1] for each in (systems[0], systems[1]))
    assert (spread.units, alone.units) == (2, 3)
    assert spread.time_s == pytest.approx(1.5 * alone.time_s)
    with pytest.raises(ConfigError, match="must have one set of kernels here, not products, rest"):
        build_problem(load_system("v100-3xs10", [SETS]), parse_graph(GRAPH))


def test_the_best_configuration_is_chosen_with_a_bound_for_all() -> None:
    problems = [build_problem(each, parse_graph(GRAPH)) for each in load_system("v100-3xs10", [SETS]).configurations()]
    options = {"objective": "throughput", "solver": "exact"}
    each = [solve_best([one], plains=[one], time_limit_s=1, **options) for one in problems]  # type: ignore[arg-type]
    best = solve_best(problems, plains=problems, time_limit_s=4, **options)  # type: ignore[arg-type]
    assert best.cost.makespan_s == pytest.approx(min(solution.cost.makespan_s for solution in each))
    assert best.bound == pytest.approx(min(solution.bound or 0.0 for solution in each), rel=1e-4)
    assert any("the best of 4 configurations" in note for note in best.notes)


def test_a_configuration_without_a_schedule_still_counts_for_the_bound(monkeypatch) -> None:
    quick = build_problem(load_system("v100-3xs10"), parse_graph(GRAPH))
    slow = replace(quick, tasks=tuple(replace(task, modes=tuple(_slower(task.modes))) for task in quick.tasks))

    def fail_if_quick(problem, **options):
        if problem is quick:
            raise ConfigError("not within the limits")
        return heft(problem, **options)

    monkeypatch.setattr("presilicon.scheduling.solve.heft", fail_if_quick)
    options = {"objective": "throughput", "time_limit_s": 2, "solver": "heft"}
    found = solve_best([slow, quick], plains=[slow, quick], **options)  # type: ignore[arg-type]
    least = solve_best([quick], plains=[quick], **{**options, "solver": "exact"})  # type: ignore[arg-type]
    assert found.problem is slow
    assert found.bound is not None
    assert 0 < found.bound <= least.cost.makespan_s


def _slower(modes: tuple[Mode, ...]) -> list[Mode]:
    return [replace(mode, time_s=10 * mode.time_s) for mode in modes]


def test_the_checker_notices_a_kernel_that_is_not_on_the_board() -> None:
    problem = build_problem(load_system("v100-3xs10"), parse_graph(GRAPH))
    found = solve_best([problem], plains=[problem], time_limit_s=1, solver="heft")
    assert any(slot.mode.device == "fpga" for slot in found.schedule.started)
    configured = replace(problem, pools=(problem.pools[0], replace(problem.pools[1], kernels=("Transpose",))))
    assert "which is not configured for it" in faults(configured, found.schedule)[0]


def test_an_op_that_no_memory_holds_is_refused_by_name() -> None:
    graph = parse_graph({"ops": [{"id": 7, "kind": "Mul", "size": "S", "bytes_out": 3 * 10**9}]})
    settings = ["devices.gpu.memory_gb=1", "devices.fpga.memory_gb=0.5"]
    with pytest.raises(ConfigError, match=r"op 7 \(Mul S\): its inputs and its result need 3 GB at once, more than"):
        build_problem(load_system("v100-3xs10", settings), graph)
    roomy = build_problem(load_system("v100-3xs10", [settings[0], "devices.fpga.memory_gb=1.5"]), graph)
    assert {mode.device for mode in roomy.tasks[0].modes} == {"fpga"}


def test_a_training_step_that_does_not_fit_says_how_much_it_needs() -> None:
    system = load_system("v100-3xs10", ["devices.gpu.memory_gb=4.2e-4", "devices.fpga.memory_gb=1e-5"])
    with pytest.raises(
        ConfigError, match=r"no schedule within .* GB are on [a-z]*, more than its 0\.000[0-9]* GB.*memory_gb"
    ):
        schedule(system, "digits-cnn", solver="anytime", time_limit_s=0.5)
    assert schedule(load_system("v100-3xs10", ["devices.gpu.memory_gb=1"]), "digits-cnn", solver="heft").gap is not None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "fpga keeps its kernels for the whole training; give reconfigure_s"),
        (("devices.fpga.reconfigure_s=1.5",), "takes 3 s in each step, and no schedule may take longer than"),
        (("devices.fpga.reconfigure_s=1e-6",), "warning: fpga could load other kernels within a step"),
    ],
)
def test_a_note_says_whether_boards_could_change_their_kernels_in_a_step(settings, said) -> None:
    found = schedule("v100-3xs10", "digits-mlp", solver="heft", settings=(SETS, *settings))
    assert sum(said in note for note in found.notes) == 1


def test_the_time_of_a_reconfiguration_is_for_boards_with_several_sets() -> None:
    with pytest.raises(ConfigError, match="reconfigure_s is for boards with two or more sets of kernels"):
        load_system("v100-3xs10", ["devices.fpga.reconfigure_s=1.5"])
