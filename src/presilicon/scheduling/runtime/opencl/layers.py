"""Reductions, softmax, losses, normalizations, pooling and embeddings as aten ops."""

from math import prod
from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.scheduling.runtime.devices import DeviceTensor
from presilicon.scheduling.runtime.opencl.elementwise import apply, cast, fill, is_float, like

if TYPE_CHECKING:
    from presilicon.scheduling.runtime.opencl.device import OpenCLDevice

Tensors = tuple[DeviceTensor | None, ...]


def sum_over(
    dev: "OpenCLDevice", x: DeviceTensor, dims: Any = None, keepdim: bool = False, scale: float = 1.0
) -> DeviceTensor:
    """Sum over dimensions (all of them by default), times a factor."""
    x = dev.contiguous(x)
    rank = x.ndim
    axes = {axis % rank for axis in dims} if dims else set(range(rank))
    shape = tuple(1 if axis in axes else side for axis, side in enumerate(x.shape) if keepdim or axis not in axes)
    out = dev.empty(shape)
    blocks: list[tuple[bool, int]] = []  # runs of dimensions that are summed, or kept, alternately
    for axis, side in enumerate(x.shape):
        if side == 1:
            continue
        if blocks and blocks[-1][0] == (axis in axes):
            blocks[-1] = (blocks[-1][0], blocks[-1][1] * side)
        else:
            blocks.append((axis in axes, side))
    if len(blocks) + bool(blocks and blocks[0][0]) > 4:  # take the outermost summed dimension first
        outer = min(axis for axis in axes if x.shape[axis] > 1)
        return sum_over(dev, sum_over(dev, x, (outer,), True), tuple(axes), keepdim, scale)
    _sum_blocks(dev, x, out, blocks, scale)
    return out


