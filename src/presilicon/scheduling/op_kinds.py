"""Kinds and sizes of ops as characterization tables name them."""

from collections.abc import Iterable
from functools import cache

from presilicon.ops import facts_of_op_named, follow
from presilicon.records import Op, OpKind, Phase

SMALL, LARGE = 1024, 4096

_CONVOLUTIONS: dict[Phase, str] = {
    "forward": "Conv2D",
    "input_grad": "Conv2DBackpropInput",
    "weight_grad": "Conv2DBackpropFilter",
}


def kind_of(op: Op) -> str:
    """The table's kind of an op."""
    return kind_named(op.kind, op.phase, op.operator)


@cache
def kind_named(record: OpKind, phase: Phase, operator: str) -> str:
    """The table's kind of an op of that kind, phase and operator.

    >>> kind_named("convolution", "weight_grad", "aten.convolution_backward.default")
    'Conv2DBackpropFilter'
    """
    if record == "convolution" and phase in _CONVOLUTIONS:
        return _CONVOLUTIONS[phase]
    if record == "reduction" and phase == "weight_grad":
        return "BiasAddGrad"
    facts = facts_of_op_named(operator, record)
    if record == "optimizer" and facts.captured.kind not in ("elementwise", "optimizer"):
        return facts.of_kind.table_kind[0]
    return facts.captured.table_kind or facts.of_kind.table_kind[facts.is_gradient]


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


follow(kind_named.cache_clear)
