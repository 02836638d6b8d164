"""The order in which ops meet memory, against the strides of the same models run for real in both layouts."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.workloads import capture


class ConvNextBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 12, 4, stride=4), nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.norm, self.out = nn.LayerNorm(12), nn.Linear(12, 12)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        return x + self.out(self.norm(self.depthwise(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class MixerBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.tokens = nn.Conv2d(3, 12, 4, stride=4), nn.Linear(64, 64)
        self.before, self.after = nn.LayerNorm(12), nn.LayerNorm(12)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.before(x).transpose(1, 2)).transpose(1, 2)
        return self.after(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.max_pool2d(self.first(images), 2)
        return x + self.norm(self.second(x)).relu()


class StrideSpy(TorchDispatchMode):
    """Whether each sum met two orders of dimensions, and each layer normalization a tensor that is not contiguous."""

    NAMES: ClassVar[dict[Any, str]] = {
        torch.ops.aten.add.Tensor: "aten.add.Tensor",
        torch.ops.aten.native_layer_norm.default: "aten.native_layer_norm.default",
    }

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = self.NAMES.get(func)
        if name == "aten.add.Tensor":
            is_mixed = args[0].shape == args[1].shape and args[0].stride() != args[1].stride()
            self.seen.append((name, is_mixed))
        elif name:
            self.seen.append((name, not args[0].is_contiguous()))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("layout", ["contiguous", "channels-last"])
@pytest.mark.parametrize("kind", [ConvNextBlock, MixerBlock, Residual])
def test_one_capture_knows_the_strides_of_both_layouts(kind: type[nn.Module], layout: str) -> None:
    graph = capture(kind(), torch.empty(2, 3, 32, 32), training=False)
    ours = [
        (op.operator, op.access in ("strided", f"strided-{layout}"))
        for op in graph.ops
        if op.operator in StrideSpy.NAMES.values()
    ]
    form = torch.channels_last if layout == "channels-last" else torch.contiguous_format
    model, images = kind().to(memory_format=form), torch.randn(2, 3, 32, 32).contiguous(memory_format=form)
    with torch.no_grad(), StrideSpy() as spy:
        model(images)
    assert ours == spy.seen
    assert spy.seen


def access(model: nn.Module, batch: Tensor, operator: str) -> list[str]:
    return [op.access for op in capture(model, batch, training=False).ops if op.operator == operator]


class Views(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        transposed = x.mT.contiguous()
        return (x + transposed.mT) + x[..., ::2].repeat(1, 1, 2) + x * x.relu()


def test_transposed_and_gapped_tensors_are_strided_and_slices_of_rows_are_not() -> None:
    x = torch.empty(3, 4, 6)
    assert access(Views(), x, "aten.clone.default")[0] == "strided"
    assert access(Views(), x, "aten.add.Tensor")[0] == "strided"
    assert access(Views(), x, "aten.mul.Tensor") == ["dense"]

    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            left, right = x.chunk(2, dim=-1)
            return left * right

    assert access(Halves(), x, "aten.mul.Tensor") == ["dense"]


def test_a_transposed_factor_needs_no_copy_and_one_without_unit_stride_does() -> None:
    class Multiplies(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x.mT + x[:, ::2] @ x.mT[::2]

    assert access(Multiplies(), torch.empty(8, 6), "aten.mm.default") == ["dense", "strided"]
