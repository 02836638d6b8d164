"""Kinds and sizes of ops as characterization tables name them.

`KINDS` maps a torch op to its name in a table.
"""

import re
from collections.abc import Iterable
from functools import cache

from presilicon.records import Op, OpKind, Phase

SMALL, LARGE = 1024, 4096

KINDS: tuple[tuple[str, str, str, str], ...] = (
    # kind in the graph, phase, pattern of the operator, kind in the table
    ("convolution", "forward", "", "Conv2D"),
    ("convolution", "input_grad", "", "Conv2DBackpropInput"),
    ("convolution", "weight_grad", "", "Conv2DBackpropFilter"),
    ("gemm", "", "", "MatMul"),
    ("reduction", "weight_grad", "", "BiasAddGrad"),
    ("reduction", "", "mean", "Mean"),
    ("reduction", "", "", "Sum"),
    ("", "", r"threshold_backward|relu_backward", "ReluGrad"),
    ("", "", r"(gelu|tanh|sigmoid|leaky_relu)_backward", "GeluGrad"),
    ("", "", r"leaky_relu|relu", "Relu"),
    ("", "", r"gelu|tanh|sigmoid", "Gelu"),
    ("normalization", "", r"batch_norm_backward", "BatchNormGrad"),
    ("normalization", "", r"batch_norm", "BatchNorm"),
    ("normalization", "", r"backward", "LayerNormGrad"),
    ("normalization", "", "", "LayerNorm"),
    ("softmax", "", r"backward", "SoftmaxGrad"),
    ("softmax", "", "", "Softmax"),
    ("pooling", "", r"max_pool.*backward", "MaxPoolGrad"),
    ("pooling", "", r"max_pool", "MaxPool"),
    ("pooling", "", r"backward", "AvgPoolGrad"),
    ("pooling", "", "", "AvgPool"),
    ("loss", "", r"backward", "LossGrad"),
    ("loss", "", "", "Loss"),
    ("gather", "", r"backward", "GatherGrad"),
    ("gather", "", "", "Gather"),
    ("random", "", "", "Dropout"),
    ("copy", "", r"clone|transpose|permute|contiguous", "Transpose"),
    ("copy", "", r"cat|stack", "Concat"),
    ("copy", "", "", "Copy"),
    ("", "", r"\.(mul|addcmul)", "Mul"),
    ("", "", r"\.(div|addcdiv)", "Div"),
    ("", "", r"\.add", "Add"),
    ("", "", r"\.sub", "Sub"),
    ("", "", r"\.sqrt", "Sqrt"),
    ("", "", r"\.lerp", "Lerp"),
    ("elementwise", "", "", "Mul"),
    ("optimizer", "", "", "Mul"),
    ("", "", "", "Copy"),
)
"""The first row that matches decides; an empty string matches everything."""


def kind_of(op: Op) -> str:
    """The table's kind of an op."""
    return kind_named(op.kind, op.phase, op.operator)


@cache
def kind_named(record: OpKind, phase: Phase, operator: str) -> str:
    """The table's kind of an op of that kind, phase and operator.

    >>> kind_named("convolution", "weight_grad", "aten.convolution_backward.default")
    'Conv2DBackpropFilter'
    """
    return next(
        kind
        for row_kind, row_phase, pattern, kind in KINDS
        if row_kind in ("", record) and row_phase in ("", phase) and re.search(pattern, operator)
    )


def size_class(dimensions: Iterable[int]) -> str:
    """`S` if every dimension is below 1024, `L` if one is above 4096, else `M`.

    The published classes leave gaps (4096 itself, dimensions of 256 and less, mixed ones); these have none.

    >>> [size_class(shape) for shape in ((512, 512, 64), (512, 2048, 512), (8192, 64, 64))]
    ['S', 'M', 'L']
    """
    sides = list(dimensions)
    if all(side < SMALL for side in sides):
        return "S"
    return "L" if any(side > LARGE for side in sides) else "M"
