"""Kernels that a framework launches for the ops of a step, with the work of each."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from msgspec import Struct, structs

from presilicon.base import ConfigError
from presilicon.designs import StepFormats
from presilicon.ops import facts_of_op
from presilicon.records import Gemm, Op, OpKind
from presilicon.simulation.roofline.attention import NO_ATTENTION, FusedAttention, find_attention
from presilicon.simulation.roofline.features import (
    Features,
    features_of_attention,
    features_of_bias,
    features_of_extra,
    features_of_move,
    features_of_product,
    is_depthwise,
)
from presilicon.simulation.roofline.machine import MatrixRate, RooflineMachine
from presilicon.simulation.roofline.recurrence import find_recurrence
from presilicon.simulation.roofline.widths import TensorWidths, lay_out_tensors

_TENSORS = 40
"""Tensors that an optimizer updates in one launch."""
_SPLIT = 64
"""The shortest part of a reduction that is given a core of its own."""
_SMALL_TILE = 0.6
"""Fraction of a core's rate when it computes tiles of half the side."""
_RECOMPUTED = 1.25
"""Products in the backward pass of fused attention, which recomputes the scores, over those in the captured step."""
_SKIPPED = 0.5
"""Fraction of the scores that a triangular mask leaves."""


class Extra(NamedTuple):
    """A small kernel that accompanies another one."""

    features: Features
    size_bytes: float

    @property
    def is_cast(self) -> bool:
        """Whether it converts numbers to another format."""
        return self.features.keys[-1] == "cast"


class OpKernel(Struct, frozen=True, kw_only=True):
    """The work of one op."""

    op: Op
    features: Features = Features((), ())
    """Where its efficiency is looked up."""
    stands_for: str = ""
    """Format of its operands, where no kernel in it was measured and the measured ones of another stand in for it."""
    format: str = ""
    """Format of the matrix unit that it runs on; empty for none."""
    product_s: float = 0.0
    """Seconds on the matrix unit at its peak rate, in whole tiles and waves."""
    fill: float = 1.0
    """Share of the cores that it keeps busy."""
    flops: float = 0.0
    size_bytes: float = 0.0
    launches: float = 1
    """A share of one for an op of an optimizer, which updates many tensors in one launch."""
    calls: int = 1
    """Times that the host calls it, where those overlap on the chip."""
    extras: tuple[Extra, ...] = ()
    """Conversions that mixed precision adds to it, copies, and the bias of a convolution."""

    @property
    def activity(self) -> str:
        """The class by which it draws power."""
        if self.op.gemm is not None:
            if self.op.convolution is not None:
                return "depthwise" if is_depthwise(self.op.convolution) else "convolution"
            name = self.features.keys[0].partition(".")[0] if self.features.keys else "gemm"
            return "gemm" if name == "bmm" else name
        if self.op.kind == "normalization":
            return "layer-normalization" if _is_per_sample(self.op) else "normalization"
        return "other"

    @property
    def labels(self) -> tuple[str, ...]:
        """Groups on which its power depends besides its rates; see `KernelLoad`."""
        operator, *rest = self.features.keys[0].split(".") if self.features.keys else ("",)
        backward = self.op.gemm is None and self.op.phase in ("input_grad", "weight_grad")
        bits = "16" if "16" in rest or "bfloat16" in rest else "32"
        layout = "channels-last" if "channels-last" in rest else ""
        return self.activity, self.format or bits, operator, "backward" if backward else self.op.phase, layout

    @property
    def traffic_bytes(self) -> float:
        """Bytes moved to and from memory, extras included."""
        return self.size_bytes + sum(extra.size_bytes for extra in self.extras)


