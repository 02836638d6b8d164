"""Matrix products and convolutions on tuned kernels: straight from the operands, or from packed panels.

A convolution is a product of its filters with patches of its input, its input gradient one of the transposed filters
with patches of the error, and its weight gradient one of the error with the patches. Patches are packed piece by piece,
so that no more than `PIECE_BYTES` of them exist at a time.
"""

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from presilicon.base import torch
from presilicon.scheduling.runtime.devices import DeviceTensor
from presilicon.scheduling.runtime.opencl.elementwise import copy

if TYPE_CHECKING:
    from presilicon.scheduling.runtime.opencl.device import OpenCLDevice
    from presilicon.scheduling.runtime.opencl.tuning import Config

PIECE_BYTES = 1 << 22
"""Size of a packed piece: about what a core's cache holds next to the panels of the other operand."""
REDUCTION = 4096
"""Longest reduction of one launch; longer ones add up several."""
FEWEST_FILTERS = 4
"""Filters per group below which a convolution is not packed: most of a register tile would be empty."""


class Matrix(NamedTuple):
    """A strided matrix (or a batch of them) in a tensor; steps of the reduction may come in runs."""

    tensor: DeviceTensor
    offset: int
    line: int
    """Distance of rows of the left operand, or of columns of the right one."""
    step: int
    batch: int = 0
    run: int = 1 << 30
    jump: int = 0


class Place(NamedTuple):
    """Where a result goes: rows `row` apart, columns in runs of `run` that are `jump` apart."""

    tensor: DeviceTensor
    offset: int
    row: int
    run: int
    jump: int = 0
    batch: int = 0
    start: int = 0


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


def _pack(dev: "OpenCLDevice", x: Matrix, lines: int, k: int, tile: int, batches: int = 1, first_step: int = 0) -> Any:
    panels = _ceil(lines, tile)
    packed = dev.board.allocate(4 * batches * panels * tile * k)
    dev.launch(
        "packing", "pack_matrix", (panels, batches), x.tensor._storage, packed, x.offset, x.batch, x.line, x.step,
        x.jump, x.run, first_step, lines, k, tile,
    )  # fmt: skip
    return packed


def _multiply_packed(
    dev: "OpenCLDevice", config: "Config", a: Any, b: Any, place: Place, sides: tuple[int, int, int],
    alpha: float = 1.0, beta: float = 0.0, batches: int = 1,
) -> None:  # fmt: skip
    m, n, k = sides
    tiles = _ceil(_ceil(m, config.rows), config.group) * _ceil(n, config.wide)
    dev.launch(
        "matmul", "matmul_packed", (min(config.units, tiles) * config.group, batches), a, b, place.tensor._storage,
        place.offset, place.row, place.jump, place.batch, place.run, place.start, m, n, k, alpha, beta,
        group=config.group, **config.defines,
    )  # fmt: skip


def multiply(
    dev: "OpenCLDevice", a: Matrix, b: Matrix, place: Place, sides: tuple[int, int, int], *,
    alpha: float = 1.0, beta: float = 0.0, batches: int = 1, config: "Config | None" = None,
) -> None:  # fmt: skip
    """result = alpha a b + beta result, for M, N and K in `sides`."""
    m, n, k = sides
    config = dev.tuned.choose("MatMul", m * n * k) if config is None else config
    if config.direct:
        tiles = _ceil(m, config.rows) * _ceil(n, config.wide)
        items = min(config.units, _ceil(tiles, config.group)) * config.group
        dev.launch(
            "matmul", "matmul_direct", (items, batches), a.tensor._storage, b.tensor._storage, place.tensor._storage,
            place.offset, place.row, place.jump, place.batch, place.run, place.start, m, n, k, alpha, beta,
            a.offset, a.batch, a.line, a.step, b.offset, b.batch, b.step, b.line, group=config.group, **config.defines,
        )  # fmt: skip
        return
    for start in range(0, k, REDUCTION):
        part = min(REDUCTION, k - start)
        left = _pack(dev, a, m, part, config.rows, batches, start)
        right = _pack(dev, b, n, part, config.wide, batches, start)
        _multiply_packed(dev, config, left, right, place, (m, n, part), alpha, beta if start == 0 else 1.0, batches)


