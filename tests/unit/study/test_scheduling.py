"""Captured steps as graphs: kinds, sizes, devices that are simulated."""

from collections import Counter

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import load_design, load_system
from presilicon.scheduling import kind_of
from presilicon.scheduling.accounting import cost
from presilicon.scheduling.baselines import reference_only
from presilicon.scheduling.checker import check
from presilicon.scheduling.solvers.heft import heft
from presilicon.simulation import simulate
from presilicon.study.scheduling import (
    PUBLISHED_BATCH,
    capture_steps,
    join_steps,
    problem_of,
    schedule,
    to_graph,
)
from presilicon.workloads import capture_workload, load_workload


def graph_of(workload, batch_size, *, sizing="work", kinds=None):
    return join_steps(workload, capture_steps(workload, batch_size), sizing, kinds)


def test_kinds_of_a_convolutional_network() -> None:
    kinds = Counter(op.kind for op in graph_of("alexnet", 4).ops)
    assert (kinds["Conv2D"], kinds["Conv2DBackpropFilter"], kinds["Conv2DBackpropInput"]) == (5, 5, 4)
    assert kinds["MatMul"] == 9
    assert kinds["BiasAddGrad"] == 8
    assert kinds["MaxPool"] == kinds["MaxPoolGrad"] == 3
    assert kinds["Relu"] == kinds["ReluGrad"] == 7


@pytest.mark.parametrize("workload", ["digits-cnn", "dcgan-generator", "shakespeare-gpt"])
def test_every_op_has_a_kind_and_its_dependencies(workload: str) -> None:
    step = capture_workload(load_workload(workload), 2)
    graph = to_graph(step)
    assert len(graph.ops) == len(step.ops)
    assert all(op.kind == kind_of(each) for op, each in zip(graph.ops, step.ops, strict=True))
    assert [op.deps for op in graph.ops] == [each.depends_on for each in step.ops]


def test_a_baseline_is_as_implausible_as_its_table_is_slow() -> None:
    system = load_system("v100-3xs10")

    def faster(value, factor, *rates):
        return replace(value, **{name: getattr(value, name) and getattr(value, name) * factor for name in rates})

    found = []
    for factor in (1, 4):
        rows = tuple(
            replace(faster(row, factor, "bandwidth_gb_s"), time_ms=row.time_ms / factor) for row in system.rows
        )
        memory = {name: faster(device, factor, "memory_gb_s", "bytes_per_s") for name, device in system.devices.items()}
        solution = schedule(replace(system, rows=rows, devices=memory), "alexnet", 256, solver="heft")
        assert solution.plausibility is not None
        found.append(solution.plausibility)
    slow, quick = found
    assert quick.time_ratio == pytest.approx(slow.time_ratio / 4)
    assert (slow.is_plausible, quick.is_plausible) == (False, True)
    step = simulate(capture_workload(load_workload("alexnet"), 256), load_design("v100"))
    assert slow.design_s == pytest.approx(step.time_s)


def test_the_class_of_a_convolution_hangs_on_how_it_is_read() -> None:
    by_tensor, by_product = (
        {op.name: op.size for op in graph_of("resnet50", 256, sizing=sizing).ops if op.kind == "Conv2D"}
        for sizing in ("tensor", "im2col")
    )
    assert set(by_tensor.values()) == {"S", "M"}
    first = next(iter(by_tensor))
    assert (by_tensor[first], by_product[first]) == ("S", "L")
    assert all(op.size == "" for op in graph_of("alexnet", 2).ops)


def test_only_kinds_of_the_table_get_a_class() -> None:
    graph = graph_of("alexnet", 2, sizing="tensor", kinds=["Conv2D"])
    assert {op.kind for op in graph.ops if op.size} == {"Conv2D"}
    with pytest.raises(ConfigError, match="sizing"):
        graph_of("alexnet", 2, sizing="guess")  # type: ignore[arg-type]


def test_dcgan_is_a_whole_step() -> None:
    steps = capture_steps("dcgan", 4)
    graph = graph_of("dcgan", 4)
    assert len(graph.ops) == sum(len(step.ops) for step in steps)
    assert graph.batch_size == 4
    second = len(steps[0].ops)
    assert all(op.deps for op in graph.ops[second:])


def test_published_batch_sizes() -> None:
    assert capture_steps("alexnet")[0].batch_size == 256
    assert PUBLISHED_BATCH == {"bert-large": 10}
    assert capture_steps("digits-mlp")[0].batch_size == 32


def test_a_device_may_be_simulated() -> None:
    system = load_system("v100-3xs10", ["devices.gpu.machine=v100", "devices.gpu.clocks=[1.0]"])
    problem = problem_of(system, "alexnet", 16)
    sources = {mode.source for task in problem.tasks for mode in task.modes if mode.device == "gpu"}
    assert sources == {"simulated"}
    found = reference_only(problem, "gpu")
    check(problem, found, claimed=cost(problem, found))
    assert found.makespan_s > 0


def test_captured_steps_are_scheduled() -> None:
    problem = problem_of(load_system("v100-3xs10"), "digits-cnn")
    found = heft(problem)
    check(problem, found, claimed=cost(problem, found))


def test_the_batch_is_that_of_all_copies_of_the_model() -> None:
    whole = problem_of(load_system("2xv100-6xs10"), "digits-mlp", 64)
    half = problem_of(load_system("v100-3xs10"), "digits-mlp", 32)
    assert (whole.batch_size, half.batch_size) == (64, 32)
    copies = Counter((task.kind, task.shape) for task in whole.tasks if task.shape)
    assert copies == Counter(
        {key: 2 * count for key, count in Counter((task.kind, task.shape) for task in half.tasks if task.shape).items()}
    )
    with pytest.raises(ConfigError, match=r"2 copies of the model cannot share a batch of 33 samples .* try 32 or 34"):
        problem_of(load_system("2xv100-6xs10"), "digits-mlp", 33)