def make_kernels(ops: Sequence[Op], machine: RooflineMachine, formats: StepFormats) -> list[OpKernel]:
    """The kernels of a step, one for each op; an op that another one absorbs has no launch and no work."""
    attention = find_attention(ops) if machine.fused_attention else NO_ATTENTION
    recurrence = find_recurrence(ops)
    layouts = lay_out_tensors(ops, formats)
    kernels = []
    for op, layout in zip(ops, layouts, strict=True):
        if op.index in attention.absorbed or op.index in recurrence.absorbed:
            kernels.append(OpKernel(op=op, launches=0))
        else:
            gemm = recurrence.merged.get(op.index, op.gemm)
            kernel = _kernel(op, gemm, layout, attention, machine, formats)
            kernels.append(_link(kernel, gemm.count) if gemm and op.index in recurrence.links else kernel)
    return kernels


def _kernel(
    op: Op,
    gemm: Gemm | None,
    layout: TensorWidths,
    attention: FusedAttention,
    machine: RooflineMachine,
    formats: StepFormats,
) -> OpKernel:
    # A product that stands for those of many time steps has the conversions of all of them.
    times = gemm.m * gemm.count / (op.gemm.m * op.gemm.count) if gemm and op.gemm and gemm is not op.gemm else 1
    extras = tuple(cast_of(times * elements, bits) for elements, bits in layout.casts)
    if gemm and op.gemm and not _is_depthwise(op):
        fused = op.index in attention.products
        unit, rate = _unit(op, machine, formats)
        product_s, fill = product_seconds(gemm, machine, rate.tflops)
        if fused:
            is_causal = op.index in attention.causal
            factor = (1.0 if op.phase == "forward" else _RECOMPUTED) * (_SKIPPED if is_causal else 1)
            features = features_of_attention(op, gemm, _measured_unit(unit), is_causal)
        else:
            factor, features = 1.0, features_of_product(op, gemm, _measured_unit(unit), machine.layout)
        return OpKernel(
            op=op,
            features=features,
            stands_for=_unmeasured(unit),
            format=unit,
            product_s=product_s * factor,
            fill=fill,
            flops=gemm.flops * factor,
            size_bytes=_product_bytes(gemm, layout) if gemm is not op.gemm else layout.size_bytes(op, attention.scores),
            extras=() if fused else extras + _bias(op, layout, machine),
        )
    bits, passes, stands_for = layout.main_bits(op), 2 if _divides_alone(op, machine) else 1, ""
    if op.convolution is not None:
        assert op.gemm is not None  # depthwise: outside the matrix units, but some kernels still follow their format
        stands_for, unit = _formats_of_depthwise(op, machine, formats, bits)
        features = features_of_product(op, op.gemm, unit, machine.layout)
    else:
        features = features_of_move(op, _class_of(op), bits, machine.layout)
    return OpKernel(
        op=op,
        features=features,
        stands_for=stands_for,
        flops=float(op.flops) * passes,
        size_bytes=layout.size_bytes(op) * passes,
        launches=_launches(op, layout, machine),
        extras=extras + _strided_rows(op, layout, machine),
    )


def _launches(op: Op, layout: TensorWidths, machine: RooflineMachine) -> float:
    if op.operator == "presilicon.round":
        return sum(bits > 0 for bits in layout.outputs)
    if op.kind == "optimizer":
        return 2 if _divides_alone(op, machine) else 1 / _TENSORS
    return 1


def _divides_alone(op: Op, machine: RooflineMachine) -> bool:
    """Whether an optimizer divides one tensor after the other, and twice.

    In a graph, Adam keeps its number of steps on the card (`capturable`): its two corrections are tensors then, and
    torch divides by them in kernels of their own.
    """
    in_graph = machine.launch == "graph" and machine.optimizer == "foreach"
    return in_graph and op.kind == "optimizer" and op.operator.startswith("aten.div.")


def _link(kernel: OpKernel, cells: int) -> OpKernel:
    """A time step of a recurrent layer: the product with the state, and the gates. The state is never converted."""
    keys = f"recurrent.{kernel.op.phase}.{_measured_unit(kernel.format)}", *kernel.features.keys
    return structs.replace(kernel, features=Features(keys, kernel.features.shape), calls=cells, extras=())


def _product_bytes(gemm: Gemm, layout: TensorWidths) -> float:
    left, right, result = gemm.m * gemm.k, gemm.k * gemm.n, gemm.m * gemm.n
    return gemm.count * (left * layout.inputs[0] + right * layout.inputs[1] + result * layout.outputs[0]) / 8