def matmul(
    dev: "OpenCLDevice", a: DeviceTensor, b: DeviceTensor, out: DeviceTensor | None = None, **options: Any
) -> DeviceTensor:
    """Product of two matrices or batches of them, of any strides."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batches = a.shape[0] if a.ndim == 3 else 1
    out = dev.empty((*a.shape[:-2], m, n)) if out is None else out
    first, second = (t.strides[0] if t.ndim == 3 else 0 for t in (a, b))
    left = Matrix(a, a.offset, a.strides[-2], a.strides[-1], first, jump=0)
    right = Matrix(b, b.offset, b.strides[-1], b.strides[-2], second)
    multiply(dev, left, right, Place(out, out.offset, n, n, 0, m * n), (m, n, k), batches=batches, **options)
    return out


def _matmul_op(dev: "OpenCLDevice", out: None, a: DeviceTensor, b: DeviceTensor) -> DeviceTensor:
    return matmul(dev, a, b)


def _add_product(
    dev: "OpenCLDevice", out: DeviceTensor | None, c: DeviceTensor, a: DeviceTensor, b: DeviceTensor, *,
    beta: float = 1, alpha: float = 1,
) -> DeviceTensor:  # fmt: skip
    result = dev.empty((*a.shape[:-1], b.shape[-1]))
    if beta:
        copy(dev, c, result)
    matmul(dev, a, b, result, alpha=alpha, beta=beta)
    return result if out is None else copy(dev, result, out)


class Geometry(NamedTuple):
    """Sides of a convolution."""

    images: int
    channels: int
    height: int
    width: int
    filters: int
    rows: int
    columns: int
    taps_h: int
    taps_w: int
    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    dilation_h: int
    dilation_w: int
    groups: int

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.images * self.filters * self.rows * self.columns * self.depth * self.taps_h * self.taps_w

    @property
    def depth(self) -> int:
        """Channels per group."""
        return self.channels // self.groups

    @property
    def forward(self) -> tuple[int, ...]:
        """Geometry of patches of the input, as packing.cl wants it."""
        return (
            self.depth, self.height, self.width, self.rows, self.columns, self.taps_h, self.taps_w, self.stride_h,
            self.stride_w, 1, 1, -self.pad_h, -self.pad_w, self.dilation_h, self.dilation_w,
        )  # fmt: skip

    @property
    def backward(self) -> tuple[int, ...]:
        """Geometry of patches of the error, seen from the input."""
        return (
            self.filters // self.groups, self.rows, self.columns, self.height, self.width, self.taps_h, self.taps_w,
            1, 1, self.stride_h, self.stride_w, self.pad_h, self.pad_w, -self.dilation_h, -self.dilation_w,
        )  # fmt: skip


def geometry_of(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Geometry:
    """The sides of a convolution of shapes `x` and `w`; strides and the like may be one number for both sides."""
    sides = []
    for axis in range(2):
        pad, dilated, step = padding[axis % len(padding)], dilation[axis % len(dilation)], stride[axis % len(stride)]
        sides.append((x[2 + axis] + 2 * pad - dilated * (w[2 + axis] - 1) - 1) // step + 1)
    pairs = [values[axis % len(values)] for values in (stride, padding, dilation) for axis in range(2)]
    return Geometry._make((*x, w[0], *sides, w[2], w[3], *pairs, groups))


def _pieces(total: int, k: int) -> range:
    step = max(64, PIECE_BYTES // (4 * k) // 64 * 64)
    return range(0, total, step)


def convolve(dev: "OpenCLDevice", x: DeviceTensor, w: DeviceTensor, g: Geometry, config: Any = None) -> DeviceTensor:
    """Forward convolution."""
    y = dev.empty((g.images, g.filters, g.rows, g.columns))
    config = dev.tuned.choose("Conv2D", g.work) if config is None else config
    per_group = g.filters // g.groups
    if config.direct or per_group < FEWEST_FILTERS:
        dev.launch("conv2d", "conv2d", g.images * g.filters * g.rows, x._storage, w._storage, y._storage,
                   x.offset, w.offset, 0, *g, group=config.group, GROUP=config.group)  # fmt: skip
        return y
    k, area = g.depth * g.taps_h * g.taps_w, g.rows * g.columns
    for group in range(g.groups):
        filters = Matrix(w, w.offset + group * per_group * k, k, 1)
        place = Place(y, group * per_group * area, area, area, g.filters * area)
        source = x.offset + group * g.depth * g.height * g.width
        _patch_product(dev, config, filters, (per_group, k), (x, source, g.channels * g.height * g.width), g.forward,
                       g.images * area, place)  # fmt: skip
    return y


def _patch_product(
    dev: "OpenCLDevice", config: "Config", a: Matrix, sides: tuple[int, int], source: tuple[DeviceTensor, int, int],
    geometry: tuple[int, ...], positions: int, place: Place,
) -> None:  # fmt: skip
    """Product of a matrix with patches, piece by piece over their positions."""
    (m, k), (tensor, offset, image) = sides, source
    left = _pack(dev, a, m, k, config.rows)
    steps = _pieces(positions, k)
    for start in steps:
        count = min(steps.step, positions - start)
        panels = _ceil(count, config.wide)
        right = dev.board.allocate(4 * panels * config.wide * k)
        dev.launch("packing", "pack_patches", panels, tensor._storage, right, offset, image, *geometry, start, count,
                   config.wide)  # fmt: skip
        _multiply_packed(dev, config, left, right, place._replace(start=start), (m, count, k))


def convolve_input(
    dev: "OpenCLDevice", dy: DeviceTensor, w: DeviceTensor, g: Geometry, config: Any = None
) -> DeviceTensor:
    """Gradient of a convolution's input."""
    dx = dev.empty((g.images, g.channels, g.height, g.width))
    config = dev.tuned.choose("Conv2DBackpropInput", g.work) if config is None else config
    if config.direct or g.depth < FEWEST_FILTERS:
        dev.launch("conv2d", "conv2d_input", g.images * g.channels * g.height, dy._storage, w._storage, dx._storage,
                   dy.offset, w.offset, 0, *g, group=config.group, GROUP=config.group)  # fmt: skip
        return dx
    taps, area, per_group = g.taps_h * g.taps_w, g.height * g.width, g.filters // g.groups
    for group in range(g.groups):
        filters = Matrix(w, w.offset + group * per_group * g.depth * taps, taps, 1, 0, taps, g.depth * taps)
        place = Place(dx, group * g.depth * area, area, area, g.channels * area)
        source = dy.offset + group * per_group * g.rows * g.columns
        _patch_product(dev, config, filters, (g.depth, per_group * taps), (dy, source, g.filters * g.rows * g.columns),
                       g.backward, g.images * area, place)  # fmt: skip
    return dx


