"""Entries of pooling and interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.ops.entry import FlopRule, OpEntry, Shapes, function, plain
from presilicon.ops.steps import Steps

if TYPE_CHECKING:
    from torch import Tensor


def _windows(s: Steps, input: Tensor, kernel: Any, stride: Any, padding: Any, spatial: int, fill: float) -> Tensor:
    """The windows of each output as the last axis."""
    kernel, stride, padding = (
        (value,) * spatial if isinstance(value, int) else tuple(value) * (spatial // len(value))
        for value in (kernel, stride or kernel, padding)
    )
    x = torch.nn.functional.pad(input, [side for size in reversed(padding) for side in (size, size)], value=fill)
    first = x.dim() - spatial
    for axis in range(spatial):
        x = x.unfold(first + axis, kernel[axis], stride[axis])
    return s.enter(x.flatten(first + spatial))


def _max_pool(spatial: int) -> Callable[..., Any]:
    def max_pool(
        s: Steps, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        if ceil_mode or return_indices or dilation not in (1, (1,) * spatial, [1] * spatial):
            return NotImplemented
        windows = _windows(s, input, kernel_size, stride, padding, spatial, -math.inf)
        return s.extreme("maximum", windows, [-1])[0].squeeze(-1)

    return max_pool


def _avg_pool(spatial: int) -> Callable[..., Any]:
    def avg_pool(
        s: Steps, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        if ceil_mode or divisor_override is not None or (padding not in (0, (0,) * spatial) and not count_include_pad):
            return NotImplemented
        return s.mean(_windows(s, input, kernel_size, stride, padding, spatial, 0.0), [-1]).squeeze(-1)

    return avg_pool


def _adaptive(spatial: int, reduce: str) -> Callable[..., Any]:
    def adaptive(s: Steps, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        sizes = input.shape[input.dim() - spatial :]
        wanted = (output_size,) * spatial if isinstance(output_size, int) else tuple(output_size)
        wanted = tuple(size if want is None else want for size, want in zip(sizes, wanted, strict=True))
        if return_indices or any(size % want for size, want in zip(sizes, wanted, strict=True)):
            return NotImplemented
        kernel = [size // want for size, want in zip(sizes, wanted, strict=True)]
        windows = _windows(s, input, kernel, kernel, 0, spatial, 0.0)
        return (s.mean(windows, [-1]) if reduce == "mean" else s.extreme("maximum", windows, [-1])[0]).squeeze(-1)

    return adaptive


def _results_per_window(spatial: int) -> FlopRule:
    """A result for each element of each output's window."""

    def count(inputs: Shapes, outputs: Shapes, args: Sequence[Any]) -> int:
        return max(map(math.prod, outputs), default=0) * _elements(args[1], spatial)

    return count


def _errors_per_window(spatial: int) -> FlopRule:
    """Every error is added to the whole window."""

    def count(inputs: Shapes, outputs: Shapes, args: Sequence[Any]) -> int:
        return math.prod(inputs[0]) * _elements(args[2], spatial)

    return count


def _elements(kernel: list[int], spatial: int) -> int:
    """Elements under a pooling kernel, whose sides may be given as one."""
    return math.prod(kernel if len(kernel) > 1 else kernel * spatial)


_SIGNATURE = "input kernel_size stride=None padding=0"
_MAXIMUM = f"{_SIGNATURE} dilation=1 ceil_mode=False return_indices=False"
_MEAN = f"{_SIGNATURE} ceil_mode=False count_include_pad=True divisor_override=None"
_MAX: dict[str, Any] = {"table_kind": "MaxPool"}
_MAX_GRADIENT: dict[str, Any] = {"table_kind": "MaxPoolGrad"}


def _pools(spatial: int) -> list[OpEntry]:
    captured = spatial > 1  # torch makes one dimension two
    with_indices = f"max_pool{spatial}d_with_indices"
    return [
        function(
            f"max_pool{spatial}d", "pooling", aten=with_indices if captured else "",
            backward=f"{with_indices}_backward" if captured else "", program=_max_pool(spatial), signature=_MAXIMUM,
            flops=_results_per_window(spatial), gradient={**_MAX_GRADIENT, "scatters": True}, **_MAX,
        ),
        function(
            f"avg_pool{spatial}d", "pooling", aten=None if captured else "", backward=None if captured else "",
            program=_avg_pool(spatial), signature=_MEAN, flops=_results_per_window(spatial),
            gradient={"flops": _errors_per_window(spatial)},
        ),
        function(
            f"adaptive_avg_pool{spatial}d", "pooling", aten=None if captured else "",
            backward=None if captured else "", program=_adaptive(spatial, "mean"),
        ),
        function(
            f"adaptive_max_pool{spatial}d", "pooling", aten=None if captured else "",
            backward=None if captured else "", program=_adaptive(spatial, "max"), gradient=_MAX_GRADIENT, **_MAX,
        ),
        *(
            function(name, aten="", backward="")
            for name in (with_indices, f"adaptive_max_pool{spatial}d_with_indices", f"lp_pool{spatial}d")
        ),
    ]  # fmt: skip


ENTRIES: list[OpEntry] = [
    *(entry for spatial in (1, 2, 3) for entry in _pools(spatial)),
    *plain("pooling", "fractional_max_pool2d fractional_max_pool3d", **_MAX),
    *plain("pooling", "fractional_max_pool2d_backward fractional_max_pool3d_backward", **_MAX_GRADIENT),
    *plain("pooling", "max_unpool2d max_unpool3d"),
    *(function(name, aten="", backward="") for name in ("interpolate", "grid_sample", "fold")),
    *plain("other", """
        upsample_nearest1d upsample_nearest_exact1d upsample_nearest2d upsample_nearest_exact2d upsample_nearest3d
        upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_bilinear2d_aa upsample_trilinear3d
        upsample_bicubic2d upsample_bicubic2d_aa""", width="float32"),
    *plain("other", "grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward",
           multiplies=False),
]  # fmt: skip