def cast_of(elements: float, moved_bits: float) -> Extra:
    """A conversion between number formats."""
    return _extra("cast", elements, moved_bits, 32)


def _extra(name: str, elements: float, moved_bits: float, bits: float) -> Extra:
    """A kernel that reads and writes some bits of each element."""
    return Extra(features_of_extra(name, elements, bits), elements * moved_bits / 8)


def _bias(op: Op, layout: TensorWidths, machine: RooflineMachine) -> tuple[Extra, ...]:
    """A convolution's bias is added by a kernel of its own."""
    if op.convolution is None or op.phase != "forward" or len(op.inputs) < 3:
        return ()
    bits, result = layout.outputs[0], op.outputs[0]
    return (Extra(features_of_bias("bias", result, bits, machine.layout), result.elements * 2 * bits / 8),)


def _strided_rows(op: Op, layout: TensorWidths, machine: RooflineMachine) -> tuple[Extra, ...]:
    """Layer normalization and softmax copy an input whose rows are not contiguous."""
    if op.access not in ("strided", f"strided-{machine.layout}") or not facts_of_op(op).captured.last_axis:
        return ()
    bits = layout.inputs[0]
    return (_extra("clone.strided", op.inputs[0].elements, 2 * bits, bits),)


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
        tiles = max(1, gemm.count * ceil(gemm.m / side) * ceil(gemm.n / side))  # an empty product is launched too
        core_flops_s = tflops * 1e12 / machine.cores * share
        # Partial sums are written in 32 bits and read again.
        sums_s = 8 * gemm.count * gemm.m * gemm.n / (machine.memory_gb_s * 1e9)
        for split in range(1, max(1, min(machine.cores // tiles, gemm.k // _SPLIT)) + 1):
            waves = ceil(tiles * split / machine.cores)
            seconds = waves * 2 * side * side * gemm.k / split / core_flops_s + (split * sums_s if split > 1 else 0)
            candidates.append((seconds, min(1.0, tiles * split / machine.cores)))
    return min(candidates)


def _is_per_sample(op: Op) -> bool:
    """Whether a normalization is over each sample, by other kernels than those over a batch."""
    return facts_of_op(op).statistics in ("rows", "sample")


def _class_of(op: Op) -> str:
    """The class of an op whose operator was not measured: its kind, `.backward` appended in the backward pass."""
    kind: OpKind | str = op.kind
    if op.operator == "presilicon.round":
        kind = "cast"
    elif _is_per_sample(op):
        kind = "layer-normalization"
    return f"{kind}.backward" if op.phase in ("input_grad", "weight_grad") else kind


def _measured_unit(name: str) -> str:
    """The unit among those of the tables that is most like one: narrow formats run on the units of bfloat16."""
    return name if name in ("float32", "tf32") else "bfloat16"


def _is_depthwise(op: Op) -> bool:
    """Whether each channel is convolved by itself, which no matrix unit does."""
    return op.convolution is not None and op.convolution.groups == op.convolution.in_channels > 1


def _unmeasured(unit: str) -> str:
    """A unit's format if tables have none of its products, else nothing."""
    return "" if _measured_unit(unit) == unit else unit


def _formats_of_depthwise(op: Op, machine: RooflineMachine, formats: StepFormats, bits: float) -> tuple[str, str]:
    """The unmeasured format of a depthwise convolution, or nothing, and the one that it is looked up in.

    Chips without such a unit compute it all the same.
    """
    try:
        unit = _unit(op, machine, formats)[0]
    except ConfigError:
        return "", "bfloat16" if bits <= 16 else "float32"
    return _unmeasured(unit), _measured_unit(unit)


def _unit(op: Op, machine: RooflineMachine, formats: StepFormats) -> tuple[str, MatrixRate]:
    a, b = op.inputs[:2]
    return machine.rate(formats.format_of(a.role, op.layer, op.phase), formats.format_of(b.role, op.layer, op.phase))
