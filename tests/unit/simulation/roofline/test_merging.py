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
from presilicon.simulation.roofline.kernels import OpKernel
from presilicon.simulation.roofline.merging import image_layout, launched_kernels
from presilicon.workloads import capture, capture_workload, load_workload

FLOAT = 4


def design(*settings: str, numerics: str = "fp32") -> Design:
    return load_design("h200", settings, numerics=numerics)


def kernels_of(graph: StepGraph, chosen: Design) -> list[OpKernel]:
    """The kernels that are launched."""
    assert isinstance(chosen.machine, RooflineMachine)
    formats = StepFormats(chosen.numerics, StepFacts())
    executed = executed_ops(graph, formats, StepFacts())
    kernels = launched_kernels(executed, chosen.machine, formats)
    return [kernel for kernel in kernels if kernel.launches]


class Applies(nn.Module):
    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def launches(kernels: list[OpKernel]) -> list[Any]:
    """Class and bytes of each kernel, extras included."""
    found = []
    for kernel in kernels:
        found += [(kernel.features.keys[0].partition(".")[0], kernel.size_bytes)] if kernel.launches else []
        found += [(extra.features.keys[0].partition(".")[0], extra.size_bytes) for extra in kernel.extras]
    return found


def compiled(function: Callable[..., Any], *layers: nn.Module, shape: tuple[int, ...] = (8, 16)) -> list[Any]:
    """Class and bytes of each kernel of a compiled forward pass."""
    graph = capture(Applies(function, *layers), torch.empty(shape), training=False)
    return launches(kernels_of(graph, design("machine.launch=compile")))


def trained(function: Callable[..., Any], *layers: nn.Module, shape: tuple[int, ...], phases: str) -> list[float]:
    """Bytes of the loops of a compiled training step, in phases that begin with a word."""
    graph = capture(Applies(function, *layers), torch.empty(shape))
    kernels = [k for k in kernels_of(graph, design("machine.launch=compile")) if k.op.phase.endswith(phases)]
    return [size_bytes for name, size_bytes in launches(kernels) if name == "loop"]


def test_a_chain_reads_its_input_once_and_writes_its_result() -> None:
    size = 8 * 16 * FLOAT
    assert compiled(lambda x: (x.relu() * 2 + x).sigmoid()) == [("loop", 2 * size)]


def test_rows_are_normalized_in_the_loop_that_computes_them() -> None:
    size, vector = 8 * 16 * FLOAT, 16 * FLOAT  # mean and deviation of each row stay inside
    kernels = compiled(lambda x, norm: functional.gelu(norm(x + 1)), nn.LayerNorm(16))
    assert kernels == [("loop", 2 * size + 2 * vector)]


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


def test_results_of_a_reduction_are_used_in_its_loop_and_reduced_in_another() -> None:
    size, rows = 8 * 16 * FLOAT, 8 * FLOAT
    assert compiled(lambda x: (x * x).sum(1).sqrt() * 3) == [("loop", size + rows)]
    assert compiled(lambda x: (x * x).sum(1).sqrt().sum()) == [("loop", size + rows), ("loop", rows + FLOAT)]


def test_long_columns_are_added_up_in_two_loops_and_short_ones_in_one() -> None:
    width, vector = 16, 16 * FLOAT
    assert compiled(lambda x: x.sum(0), shape=(128, width)) == [("loop", 128 * vector + vector)]
    in_parts = [("loop", 512 * vector + 4 * vector), ("loop", 4 * vector + vector)]
    assert compiled(lambda x: x.sum(0), shape=(512, width)) == in_parts


def test_elementwise_results_are_computed_again_rather_than_stored() -> None:
    """A sum of rows and one of columns have loops of their own, and both begin from the input."""
    size = 128 * 16 * FLOAT
    kernels = compiled(lambda x: ((x * x).sum(0), (x * x).sum(1)), shape=(128, 16))
    assert kernels == [("loop", size + 16 * FLOAT), ("loop", size + 128 * FLOAT)]


class Adds(nn.Module):
    def forward(self, *terms: Tensor) -> tuple[Tensor, Tensor]:
        total = sum(terms[1:], terms[0])
        return total.sum(0), total.sum(1)


@pytest.mark.parametrize(("terms", "moved"), [(4, 4 + 4), (5, 5 + 1 + 1)])  # read twice; read, written and read
def test_what_is_computed_from_many_tensors_is_stored(terms: int, moved: int) -> None:
    graph = capture(Adds(), (torch.empty(128, 16),) * terms, training=False)
    traffic = sum(kernel.size_bytes for kernel in kernels_of(graph, design("machine.launch=compile")))
    assert traffic == (moved * 128 * 16 + 16 + 128) * FLOAT


def test_statistics_over_a_batch_are_complete_before_its_elements_are_normalized() -> None:
    """Channels last, each sum is made of parts; consumers join the second loop over the images."""
    size, channels, parts = 4 * 96 * 256 * FLOAT, 96 * FLOAT, 4 * 256 // 128
    layers = nn.Conv2d(8, 96, 1, bias=False), nn.BatchNorm2d(96, momentum=0.1)
    graph = capture(nn.Sequential(*layers, nn.ReLU()), torch.empty(4, 8, 16, 16), training=False)
    settings = design("machine.launch=compile", "machine.layout=channels-last")
    loops = [bytes_ for name, bytes_ in launches(kernels_of(graph, settings)) if name == "loop" and bytes_ > channels]
    normalized, summed, added = sorted(loops, reverse=True)
    assert normalized == 2 * size + 4 * channels
    assert summed == pytest.approx(size + 4 * parts * channels, rel=0.02)  # it is counted with running statistics
    assert added < 10 * parts * channels


