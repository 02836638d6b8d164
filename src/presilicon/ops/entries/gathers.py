"""Entries of gathers and scatters."""

from collections.abc import Sequence
from math import prod
from typing import Any

from presilicon.ops.entry import Captured, OpEntry, Shapes, function, plain


def _errors(inputs: Shapes, outputs: Shapes, args: Sequence[Any]) -> int:
    """An addition for each error."""
    return prod(inputs[0])


def _added(inputs: Shapes, outputs: Shapes, args: Sequence[Any]) -> int:
    """An addition for each element that is added."""
    return prod(inputs[-1])


def _rows_of_bags(inputs: Shapes, outputs: Shapes, args: Sequence[Any]) -> int:
    return prod(inputs[1]) * inputs[0][-1]


_TABLE: dict[str, Any] = {"reads_table": True, "style": "map"}
_ADDS: dict[str, Any] = {"flops": _added, "computes": True}

ENTRIES: list[OpEntry] = [
    OpEntry(
        name="embedding",
        is_lookup=True,
        forward=Captured(names=("embedding",), kind="gather", **_TABLE),
        backward=Captured(
            names=("embedding_dense_backward",), kind="gather", flops=_errors, computes=True, scatters=True,
            table_kind="GatherGrad",
        ),
    ),
    OpEntry(
        name="embedding_bag",
        is_lookup=True,
        forward=Captured(
            names=("embedding_bag",), kind="gather", flops=_rows_of_bags, computes=True, is_library=True, at_once=True
        ),
        backward=Captured(
            names=("embedding_bag_dense_backward",), kind="gather", table_kind="GatherGrad", at_once=True
        ),
    ),
    *plain("gather", "embedding_bag_forward_only", is_library=True, at_once=True),
    *plain("other", "embedding_bag_backward", multiplies=False, at_once=True),
    *plain("gather", "index take", **_TABLE),
    OpEntry(
        name="gather", functions=("gather",), forward=Captured(names=("gather",), kind="gather", **_TABLE),
        handling="spreads",
    ),
    OpEntry(
        name="index_select",
        functions=("index_select",),
        handling="spreads",
        forward=Captured(names=("index_select",), kind="gather", **_TABLE),
        backward=Captured(
            names=("index_select_backward",), kind="gather", flops=_errors, computes=True, table_kind="GatherGrad"
        ),
    ),
    *(function(name, "gather", backward="", **_ADDS) for name in ("scatter_add", "scatter_reduce", "index_add")),
    *plain("gather", "index_put_impl index_copy index_fill masked_scatter"),
    *(
        OpEntry(
            name=name, functions=(name,), forward=Captured(names=(name,), kind="gather"), handling="accumulates"
        )
        for name in ("index_put", "scatter")
    ),
    OpEntry(name="put", functions=("put",), handling="accumulates"),
    *(function(name, "other", backward="", multiplies=False) for name in ("index_reduce", "segment_reduce")),
    *plain("other", """
        segment_reduce_backward masked_select masked_scatter_backward unsafe_index unsafe_index_put unsafe_masked_index
        unsafe_masked_index_put_accumulate searchsorted bucketize isin bincount""", multiplies=False),
]  # fmt: skip
