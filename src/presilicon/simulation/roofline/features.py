"""Features of a kernel that decide its time beside its work: its group in a table of measured layers, and its shape."""

from math import log2, prod
from typing import NamedTuple

from presilicon.ops import facts_of_op
from presilicon.records import Convolution, Gemm, Op, TensorRef

_ALIGNED = 6
"""Powers of two by which a dimension may be divisible and still matter."""


class Features(NamedTuple):
    """Where to look a kernel up."""

    keys: tuple[str, ...]
    """Groups from the most to the least specific one."""
    shape: tuple[float, ...]
    """Its point in the first group; groups with another number of axes give their line alone."""
    layer: str = ""
    """The layer that it belongs to, without the size of the batch; empty where times follow the shape well."""
    scale: float = 0.0
    """Logarithm of that size."""


def features_of_product(op: Op, gemm: Gemm, unit: str, layout: str) -> Features:
    """Features of a matrix product or convolution on a matrix unit."""
    if op.convolution is not None:
        return _of_convolution(op, op.convolution, unit, layout)
    rows = gemm.m if op.phase == "weight_grad" else gemm.k
    shape = (
        _log(gemm.m), _log(gemm.k), _log(gemm.n), _log(gemm.count),
        _aligned(rows), _aligned(gemm.n), 2.0 * (op.access != "dense"),
    )  # fmt: skip
    plain = f"gemm.{op.phase}.{unit}"
    if gemm.count > 1:
        layer = f"{gemm.m}x{gemm.k}x{gemm.n}"
        return Features((f"bmm.{_pass(op)}.{unit}", plain), shape, layer, _log(gemm.count))
    batch, width = (gemm.k, gemm.m) if op.phase == "weight_grad" else (gemm.m, gemm.k)
    return Features((plain,), shape, f"{width}x{gemm.n}{'' if op.access == 'dense' else ' strided'}", _log(batch))


def features_of_attention(op: Op, gemm: Gemm, unit: str, causal: bool) -> Features:
    """Features of a product inside fused attention."""
    shape = (_log(gemm.count), _log(gemm.m), _log(gemm.n), _log(gemm.k), 2.0 * causal)
    layer = f"{gemm.m}x{gemm.k}x{gemm.n}{' causal' if causal else ''}"
    return Features((f"attention.{_pass(op)}.{unit}",), shape, layer, _log(gemm.count))


def is_depthwise(convolution: Convolution) -> bool:
    """Whether every input channel has filters of its own."""
    return convolution.groups == convolution.in_channels > 1


def _of_convolution(op: Op, convolution: Convolution, unit: str, layout: str) -> Features:
    groups, dims = convolution.groups, len(convolution.kernel)
    inputs, outputs = convolution.in_channels // groups, convolution.out_channels // groups
    shape = (
        _log(convolution.batch * prod(convolution.output_size)), _log(inputs), _log(outputs), _log(groups),
        _log(prod(convolution.kernel)), 2.0 * (max(convolution.stride) > 1), _log(max(convolution.dilation)),
        _aligned(inputs), _aligned(outputs), 3.0 * convolution.transposed,
    )  # fmt: skip
    order = layout if dims > 1 else "contiguous"
    kind = "depthwise" if is_depthwise(convolution) else "convolution"
    if kind == "convolution" and dims == 2 and (groups > 1 or prod(convolution.kernel) == 1):
        kind = "grouped" if groups > 1 else "pointwise"  # by other kernels, whose times have little in common
    key = f"{kind}{dims}d.{op.phase}.{unit}"
    keys = f"{key}.{order}", f"{key}.contiguous", f"{kind}2d.{op.phase}.{unit}.{order}"
    return Features(keys, shape, _layer(convolution), _log(convolution.batch))


def _layer(convolution: Convolution) -> str:
    """The geometry of a convolution without its batch: `64>128 56 k3 s1 p1 d1 g1`, `<` if it is transposed."""
    axes = (
        f"{letter}{'x'.join(map(str, dict.fromkeys(sizes) if len(set(sizes)) == 1 else sizes))}"
        for letter, sizes in (
            ("", convolution.input_size), ("k", convolution.kernel), ("s", convolution.stride),
            ("p", convolution.padding), ("d", convolution.dilation), ("g", (convolution.groups,)),
        )
    )  # fmt: skip
    channels = f"{convolution.in_channels}{'<' if convolution.transposed else '>'}{convolution.out_channels}"
    return f"{channels} {' '.join(axes)}"


def features_of_move(op: Op, kind: str, bits: float, layout: str) -> Features:
    """Features of any other op: its operator and number of bits, its size and the length of its rows or channels."""
    largest = max(op.inputs + op.outputs, key=lambda tensor: tensor.elements, default=TensorRef(0, (1,), "activation"))
    facts = facts_of_op(op)
    operator = op.operator.removeprefix("aten.").partition(".")[0]
    if op.fixed_statistics and op.phase == "forward":  # a scale and an offset, as other kernels that walk through data
        operator, kind = "mul", "elementwise"
    if op.gemm is None and operator == "convolution_backward":
        return features_of_bias("bias-gradient", largest, bits, layout)
    by_rows = facts.statistics == "rows"
    is_image = op.kind in ("normalization", "pooling") and len(largest.shape) > 2 and not by_rows
    width = largest.shape[1 if is_image else -1] if largest.shape else 1
    work = 0.0 if operator == "mul" else _log(op.flops) - _log(op.elements_out)
    shape = (_log(largest.elements), _log(width), _log(op.elements_in) - _log(op.elements_out), work)
    size = "16" if bits <= 16 else "32"
    if facts.entry is not None and facts.captured.measured_as:
        return Features((f"{facts.captured.measured_as}.{size}", facts.captured.measured_as), shape)
    if op.kind == "optimizer":
        # Weights of any shape are lines of numbers here.
        keys = f"update.{operator}.{size}", f"update.{operator}.32", "optimizer.32"
        return Features(keys, (shape[0], *shape[2:]))
    orders = [f".{layout}", ""] if len(largest.shape) > 3 and not by_rows else [""]
    if op.access in ("strided", f"strided-{layout}"):
        orders = [f".strided{order}" for order in orders] + orders
    return Features(tuple(f"{name}.{size}{order}" for name in (operator, kind) for order in orders), shape)


def features_of_bias(name: str, result: TensorRef, bits: float, layout: str) -> Features:
    """Features of a convolution's `bias`, which is added after it, or of its `bias-gradient`, a sum per channel."""
    plain = f"{name}.{16 if bits <= 16 else 32}"
    order = layout if len(result.shape) > 3 else "contiguous"
    return Features((f"{plain}.{order}", plain, name), (_log(result.elements), _log(result.shape[1])))


def features_of_extra(name: str, elements: float, bits: float) -> Features:
    """Features of a kernel that accompanies another one."""
    return Features((f"{name}.{16 if bits <= 16 else 32}", name), (_log(elements),))


def _pass(op: Op) -> str:
    return "forward" if op.phase in ("forward", "update") else "backward"


def _log(value: float) -> float:
    return log2(max(value, 1))


def _aligned(size: int) -> float:
    """The number of times that a size can be halved, up to some."""
    return 0.5 * min(_ALIGNED, (size & -size).bit_length() - 1) if size else 0.0