def convolve_weight(
    dev: "OpenCLDevice", dy: DeviceTensor, x: DeviceTensor, g: Geometry, config: Any = None
) -> DeviceTensor:
    """Gradient of a convolution's filters."""
    dw = dev.empty((g.filters, g.depth, g.taps_h, g.taps_w))
    config = dev.tuned.choose("Conv2DBackpropFilter", g.work) if config is None else config
    per_group, n, area = g.filters // g.groups, g.depth * g.taps_h * g.taps_w, g.rows * g.columns
    if config.direct or per_group < FEWEST_FILTERS:
        dev.launch("conv2d", "conv2d_weight", g.filters * n, x._storage, dy._storage, dw._storage, x.offset, dy.offset,
                   0, *g, group=config.group, GROUP=config.group)  # fmt: skip
        return dw
    positions = g.images * area
    steps = range(0, positions, min(REDUCTION, _pieces(positions, n).step))
    for group in range(g.groups):
        errors = Matrix(dy, dy.offset + group * per_group * area, area, 1, 0, area, g.filters * area)
        place = Place(dw, group * per_group * n, n, n)
        source = x.offset + group * g.depth * g.height * g.width
        for start in steps:
            count = min(steps.step, positions - start)
            left = _pack(dev, errors, per_group, count, config.rows, first_step=start)
            panels = _ceil(n, config.wide)
            right = dev.board.allocate(4 * panels * config.wide * count)
            dev.launch("packing", "pack_taps", panels, x._storage, right, source, g.channels * g.height * g.width,
                       *g.forward, start, count, config.wide)  # fmt: skip
            _multiply_packed(dev, config, left, right, place, (per_group, n, count), 1.0, 1.0 if start else 0.0)
    return dw


def _convolution(
    dev: "OpenCLDevice", out: None, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> DeviceTensor:
    y = convolve(
        dev, dev.contiguous(x), dev.contiguous(w), geometry_of(x.shape, w.shape, stride, padding, dilation, rest[2])
    )
    if bias is not None:
        from presilicon.scheduling.runtime.opencl.elementwise import apply

        apply(dev, "add", y, (y, bias.view((bias.shape[0], 1, 1), (bias.strides[0], 0, 0), bias.offset)), 1.0)
    return y


def _convolution_backward(
    dev: "OpenCLDevice", out: None, dy: Any, x: Any, w: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    *rest: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    from presilicon.scheduling.runtime.opencl.layers import sum_over

    groups, mask = rest[2], rest[3]
    g = geometry_of(x.shape, w.shape, stride, padding, dilation, groups)
    dy = dev.contiguous(dy)
    dx = convolve_input(dev, dy, dev.contiguous(w), g) if mask[0] else None
    dw = convolve_weight(dev, dy, dev.contiguous(x), g) if mask[1] else None
    return dx, dw, sum_over(dev, dy, (0, 2, 3)) if mask[2] else None


def _is_conv2d(x: Any, w: Any, transposed: Any) -> bool:
    return len(x.shape) == len(w.shape) == 4 and not transposed and x.dtype == w.dtype == torch.float32


def _floats(*tensors: Any, **kwargs: Any) -> bool:
    return all(tensor.dtype == torch.float32 for tensor in tensors) and prod(tensors[-1].shape) > 0


OPS: dict[str, Any] = {
    "mm": (_matmul_op, _floats),
    "bmm": (_matmul_op, _floats),
    "addmm": (_add_product, _floats),
    "baddbmm": (_add_product, _floats),
    "convolution": (_convolution, lambda x, w, *rest: _is_conv2d(x, w, rest[4])),
    "convolution_backward": (_convolution_backward, lambda dy, x, w, *rest: _is_conv2d(x, w, rest[4])),
}
