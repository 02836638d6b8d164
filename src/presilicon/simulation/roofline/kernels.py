"""Kernels that a framework launches for the ops of a step, with the work of each."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from msgspec import Struct, structs

from presilicon.designs import Numerics, StepFormats
from presilicon.records import Convolution, Gemm, Op, OpKind, TensorRef
from presilicon.simulation.roofline.attention import NO_ATTENTION, FusedAttention, find_attention
from presilicon.simulation.roofline.machine import MatrixRate, RooflineMachine
from presilicon.simulation.roofline.recurrence import find_recurrence
from presilicon.simulation.roofline.widths import Layout, lay_out_tensors

_SPLIT = 512
"""The shortest part of a reduction that is given a core of its own."""
_SMALL_TILE = 0.6
"""Fraction of a core's rate when it computes tiles of half the side."""
_RECOMPUTED = 1.25
"""Products in the backward pass of fused attention, which recomputes the scores, over those in the captured step."""
_SKIPPED = 0.5
"""Fraction of the scores that a triangular mask leaves."""


_LAYER_NORMS = ("aten.native_layer_norm", "aten.native_group_norm", "aten._fused_rms_norm")
"""Normalizations per example, which run other kernels than those over a batch."""


_BY_ROWS = (*_LAYER_NORMS, "aten._softmax", "aten._log_softmax")
"""Operators that copy an input whose last dimension is not innermost."""


class Extra(NamedTuple):
    """A small kernel that accompanies another one."""

    name: str
    """Its class: `cast`, `bias`, `copy` or `relayout`."""
    size_bytes: float
    narrow: bool


class Kernel(Struct, frozen=True, kw_only=True):
    """The work of one op: seconds at full rates, before the fractions that its class reaches."""

    op: Op
    name: str
    """Its class, as in `RooflineMachine.classes`; or `attention`."""
    format: str = ""
    """Format of the matrix unit that it runs on; empty for none."""
    product_s: float = 0.0
    """Seconds on the matrix unit at its peak rate, in whole tiles and waves."""
    unaligned: int = 0
    """Alignment level of the operands' rows: 0 aligned, 1 or 2 not, each of which cuts the rate."""
    winograd: int = 0
    """The side of a square kernel with stride 1, for which Winograd's or Fourier's algorithm needs fewer
    multiplications; 0 for any other."""
    fill: float = 1.0
    """Share of the cores that it keeps busy."""
    flops: float = 0.0
    size_bytes: float = 0.0
    narrow: bool = False
    """Whether its elements have 16 bits or fewer."""
    launches: int = 1
    calls: int = 1
    """Times that the host calls it, where those overlap on the chip."""
    extras: tuple[Extra, ...] = ()
    """Conversions that mixed precision adds to it, and the bias of a convolution."""

    @property
    def traffic_bytes(self) -> float:
        """Bytes moved to and from memory, extras included."""
        return self.size_bytes + sum(extra.size_bytes for extra in self.extras)


def make_kernels(ops: Sequence[Op], machine: RooflineMachine, numerics: Numerics, formats: StepFormats) -> list[Kernel]:
    """The kernels of a step, one for each op; an op that another one absorbs has no launch and no work."""
    attention = find_attention(ops) if machine.fused_attention else NO_ATTENTION
    recurrence = find_recurrence(ops)
    layouts = lay_out_tensors(ops, numerics, formats)
    kernels = []
    for op, layout in zip(ops, layouts, strict=True):
        if op.index in attention.absorbed or op.index in recurrence.absorbed:
            kernels.append(Kernel(op=op, name=class_of(op, machine), launches=0))
        else:
            gemm = recurrence.merged.get(op.index, op.gemm)
            kernel = _kernel(op, gemm, layout, attention, machine, formats)
            kernels.append(_link(kernel, gemm.count) if gemm and op.index in recurrence.links else kernel)
    return kernels


