"""Entries of normalizations."""

# ruff: noqa: D103 - a function without a docstring is the program of the torch function of its name

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.ops.entry import Captured, OpEntry, function, plain
from presilicon.ops.steps import Steps, affine, column

if TYPE_CHECKING:
    from torch import Tensor


def _centred(s: Steps, x: Tensor, dims: Sequence[int]) -> Tensor:
    first, second = s.fork(x)
    return s.sub(first, s.mean(second, dims))


def _normalized(s: Steps, x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(mean square + eps) over some axes, and the mean square."""
    first, second = s.fork(_centred(s, x, dims))
    spread = s.mean(s.square(second), dims)
    return s.over(first, s.root(s.add(spread, eps))), spread.detach()


def _rows(input: Tensor, normalized_shape: int | Sequence[int]) -> range:
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    return range(input.dim() - count, input.dim())


def layer_norm(
    s: Steps, input: Tensor, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    *_: Any,
) -> Tensor:  # fmt: skip
    return affine(s, _normalized(s, s.enter(input), _rows(input, normalized_shape), eps)[0], weight, bias)


def rms_norm(
    s: Steps, input: Tensor, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Tensor:
    dims = _rows(input, normalized_shape)
    first, second = s.fork(s.enter(input))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return affine(s, s.over(first, s.root(s.add(s.mean(s.square(second), dims), eps))), weight, None)


def group_norm(
    s: Steps, input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, _: Any = None
) -> Tensor:
    groups = s.enter(input).reshape(input.shape[0], num_groups, -1)
    out = _normalized(s, groups, [2], eps)[0].reshape(input.shape)
    return affine(s, out, column(weight, input), column(bias, input))


def batch_norm(
    s: Steps,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    """Over the batch in training, else by the running averages."""
    dims = [axis for axis in range(input.dim()) if axis != 1]
    if not training and (running_mean is None or running_var is None):
        return NotImplemented
    return _over(s, input, dims, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    s: Steps,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    """Over each sample alone, unless it is told to use the running averages."""
    dims = list(range(2, input.dim()))
    return _over(s, input, dims, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def _over(
    s: Steps, input: Tensor, dims: Sequence[int], running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None, bias: Tensor | None, fresh: bool, momentum: float | None, eps: float,
) -> Tensor:  # fmt: skip
    """Running averages are float32: they are no activations."""
    x, (scale, shift) = s.enter(input), (column(weight, input), column(bias, input))
    if not fresh and running_mean is not None and running_var is not None:
        centre, squares = column(running_mean, input), column(running_var, input)
        assert centre is not None
        assert squares is not None
        root = s.root(s.add(s.enter(squares), eps))
        return affine(s, s.over(s.sub(x, s.enter(centre)), root), scale, shift)
    first, second = s.fork(x)
    centre = s.mean(second, dims)
    out, again = s.fork(s.sub(first, centre))
    spread = s.mean(s.square(again), dims)
    if fresh and running_mean is not None and running_var is not None and momentum is not None:
        count = 1
        for axis in dims:
            count *= input.shape[axis]
        means, spreads = (part.detach().reshape(-1, input.shape[1]) for part in (centre, spread))
        means, spreads = (part[0] if len(part) == 1 else part.mean(0) for part in (means, spreads))
        running_mean.lerp_(means, momentum)
        running_var.lerp_(spreads * (count / max(count - 1, 1)), momentum)
    return affine(s, s.over(out, s.root(s.add(spread, eps))), scale, shift)


# Forward: add, centre, square, add, scale, gain, offset. Gradients: offset sum; normalise (2), multiply, gain sum; two
# subtractions, multiply, scale. A root mean square centres nothing and has no offset.
_FULL: dict[str, Any] = {"results": 7, "gradient": {"results": 9}, "inside": "rsqrt"}

_BATCH: dict[str, Any] = {"statistics": "batch", "style": "norm", "table_kind": "BatchNorm"}
_BATCH_GRADIENT: dict[str, Any] = {**_BATCH, "table_kind": "BatchNormGrad"}

ENTRIES: list[OpEntry] = [
    function(
        "layer_norm", "normalization", aten="native_layer_norm", backward="native_layer_norm_backward",
        program=layer_norm, signature="input normalized_shape weight=None bias=None eps=1e-05", inner="rsqrt",
        statistics="rows", last_axis=True, width="float32", **_FULL,
    ),
    function(
        "rms_norm", "normalization", aten="fused_rms_norm", backward="fused_rms_norm_backward", program=rms_norm,
        signature="input normalized_shape weight=None eps=None", inner="rsqrt", statistics="rows", last_axis=True,
        width="float32", measured_as="rms-norm.forward",
        **{**_FULL, "results": 4, "gradient": {"results": 6, "measured_as": "rms-norm.backward"}},
    ),
    function(
        "group_norm", "normalization", aten="native_group_norm", backward="native_group_norm_backward",
        program=group_norm, by_channel=True, signature="input num_groups weight=None bias=None eps=1e-05",
        inner="rsqrt",
        statistics="sample", style="samples", last_axis=True, width="float32", **_FULL,
    ),
    OpEntry(
        name="batch_norm",
        functions=("batch_norm",),
        forward=Captured(
            names=("native_batch_norm", "native_batch_norm_legit", "native_batch_norm_legit_no_training",
                   "native_batch_norm_legit_functional", "batch_norm_with_update", "batch_norm_with_update_functional",
                   "batch_norm_no_update", "batch_norm_impl_index", "batch_norm_stats", "batch_norm_elemt",
                   "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "batch_norm_update_stats",
                   "batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "quantized_batch_norm"),
            kind="normalization", results=7, inner="rsqrt", **_BATCH,
        ),
        backward=Captured(
            names=("native_batch_norm_backward", "batch_norm_backward", "cudnn_batch_norm_backward",
                   "miopen_batch_norm_backward", "batch_norm_impl_index_backward", "batch_norm_backward_elemt",
                   "batch_norm_backward_reduce"),
            kind="normalization", results=9, **_BATCH_GRADIENT,
        ),
        program=batch_norm,
        by_channel=True,
        inner="rsqrt",
        signature="input running_mean running_var weight=None bias=None training=False momentum=0.1 eps=1e-05",
        signature_of_torch="input weight bias running_mean running_var training momentum eps",
    ),
    function(
        "instance_norm", aten="", backward="", program=instance_norm, inside="rsqrt",
        signature_of_torch="input weight bias running_mean running_var use_input_stats momentum eps",
    ),
    function("local_response_norm", aten="", backward=""),
    *plain("normalization", "weight_norm_interface", results=7),
    *plain("normalization", "weight_norm_interface_backward", results=9, table_kind="LayerNormGrad"),
    *plain("normalization", "renorm", results=7, width="float32"),
]  # fmt: skip