def _sum_blocks(
    dev: "OpenCLDevice", x: DeviceTensor, out: DeviceTensor, blocks: list[tuple[bool, int]], scale: float
) -> None:
    """Bring blocks to [kept, summed, kept, summed] and choose a kernel."""
    sides = [1, 1, 1, 1]
    at = 0
    for summed, side in blocks:
        while (at % 2 == 1) != summed:
            at += 1
        sides[at] = side
        at += 1
    first, planes, second, length = sides
    if second == 1:
        planes, length = 1, planes * length
    count = planes * length
    if first * second == 1 and count > 1 << 16 and planes == 1:  # one long sum: partial ones side by side
        parts = 64
        while count % parts:
            parts //= 2
        if parts > 1:
            partial = dev.empty((parts,))
            _sum_blocks(dev, x, partial, [(False, parts), (True, count // parts)], 1.0)
            _sum_blocks(dev, partial, out, [(True, parts)], scale)
            return
    if length == 1 and second > 1:
        dev.launch("reductions", "sum_columns", first * -(-second // 16), x, out, first, planes, second, scale)
    else:
        dev.launch("reductions", "sum_planes", first * second, x, out, first * second, second,
                   planes * second * length, length, planes, second * length, length, scale)  # fmt: skip


def _sum(dev: "OpenCLDevice", out: None, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return sum_over(dev, cast(dev, x, torch.float32), dims, keepdim)


def _mean(dev: "OpenCLDevice", out: None, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    count = prod(x.shape[axis] for axis in dims) if dims else x.numel()
    return sum_over(dev, x, dims, keepdim, 1.0 / count)


def _mse(dev: "OpenCLDevice", out: None, a: Any, b: Any, reduction: int = 1) -> DeviceTensor:
    difference = apply(dev, "sub", like(dev, a), (a, b), 1.0)
    square = apply(dev, "mul", difference, (difference, difference))
    return square if reduction == 0 else sum_over(dev, square, None, False, 1.0 / a.numel() if reduction == 1 else 1.0)


def _softmax(is_log: int) -> Any:
    def run(dev: "OpenCLDevice", out: None, x: DeviceTensor, dim: int, half: bool) -> DeviceTensor:
        x = dev.contiguous(x)
        y = dev.empty(x.shape)
        length, step = (x.shape[dim], prod(x.shape[dim % x.ndim + 1 :])) if x.ndim else (1, 1)
        dev.launch("reductions", "softmax", x.numel() // length, x, y, x.numel() // length, length, step, is_log)
        return y

    return run


def _softmax_backward(is_log: int) -> Any:
    def run(dev: "OpenCLDevice", out: None, dy: Any, y: Any, dim: int, dtype: Any) -> DeviceTensor:
        dy, y = dev.contiguous(dy), dev.contiguous(y)
        dx = dev.empty(y.shape)
        length, step = (y.shape[dim], prod(y.shape[dim % y.ndim + 1 :])) if y.ndim else (1, 1)
        rows = y.numel() // length
        dev.launch("reductions", "softmax_backward", rows, dy, y, dx, rows, length, step, is_log)
        return dx

    return run


def _check_range(dev: "OpenCLDevice", indices: DeviceTensor, count: int, what: str, ignored: int | None = None) -> None:
    """Refuse indices outside of what they index, as torch does; it waits for them.

    Raises:
        IndexError: one is outside.
    """
    found = dev.get(indices)
    beyond = (found < 0) | (found >= count)
    if ignored is not None:
        beyond &= found != ignored
    if bool(beyond.any()):
        raise IndexError(f"{what} {int(found[beyond][0])} is out of bounds: there are {count}")


def _nll(dev: "OpenCLDevice", out: None, x: Any, target: Any, weight: None, reduction: int, ignored: int) -> Tensors:
    x, target = dev.contiguous(x), dev.contiguous(target)
    rows, classes = (1, *x.shape)[-2:]
    _check_range(dev, target, classes, "target", ignored)
    loss = dev.empty(target.shape if reduction == 0 else ())
    total = dev.empty(())
    dev.launch("reductions", "nll", 1, x, target, loss._storage, total._storage, rows, classes, ignored, reduction)
    return loss, total


def _nll_backward(
    dev: "OpenCLDevice", out: None, dy: Any, x: Any, target: Any, weight: None, reduction: int, ignored: int, total: Any
) -> DeviceTensor:
    dx = dev.empty(x.shape)
    rows, classes = (1, *x.shape)[-2:]
    _check_range(dev, dev.contiguous(target), classes, "target", ignored)
    dev.launch("reductions", "nll_backward", rows, dev.contiguous(dy), dev.contiguous(target), total, dx._storage, rows,
               classes, ignored, reduction)  # fmt: skip
    return dx


def _dense(dev: "OpenCLDevice", tensor: DeviceTensor | None) -> DeviceTensor | None:
    return None if tensor is None else dev.contiguous(tensor)


def _layer_norm(dev: "OpenCLDevice", out: None, x: Any, shape: Any, gain: Any, bias: Any, eps: float) -> Tensors:
    x, gain, bias = dev.contiguous(x), _dense(dev, gain), _dense(dev, bias)
    length = prod(shape)
    rows = x.numel() // length
    kept = (*x.shape[: x.ndim - len(shape)], *(1 for _ in shape))
    y, mean, rstd = dev.empty(x.shape), dev.empty(kept), dev.empty(kept)
    dev.launch("reductions", "layer_norm", rows, x, x if gain is None else gain, x if bias is None else bias,
               y._storage, mean._storage, rstd._storage, rows, length, eps, gain is not None,
               bias is not None)  # fmt: skip
    return y, mean, rstd


def _layer_norm_backward(
    dev: "OpenCLDevice", out: None, dy: Any, x: Any, shape: Any, mean: Any, rstd: Any, gain: Any, bias: Any, mask: Any
) -> Tensors:
    dy, x, gain = dev.contiguous(dy), dev.contiguous(x), _dense(dev, gain)
    length = prod(shape)
    rows = x.numel() // length
    dx = dgain = dbias = None
    if mask[0]:
        dx = dev.empty(x.shape)
        dev.launch("reductions", "layer_norm_input", rows, dy, x, mean, rstd, x if gain is None else gain, dx._storage,
                   rows, length, gain is not None)  # fmt: skip
    if mask[1] or mask[2]:
        dgain, dbias = dev.empty(tuple(shape)), dev.empty(tuple(shape))
        dev.launch("reductions", "layer_norm_weights", -(-length // 16), dy, x, mean, rstd, dgain._storage,
                   dbias._storage, rows, length)  # fmt: skip
    return dx, dgain if mask[1] else None, dbias if mask[2] else None


def _planes(x: Any) -> tuple[int, int, int]:
    return x.shape[0], x.shape[1], prod(x.shape[2:])


def _batch_norm(
    dev: "OpenCLDevice", out: None, x: Any, gain: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
    momentum: float, eps: float,
) -> Tensors:  # fmt: skip
    x, gain, bias = dev.contiguous(x), _dense(dev, gain), _dense(dev, bias)
    y, channels = dev.empty(x.shape), x.shape[1]
    mean, rstd = (dev.empty((channels if training else 0,)) for _ in range(2))
    if training:
        tracked = running_mean is not None
        dev.launch("reductions", "batch_statistics", channels, x, mean._storage, rstd._storage,
                   running_mean if tracked else x, running_var if tracked else x, *_planes(x), momentum, eps,
                   tracked)  # fmt: skip
    used = (mean, rstd) if training else (running_mean, running_var)
    dev.launch("reductions", "batch_norm", x.shape[0] * channels, x, *used, x if gain is None else gain,
               x if bias is None else bias, y._storage, *_planes(x), eps, training, gain is not None,
               bias is not None)  # fmt: skip
    return y, mean, rstd


def _batch_norm_backward(
    dev: "OpenCLDevice", out: None, dy: Any, x: Any, gain: Any, running_mean: Any, running_var: Any, mean: Any,
    rstd: Any, training: bool, eps: float, mask: Any,
) -> Tensors:  # fmt: skip
    dy, x, gain = dev.contiguous(dy), dev.contiguous(x), _dense(dev, gain)
    used = (mean, rstd) if training else (running_mean, running_var)
    dgain, dbias = dev.empty((x.shape[1],)), dev.empty((x.shape[1],))
    dx = dev.empty(x.shape) if mask[0] else None
    dev.launch("reductions", "batch_norm_sums", x.shape[1], dy, x, *used, dgain._storage, dbias._storage, *_planes(x),
               eps, training)  # fmt: skip
    if dx is not None:
        dev.launch("reductions", "batch_norm_input", x.shape[0] * x.shape[1], dy, x, *used, x if gain is None else gain,
                   dgain._storage, dbias._storage, dx._storage, *_planes(x), eps, training, gain is not None,
                   training)  # fmt: skip
    return dx, dgain if mask[1] else None, dbias if mask[2] else None


def _window(x: Any, rows: int, columns: int, *pairs: Any) -> tuple[int, ...]:
    sides = [values[axis % len(values)] for values in pairs for axis in range(2)]
    return (prod(x.shape[:-2]), *x.shape[-2:], rows, columns, *sides)


def _pooled(side: int, window: list[int], ceil: bool) -> int:
    taps, stride, pad, dilation = window
    reach = side + 2 * pad - dilation * (taps - 1) - 1
    results = (-(-reach // stride) if ceil else reach // stride) + 1
    return results - 1 if ceil and (results - 1) * stride >= side + pad else results


def _pool_sides(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> tuple[int, int]:
    rows, columns = (
        _pooled(x.shape[axis - 2], [values[axis % len(values)] for values in (kernel, stride, padding, dilation)], ceil)
        for axis in range(2)
    )
    return rows, columns


def _max_pool(
    dev: "OpenCLDevice", out: None, x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
    ceil: bool = False,
) -> Tensors:  # fmt: skip
    x, stride = dev.contiguous(x), stride or kernel
    sides = _pool_sides(x, kernel, stride, padding, dilation, ceil)
    y, indices = dev.empty((*x.shape[:-2], *sides)), dev.empty((*x.shape[:-2], *sides), torch.int64)
    window = _window(x, *sides, kernel, stride, padding, dilation)
    dev.launch("pooling", "max_pool", window[0], x, y._storage, indices._storage, *window)
    return y, indices


def _max_pool_backward(dev: "OpenCLDevice", out: None, dy: Any, x: Any, *rest: Any) -> DeviceTensor:
    dy, indices, dx = dev.contiguous(dy), dev.contiguous(rest[-1]), dev.empty(x.shape)
    planes = prod(x.shape[:-2])
    dev.launch("pooling", "max_pool_backward", planes, dy, indices, dx._storage, planes, prod(x.shape[-2:]),
               prod(dy.shape[-2:]))  # fmt: skip
    return dx


def _avg_pool(
    dev: "OpenCLDevice", out: None, x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), ceil: bool = False,
    padded: bool = True, divisor: int | None = None,
) -> DeviceTensor:  # fmt: skip
    x, stride = dev.contiguous(x), stride or kernel
    sides = _pool_sides(x, kernel, stride, padding, (1,), ceil)
    y, window = dev.empty((*x.shape[:-2], *sides)), _window(x, *sides, kernel, stride, padding, (1,))
    dev.launch("pooling", "avg_pool", window[0], x, y._storage, *window, 0, padded, divisor or 0)
    return y


def _avg_pool_backward(
    dev: "OpenCLDevice", out: None, dy: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, padded: bool,
    divisor: int | None,
) -> DeviceTensor:  # fmt: skip
    dy, dx = dev.contiguous(dy), dev.empty(x.shape)
    window = _window(x, *dy.shape[-2:], kernel, stride or kernel, padding, (1,))
    dev.launch("pooling", "avg_pool_backward", window[0], dy, dx._storage, *window, 0, padded, divisor or 0)
    return dx


def _adaptive_pool(dev: "OpenCLDevice", out: None, x: Any, sides: Any) -> DeviceTensor:
    x = dev.contiguous(x)
    y, window = dev.empty((*x.shape[:-2], *sides)), _window(x, *sides, (1,), (1,), (0,), (1,))
    dev.launch("pooling", "avg_pool", window[0], x, y._storage, *window, 1, 0, 0)
    return y


def _adaptive_pool_backward(dev: "OpenCLDevice", out: None, dy: Any, x: Any) -> DeviceTensor:
    dy, dx = dev.contiguous(dy), dev.empty(x.shape)
    window = _window(x, *dy.shape[-2:], (1,), (1,), (0,), (1,))
    dev.launch("pooling", "avg_pool_backward", window[0], dy, dx._storage, *window, 1, 0, 0)
    return dx


def _embedding(
    dev: "OpenCLDevice",
    out: None,
    table: Any,
    indices: Any,
    padding: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> DeviceTensor:
    table, indices = dev.contiguous(table), dev.contiguous(indices)
    width = table.shape[1]
    _check_range(dev, indices, table.shape[0], "index")
    y = dev.empty((*indices.shape, width))
    dev.launch("pooling", "embedding", indices.numel(), table, indices, y._storage, indices.numel(), width)
    return y


def _embedding_backward(
    dev: "OpenCLDevice", out: None, dy: Any, indices: Any, count: int, padding: int, by_frequency: bool
) -> DeviceTensor:
    dy, indices = dev.contiguous(dy), dev.contiguous(indices)
    width = dy.shape[-1]
    _check_range(dev, indices, count, "index")
    table = fill(dev, dev.empty((count, width)), 0)
    dev.launch(
        "pooling", "embedding_backward", -(-width // 16), dy, indices, table._storage, indices.numel(), width, padding
    )
    return table


def _unweighted(at: int, rank: int) -> Any:
    """For losses: no class weights, and a plain list of rows."""
    return lambda *args: args[at] is None and len(args[rank].shape) <= 2


def _frozen_or_training(*args: Any, **kwargs: Any) -> bool:
    return args[0].dtype == torch.float32 and len(args[0].shape) >= 2


OPS: dict[str, Any] = {
    "sum": (_sum, lambda x, *rest, dtype=None: dtype in (None, torch.float32) and x.dtype != torch.int64 and (
        x.dtype == torch.float32 or dtype == torch.float32)),
    "mean": (_mean, is_float),
    "mse_loss": (_mse, lambda a, b, reduction=1: a.shape == b.shape),
    "_softmax": (_softmax(0), is_float),
    "_log_softmax": (_softmax(1), is_float),
    "_softmax_backward_data": (_softmax_backward(0), is_float),
    "_log_softmax_backward_data": (_softmax_backward(1), is_float),
    "nll_loss_forward": (_nll, _unweighted(2, 0)),
    "nll_loss_backward": (_nll_backward, _unweighted(3, 1)),
    "native_layer_norm": (_layer_norm, is_float),
    "native_layer_norm_backward": (_layer_norm_backward, is_float),
    "native_batch_norm": (_batch_norm, _frozen_or_training),
    "_native_batch_norm_legit": (
        lambda dev, out, x, gain, bias, *rest: _batch_norm(
            dev, out, x, gain, bias, *(rest if len(rest) == 5 else (None, None, *rest))), _frozen_or_training),
    "_native_batch_norm_legit_no_training": (
        lambda dev, out, x, gain, bias, mean, var, *rest: _batch_norm(dev, out, x, gain, bias, mean, var, False, *rest),
        _frozen_or_training),
    "native_batch_norm_backward": (_batch_norm_backward, _frozen_or_training),
    "max_pool2d_with_indices": (_max_pool, is_float),
    "max_pool2d_with_indices_backward": (_max_pool_backward, is_float),
    "avg_pool2d": (_avg_pool, is_float),
    "avg_pool2d_backward": (_avg_pool_backward, is_float),
    "_adaptive_avg_pool2d": (_adaptive_pool, is_float),
    "_adaptive_avg_pool2d_backward": (_adaptive_pool_backward, is_float),
    "embedding": (_embedding, lambda table, indices, *rest: indices.dtype == torch.int64),
    "embedding_dense_backward": (_embedding_backward, lambda *args: not args[4]),
}  # fmt: skip
WHOLE = {
    "nll_loss_forward": 1, "nll_loss_backward": 2, "embedding": 1, "embedding_dense_backward": 1,
    "max_pool2d_with_indices_backward": 7,
}  # fmt: skip
"""Positions of operands that are whole numbers."""