def _kernel(
    op: Op, gemm: Gemm | None, layout: Layout, attention: FusedAttention, machine: RooflineMachine, formats: StepFormats
) -> Kernel:
    narrow = layout.main_bits(op) <= 16
    # A product that stands for those of many time steps has the conversions of all of them.
    times = gemm.m * gemm.count / (op.gemm.m * op.gemm.count) if gemm and op.gemm else 1
    extras = tuple(Extra("cast", times * elements * bits / 8, narrow=False) for elements, bits in layout.casts)
    if gemm and op.gemm and not _is_depthwise(op):
        fused = op.index in attention.products
        name, rate = _unit(op, machine, formats)
        factor = 1.0
        product_s, fill = product_seconds(gemm, machine, rate.tflops)
        if fused:
            factor = (1.0 if op.phase == "forward" else _RECOMPUTED) * (_SKIPPED if op.index in attention.causal else 1)
        return Kernel(
            op=op,
            name="attention" if fused else class_of(op, machine),
            format=name,
            product_s=product_s * factor,
            winograd=_winograd(op),
            fill=fill,
            unaligned=0 if fused else _unaligned(op, gemm, layout, machine),
            flops=gemm.flops * factor,
            size_bytes=_product_bytes(gemm, layout) if gemm is not op.gemm else layout.size_bytes(op, attention.scores),
            narrow=narrow,
            extras=() if fused else extras + _bias(op, layout) + _relaid(op, layout, machine, name),
        )
    return Kernel(
        op=op,
        name=class_of(op, machine),
        flops=float(op.flops),
        size_bytes=layout.size_bytes(op),
        narrow=narrow,
        launches=sum(bits > 0 for bits in layout.outputs) if op.operator == "presilicon.round" else 1,
        extras=extras + _relaid(op, layout, machine),
    )


def _link(kernel: Kernel, cells: int) -> Kernel:
    """A time step of a recurrent layer: the product with the state, the gates, and where layers overlap, an event."""
    name = "recurrence.backward" if kernel.op.phase == "input_grad" else "recurrence"
    return structs.replace(kernel, name=name, launches=min(cells + 1, 3), calls=cells)


def _product_bytes(gemm: Gemm, layout: Layout) -> float:
    left, right, result = gemm.m * gemm.k, gemm.k * gemm.n, gemm.m * gemm.n
    return gemm.count * (left * layout.inputs[0] + right * layout.inputs[1] + result * layout.outputs[0]) / 8


def _bias(op: Op, layout: Layout) -> tuple[Extra, ...]:
    """A convolution's bias is added by a kernel of its own."""
    if op.convolution is None or op.phase != "forward" or len(op.inputs) < 3:
        return ()
    bits = layout.outputs[0]
    return (Extra("bias", 2 * op.outputs[0].elements * bits / 8, narrow=bits <= 16),)


def _relaid(op: Op, layout: Layout, machine: RooflineMachine, unit: str = "") -> tuple[Extra, ...]:
    """Copies of tensors into the order in memory that a kernel needs, and of its results back.

    Matrix units convolve channels last: what is stored otherwise is converted by the library, both factors and the
    result. Float32 outside the matrix units is convolved in either order. Group normalization works channels first.
    Layer normalization, softmax and products copy an input of other strides.
    """
    tensors = list(zip(op.inputs + op.outputs, layout.inputs + layout.outputs, strict=True))
    if op.convolution is not None:
        if unit == "float32" or _is_channels_last(op.convolution, machine):
            return ()
        factors = len(op.inputs[:2])
        converted = [*tensors[:factors], *tensors[len(op.inputs) :]]
        return tuple(_copy("relayout", tensor, bits) for tensor, bits in converted)
    if op.operator.startswith("aten.native_group_norm") and len(op.inputs[0].shape) == 4:
        whole = op.inputs[0].elements if machine.layout == "channels-last" else 0
        return tuple(_copy("copy", tensor, bits) for tensor, bits in tensors if tensor.elements == whole)
    if _is_strided(op, machine) and (op.gemm or op.operator.startswith(_BY_ROWS)):
        return (_copy("copy.strided", *tensors[0]),)
    return ()