def test_a_convolutions_bias_is_added_by_the_loop_that_reads_it() -> None:
    size, bias = 4 * 6 * 64 * FLOAT, 6 * FLOAT
    kernels = compiled(lambda x, conv: conv(x).relu(), nn.Conv2d(3, 6, 3, padding=1), shape=(4, 3, 8, 8))
    assert [kernel for kernel in kernels if kernel[0] == "loop"] == [("loop", 2 * size + bias)]


def test_images_and_weights_are_converted_where_the_compiler_prefers_channels_last() -> None:
    image, weight = 4 * 8 * 64 * FLOAT, 96 * 8 * 9 * FLOAT
    graph = capture(nn.Conv2d(8, 96, 3, padding=1, bias=False), torch.empty(4, 8, 8, 8), training=False)
    converted = launches(kernels_of(graph, design("machine.launch=compile")))[1:]
    assert converted == [("loop", 2 * weight), ("loop", 2 * image)]
    assert not launches(kernels_of(graph, design("machine.launch=compile", "machine.layout=channels-last")))[1:]
    # Weights that are rounded in every step are written in that layout.
    trained = capture(nn.Conv2d(8, 96, 3, padding=1, bias=False), torch.empty(4, 8, 8, 8))
    forward = [k for k in kernels_of(trained, design("machine.launch=compile", numerics="bf16")) if k.op.convolution]
    assert len(forward[0].extras) == 1


@pytest.mark.parametrize(
    ("layers", "layout"),
    [
        ([nn.Conv2d(3, 96, 3)], "channels-last"),
        ([nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)], "contiguous"),  # all are small
        ([nn.Conv2d(3, 96, 3), nn.Conv2d(96, 48, 3)], "contiguous"),  # half as many results
        ([nn.Conv2d(3, 96, 3), nn.Conv2d(96, 48, 1)], "channels-last"),
        ([nn.Conv2d(3, 96, 3), nn.Conv2d(96, 96, 3, groups=2)], "contiguous"),
        ([nn.Conv2d(3, 96, 3), nn.Conv2d(96, 96, 3, groups=96)], "channels-last"),
    ],
)
def test_the_compiler_chooses_the_layout_of_images_by_their_channels(layers: list[nn.Module], layout: str) -> None:
    graph = capture(nn.Sequential(*layers), torch.empty(2, 3, 16, 16), training=False)
    for launch, expected in (("compile", layout), ("graph", "contiguous")):
        machine = design(f"machine.launch={launch}").machine
        assert isinstance(machine, RooflineMachine)
        assert image_layout(graph.ops, machine) == expected


def test_the_backward_pass_computes_again_what_one_stored_tensor_is_enough_for() -> None:
    """Of the loss, only statistics of each row are kept; the scores themselves are read again."""
    rows, classes = 64, 1000
    size = rows * classes * FLOAT

    def function(x: Tensor, linear: nn.Module) -> Tensor:
        return functional.cross_entropy(linear(x), torch.zeros(rows, dtype=torch.int64, device=x.device))

    forward = trained(function, nn.Linear(16, classes, bias=False), shape=(rows, 16), phases="forward")
    assert sum(forward) == pytest.approx(size, rel=0.02)
    backward = trained(function, nn.Linear(16, classes, bias=False), shape=(rows, 16), phases="_grad")
    assert sum(backward) == pytest.approx(2 * size, rel=0.02)


def test_large_tensors_are_summed_along_rows_and_columns_in_one_loop() -> None:
    def loops(rows: int) -> list[float]:
        layers = nn.Linear(64, 1024, bias=False), nn.LayerNorm(1024)
        found = trained(lambda x, linear, norm: norm(linear(x)), *layers, shape=(rows, 64), phases="_grad")
        return [size_bytes / (rows * 1024 * FLOAT) for size_bytes in found]

    assert sum(share > 0.9 for share in loops(4096)) == 2  # along rows, and along columns
    assert sum(share > 0.9 for share in loops(8192)) == 1


def test_results_of_fused_attention_are_not_copied() -> None:
    graph = capture_workload(load_workload("gpt-block"), batch_size=1)
    copies = [
        [k for k in kernels_of(graph, design(f"machine.launch={launch}")) if k.op.name == "attention.forward.clone"]
        for launch in ("eager", "compile")
    ]
    assert [len(found) for found in copies] == [1, 0]


def test_compiled_loops_convert_operands_and_the_update_is_left_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64))
    graph = capture(model, torch.empty(32, 64))
    eager, merged = (
        kernels_of(graph, design(f"machine.launch={launch}", numerics="bf16")) for launch in ("eager", "compile")
    )
    assert sum(len(kernel.extras) for kernel in eager) > 6
    casts = [kernel.op.phase for kernel in merged for extra in kernel.extras if extra.is_cast]
    assert casts == ["weight_grad"] * 2
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
    assert traffic[1] < traffic[0]
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
