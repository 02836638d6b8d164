"""Where kernels are looked up: by what their time depends on, however a network writes it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from presilicon.designs import Design, load_design
from presilicon.designs import StepFormats as Formats
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import OpKernel, executed_ops, launched_kernels
from presilicon.simulation.roofline.efficiency import KernelGroup
from presilicon.workloads import capture


def kernels_of(graph: StepGraph, *settings: str, numerics: str = "fp32") -> list[OpKernel]:
    design: Design = load_design("h200", list(settings), numerics=numerics)
    formats = Formats(design.numerics, StepFacts())
    kernels = launched_kernels(executed_ops(graph, formats, StepFacts()), design.machine, formats)  # type: ignore[arg-type]
    return [kernel for kernel in kernels if kernel.launches]


def features(graph: StepGraph, operator: str, *settings: str) -> set[Any]:
    return {kernel.features for kernel in kernels_of(graph, *settings) if operator in kernel.op.operator}


@pytest.mark.parametrize(
    ("make", "operator"),
    [(lambda: nn.LayerNorm(64), "native_layer_norm"), (lambda: nn.RMSNorm(64), "fused_rms_norm")],
)
def test_rows_are_normalized_alike_whatever_axes_stand_before(make: Callable[[], nn.Module], operator: str) -> None:
    flat, deep, deeper = (capture(make(), torch.empty(*sizes, 64)) for sizes in ((96,), (4, 24), (4, 6, 4)))
    assert features(flat, operator) == features(deep, operator) == features(deeper, operator)


def test_channels_count_where_a_whole_batch_is_normalized() -> None:
    few, many = (capture(nn.BatchNorm2d(c), torch.empty(4, c, 64 // c, 8)) for c in (4, 16))
    assert features(few, "native_batch_norm") != features(many, "native_batch_norm")


def test_weights_are_updated_alike_whatever_their_shape() -> None:
    flat = capture(nn.Linear(1, 4096, bias=False), torch.empty(8, 1))
    square = capture(nn.Linear(64, 64, bias=False), torch.empty(8, 64))
    assert features(flat, "add_") == features(square, "add_")


def test_adam_divides_tensor_by_tensor_in_a_graph() -> None:
    """Torch's capturable Adam has its step count on the card and divides by tensors, twice, one parameter at a time."""
    graph = capture(nn.Linear(64, 32), torch.empty(8, 64), optimizer=torch.optim.Adam)
    divisions = {
        launch: [k for k in kernels_of(graph, f"machine.launch={launch}") if k.op.operator.startswith("aten.div.T")]
        for launch in ("graph", "eager")
    }
    updates = {launch: [k for k in found if k.op.phase == "update"] for launch, found in divisions.items()}
    assert [k.launches for k in updates["graph"]] == [2, 2]
    assert all(k.launches < 0.1 for k in updates["eager"])
    assert [k.size_bytes for k in updates["graph"]] == [2 * k.size_bytes for k in updates["eager"]]


def test_biases_of_convolutions_have_groups_by_layout() -> None:
    graph = capture(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)), torch.empty(4, 3, 16, 16))
    for layout in ("contiguous", "channels-last"):
        kernels = kernels_of(graph, f"machine.layout={layout}")
        added = {extra.features.keys[0] for kernel in kernels for extra in kernel.extras}
        summed = {kernel.features.keys[0] for kernel in kernels if kernel.op.name.endswith("bias")}
        assert added == {f"bias.32.{layout}"}
        assert summed == {f"bias-gradient.32.{layout}"}


def test_the_state_of_a_recurrent_layer_is_not_converted_at_every_time_step() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(32, 32, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cells(x)[0]  # type: ignore[no-any-return]

    graph = capture(Last(), torch.empty(4, 12, 32))
    links = [k for k in kernels_of(graph, numerics="bf16") if k.features.keys[0].startswith("recurrent")]
    assert len(links) > 12
    assert not any(kernel.extras for kernel in links)


def test_a_convolution_is_known_by_its_geometry_and_its_batch_apart() -> None:
    def product(batch: int, **options: Any) -> Any:
        graph = capture(nn.Conv2d(4, 8, 3, bias=False, **options), torch.empty(batch, 4, 16, 16))
        [found] = features(graph, "aten.convolution.")
        return found

    one, other, padded = product(4), product(16), product(4, padding=1)
    assert one.layer == other.layer == "4>8 16 k3 s1 p0 d1 g1"
    assert other.scale - one.scale == 2
    assert padded.layer != one.layer


class Written(nn.Module):
    """RMS normalization as many models write it out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized rows."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def test_torch_s_rms_norm_is_one_kernel_and_a_written_one_is_not() -> None:
    """Cards compute nn.RMSNorm at once: its parts must not be taken for separate adds and multiplications."""
    fused, written = (
        {key.partition(".")[0] for kernel in kernels_of(graph) for key in kernel.features.keys[:1]}
        for graph in (
            capture(nn.Sequential(nn.Linear(64, 64), norm), torch.empty(8, 64)) for norm in (nn.RMSNorm(64), Written())
        )
    )
    assert "rms-norm" in fused
    assert not {"pow", "rsqrt"} & fused
    assert "rms-norm" not in written
    assert {"pow", "rsqrt"} <= written


def test_chips_without_a_float32_unit_compute_depthwise_convolutions() -> None:
    graph = capture(nn.Conv2d(8, 8, 3, groups=8, bias=False), torch.empty(4, 8, 16, 16))
    design = load_design("tpu-v3", numerics="fp32")
    formats = Formats(design.numerics, StepFacts())
    kernels = launched_kernels(executed_ops(graph, formats, StepFacts()), design.machine, formats)  # type: ignore[arg-type]
    assert any(kernel.features.keys[0].startswith("depthwise2d.forward.float32") for kernel in kernels)


@pytest.mark.parametrize("known", [((3.0, 0.1), (3.0, 0.2)), ((4.0, 0.1), (3.0, 0.2))])
def test_batch_sizes_of_a_measured_layer_rise(known) -> None:
    with pytest.raises(ValueError, match='"layer": batch sizes must rise'):
        KernelGroup(fixed_us=1.0, reached=1.0, known={"layer": known})