def _copy(name: str, tensor: TensorRef, bits: float) -> Extra:
    return Extra(name, 2 * tensor.elements * bits / 8, narrow=bits <= 16)


def _is_channels_last(convolution: Convolution, machine: RooflineMachine) -> bool:
    """Torch's channels_last is a layout of 2-D images."""
    return machine.layout == "channels-last" and len(convolution.kernel) == 2


def _is_strided(op: Op, machine: RooflineMachine) -> bool:
    """Whether the op's tensors differ in their order in memory."""
    return op.access in ("strided", f"strided-{machine.layout}")


def product_seconds(gemm: Gemm, machine: RooflineMachine, tflops: float) -> tuple[float, float]:
    """Seconds of a product at a peak rate, in waves of tiles over the cores, and the share of cores that it fills.

    Where there are fewer tiles than cores, the reduction is split among them, or the tiles are halved.

    >>> from presilicon.designs import load_design
    >>> h200 = load_design("h200").machine
    >>> full = 2 * 8192**3 / 989e12
    >>> seconds, fill = product_seconds(Gemm(m=8192, k=8192, n=8192), h200, 989)
    >>> 1 <= seconds / full < 1.04, fill
    (True, 1.0)
    """
    candidates = []
    for side, share in ((machine.tile, 1.0), (max(machine.tile // 2, 1), _SMALL_TILE)):
        tiles = gemm.count * ceil(gemm.m / side) * ceil(gemm.n / side)
        split = max(1, min(machine.cores // tiles, gemm.k // _SPLIT))
        waves = ceil(tiles * split / machine.cores)
        core_flops_s = tflops * 1e12 / machine.cores * share
        seconds = waves * 2 * side * side * ceil(gemm.k / split) / core_flops_s
        candidates.append((seconds, min(1.0, tiles * split / machine.cores)))
    return min(candidates)


def class_of(op: Op, machine: RooflineMachine) -> str:
    """The class of an op: its kind, `.strided` appended where its tensors differ in their order in memory, and
    `.backward` in the backward pass."""
    kind: OpKind | str = op.kind
    if op.operator == "presilicon.round":
        kind = "cast"
    elif op.operator.startswith(_LAYER_NORMS):
        kind = "layer-normalization"
    elif _is_depthwise(op):
        kind = "other"
    if _is_strided(op, machine) and op.gemm is None and not op.operator.startswith(_BY_ROWS):
        kind = f"{kind}.strided"
    return f"{kind}.backward" if op.phase in ("input_grad", "weight_grad") else kind


def _is_depthwise(op: Op) -> bool:
    """Whether each channel is convolved by itself, which no matrix unit does."""
    return op.convolution is not None and op.convolution.groups == op.convolution.in_channels > 1


def _winograd(op: Op) -> int:
    convolution = op.convolution
    if convolution is None or convolution.groups > 1 or set(convolution.stride + convolution.dilation) != {1}:
        return 0
    return convolution.kernel[0] if convolution.kernel in ((3, 3), (5, 5)) else 0


def _unit(op: Op, machine: RooflineMachine, formats: StepFormats) -> tuple[str, MatrixRate]:
    a, b = op.inputs[:2]
    return machine.rate(formats.format_of(a.role, op.layer, op.phase), formats.format_of(b.role, op.layer, op.phase))


def _unaligned(op: Op, gemm: Gemm, layout: Layout, machine: RooflineMachine) -> int:
    """0 when the rows of all operands begin at aligned addresses, 1 when not, 2 when not even at every fourth byte."""
    if op.convolution is not None:
        sides = (op.convolution.in_channels // op.convolution.groups, op.convolution.out_channels)
    else:
        sides = (gemm.m, gemm.n) if op.phase == "weight_grad" else (gemm.k, gemm.n)
    sizes = [side * layout.inputs[0] / 8 for side in sides]
    if all(size % machine.alignment_bytes == 0 for size in sizes):
        return 0
    return 1 if all(size % 4 == 0 for size in sizes) else 2
