"""Kernels of torch.compile and of fused optimizers, with bytes counted by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import Design, RooflineMachine, StepFormats, load_design
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import simulate
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.roofline.kernels import Kernel
from presilicon.simulation.roofline.merging import launched_kernels
from presilicon.workloads import capture, capture_workload, load_workload

FLOAT = 4


def design(*settings: str, numerics: str = "fp32") -> Design:
    return load_design("h200", settings, numerics=numerics)


def kernels_of(graph: StepGraph, chosen: Design) -> list[Kernel]:
    """The kernels that are launched."""
    assert isinstance(chosen.machine, RooflineMachine)
    formats = StepFormats(chosen.numerics, StepFacts())
    executed = executed_ops(graph, formats, StepFacts())
    kernels = launched_kernels(executed, chosen.machine, chosen.numerics, formats)
    return [kernel for kernel in kernels if kernel.launches]


class Applies(nn.Module):
    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def compiled(function: Callable[..., Tensor], *layers: nn.Module, shape: tuple[int, ...] = (8, 16)) -> list[Any]:
    """Class and bytes of each kernel of a compiled forward pass."""
    graph = capture(Applies(function, *layers), torch.empty(shape), training=False)
    kernels = kernels_of(graph, design("machine.launch=compile"))
    return [(kernel.features.keys[0].partition(".")[0], kernel.size_bytes) for kernel in kernels]


def test_a_chain_reads_its_input_once_and_writes_its_result() -> None:
    size = 8 * 16 * FLOAT
    assert compiled(lambda x: (x.relu() * 2 + x).sigmoid()) == [("loop", 2 * size)]


def test_rows_are_normalized_in_the_loop_that_computes_them() -> None:
    size, vector = 8 * 16 * FLOAT, 16 * FLOAT
    statistics = 2 * 8 * FLOAT  # mean and deviation of each row, which nobody reads
    kernels = compiled(lambda x, norm: functional.gelu(norm(x + 1)), nn.LayerNorm(16))
    assert kernels == [("loop", 2 * size + 2 * vector + statistics)]


def test_a_product_ends_a_loop_and_a_result_that_others_need_is_written() -> None:
    def function(x: Tensor, linear: nn.Module) -> Tensor:
        hidden = x.relu()
        return hidden + linear(hidden)

    size = 8 * 16 * FLOAT
    kernels = compiled(function, nn.Linear(16, 16, bias=False))
    assert [name for name, _ in kernels] == ["loop", "gemm", "loop"]
    assert [size_bytes for name, size_bytes in kernels if name == "loop"] == [2 * size, 3 * size]


def test_a_loop_does_not_wait_for_what_depends_on_it() -> None:
    """The sum of a loop's result with a product of its sum cannot run in that loop."""

    def function(x: Tensor, linear: nn.Module) -> Tensor:
        hidden = x.exp()
        other = linear(hidden).exp()
        return hidden * other + x

    kernels = compiled(function, nn.Linear(16, 16, bias=False))
    assert [name for name, _ in kernels] == ["loop", "gemm", "loop"]


def test_reductions_end_a_loop_and_other_sizes_begin_one() -> None:
    size, rows = 8 * 16 * FLOAT, 8 * FLOAT
    kernels = compiled(lambda x: (x * x).sum(1).sqrt() * 3)
    assert kernels == [("loop", size + rows), ("loop", 2 * rows)]


def test_batch_normalization_reads_its_input_twice_and_its_consumers_join() -> None:
    shape, channels = (4, 6, 8, 8), 6 * FLOAT
    size = 4 * 6 * 64 * FLOAT
    kernels = compiled(lambda x, norm: norm(x).relu(), nn.BatchNorm2d(6, momentum=0.1), shape=shape)
    [(name, size_bytes)] = [kernel for kernel in kernels if kernel[1] > size]  # another one counts batches
    assert name == "loop"
    extra = size_bytes - 3 * size
    assert 0 < extra <= 16 * channels  # weights, running statistics, and those of the batch


def test_compiled_loops_convert_operands_and_the_update_is_left_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64))
    graph = capture(model, torch.empty(32, 64))
    eager, merged = (
        kernels_of(graph, design(f"machine.launch={launch}", numerics="bf16")) for launch in ("eager", "compile")
    )
    assert sum(len(kernel.extras) for kernel in eager) > 6
    assert [kernel.op.phase for kernel in merged for _ in kernel.extras] == ["weight_grad"] * 2
    updates = [[(k.op.name, k.size_bytes) for k in kernels if k.op.phase == "update"] for kernels in (eager, merged)]
    assert updates[0] == updates[1]


def test_compiling_saves_traffic_and_no_products() -> None:
    graph = capture_workload(load_workload("gpt-block"), batch_size=2)
    eager, merged = (simulate(graph, design(f"machine.launch={launch}")) for launch in ("graph", "compile"))
    assert merged.time_s < eager.time_s
    traffic = [
        sum(op.bytes_dram for op in cost.ops if op.unit == "vector" and op.phase != "update")
        for cost in (eager, merged)
    ]
    assert traffic[1] < 0.75 * traffic[0]
    products = [[op.time_s for op in cost.ops if op.unit == "matrix"] for cost in (eager, merged)]
    assert products[1] == pytest.approx(products[0])


@pytest.mark.parametrize(
    ("optimizer", "tensors"),
    [
        (torch.optim.SGD, 3),  # reads weight and gradient, writes the weight
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 5),
        (torch.optim.RMSprop, 5),
        (torch.optim.AdamW, 7),
        (torch.optim.Adagrad, 5),
    ],
)
def test_a_fused_optimizer_reads_and_writes_each_tensor_once(optimizer: Any, tensors: int) -> None:
    graph = capture(nn.Linear(64, 32), torch.empty(8, 64), optimizer=optimizer)
    fused = [k for k in kernels_of(graph, design("machine.optimizer=fused")) if k.op.phase == "update"]
    assert [k.size_bytes for k in fused] == [tensors * FLOAT * 64 * 32, tensors * FLOAT * 32]
    foreach = [k for k in kernels_of(graph, design("machine.launch=eager")) if k.op.phase == "update"]
    assert sum(k.flops for k in fused) == sum(k.flops for k in foreach)
    assert sum(k.size_bytes for k in fused) <= sum(k.size_bytes for k in foreach)


def test_a_compiled_step_is_launched_by_the_host() -> None:
    graph = capture(nn.Linear(8, 8), torch.empty(4, 8), training=False)
    settings = ("machine.launch=compile", "machine.host.compiled_us=1000", "machine.host.step_us=0")
    assert simulate(graph, design(*settings)).time_s == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("setting", "words"), [("machine.launch=inductor", "compile"), ("machine.optimizer=foreech", "foreach")]
)
def test_unknown_ways_of_launching_are_refused_with_those_that_exist(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        design(setting)
