"""Calls of ATen operators: the facts about an operator, and the ops in one call of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.ops.custom.calls import work_of_call
from presilicon.ops.entries.products import HIDING
from presilicon.ops.entry import Captured
from presilicon.ops.geometry import CallProduct, find_products
from presilicon.ops.lookup import find, follow
from presilicon.records import OperatorWork, OpKind


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """The facts about an ATen operator that do not depend on its arguments."""

    name: str
    """Without namespace and overload: `add_`, `_softmax`."""
    kind: OpKind
    mutable: bool
    written: tuple[int | str, ...]
    """Positions, and names of keyword-only arguments, that it writes to."""
    unread: tuple[int | str, ...]
    """The members of `written` whose old contents it does not read."""
    free: bool
    """Whether it moves no data."""
    shape_only: bool
    """Whether it reads the shape of its input but not its values."""
    gathers: bool
    """Whether it reads only as many elements of its first input as it writes."""
    computes: bool
    """Whether it does arithmetic: it is no copy, view, lookup, selection or random number."""
    hides_products: bool
    """Whether it multiplies matrices inside, or may do so, without being a product itself: distances, FFTs, linear
    algebra, and every operator of two tensors that is not known to do something else."""
    full_name: str
    """As a captured op has it: `aten.mm.default`."""
    is_view: bool
    """Whether its results share the storage of its first argument."""
    returned: tuple[int | str | None, ...]
    """For each result: the argument that it is, or None for a new tensor."""
    is_immediate: bool
    """Whether it must run in the program's own thread: it draws random numbers, depends on whether gradients are on,
    or returns other shapes than the meta device says."""
    resizes: bool
    """Whether it gives its argument another storage or another size of it."""
    turns: bool
    """Whether it only changes shape and strides of its argument in place, as `transpose_` does."""
    is_foreach: bool
    """Whether it is an operator on lists of tensors, which calls that of a single tensor for each."""
    is_known: bool
    """Whether the op table has it."""
    last_axis: bool
    """Whether its kernels need the last dimension innermost."""
    captured: Captured

    @property
    def multiplies(self) -> bool:
        """Whether it is a matrix product, or hides one."""
        return self.kind in ("gemm", "convolution") or self.hides_products


class OpPart(NamedTuple):
    """One op of an operator call."""

    label: str
    """The operator's name, and the part's if the call has several."""
    kind: OpKind
    flops: int
    product: CallProduct | None = None
    work: OperatorWork | None = None
    fixed_statistics: bool = False
    """See `Op.fixed_statistics`."""


def ops_of_call(
    function: Any, args: Sequence[Any], output: Any, reads: Iterable[Tensor], results: Iterable[Tensor]
) -> list[OpPart]:
    """The ops of one operator call: the products in it, or else the call itself.

    `reads` are the tensors that the call reads and `results` those that it writes.

    >>> x = torch.ones(4, 8)
    >>> [part] = ops_of_call(torch.ops.aten.mm.default, (x, x.t()), x @ x.t(), [x], [x @ x.t()])
    >>> part.label, part.kind, part.flops
    ('mm', 'gemm', 256)
    """
    operator = describe_operator(function)
    if function.namespace == "presilicon" and (work := work_of_call(function, args)) is not None:
        return [OpPart(work.name, operator.kind, work.operations, work=work)]
    products = find_products(operator.name, operator.captured, args, output)
    if products:
        names = [f"{operator.name}.{product.label}" if product.label else operator.name for product in products]
        return [OpPart(name, item.kind, item.flops, item) for name, item in zip(names, products, strict=True)]
    inputs, outputs = ([tuple(tensor.shape) for tensor in tensors] for tensors in (reads, results))
    fixed = has_fixed_statistics(function, args)
    is_gradient = fixed and (met := find(operator.name)) is not None and met.is_gradient
    flops = count_flops(operator.captured, inputs, outputs, args, fixed_statistics=fixed, is_gradient=is_gradient)
    return [OpPart(operator.name, operator.kind, flops, fixed_statistics=fixed)]


def has_fixed_statistics(function: Any, args: Sequence[Any]) -> bool:
    """Whether an operator is a batch normalization with statistics from before the step, as in evaluation."""
    operator = describe_operator(function)
    if operator.captured.statistics != "batch":
        return False
    flags = [position for position, argument in enumerate(function._schema.arguments) if argument.name in _TRAINING]
    return "no_training" in operator.name or any(position < len(args) and args[position] is False for position in flags)


_TRAINING = ("training", "train", "use_input_stats")
"""The argument of batch normalizations that says whether they compute their own statistics."""


@cache
def describe_operator(function: Any) -> OperatorFacts:
    """Describe a `torch._ops.OpOverload`.

    >>> operator = describe_operator(torch.ops.aten.copy_.default)
    >>> operator.name, operator.kind, operator.written, operator.unread
    ('copy_', 'copy', (0,), (0,))
    """
    schema = function._schema
    namespace, _, name = schema.name.partition("::")
    met = find(name)
    captured = met.captured if met is not None else _unknown(function, name)
    written: list[int | str] = []
    unread: list[int | str] = []
    aliases: dict[str, int | str] = {}
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None:
            continue
        key = argument.name if argument.kwarg_only else position
        aliases.update(dict.fromkeys(argument.alias_info.before_set, key))
        if argument.alias_info.is_write:
            written.append(key)
            if argument.kwarg_only or captured.overwrites:
                unread.append(key)
    views = any(argument.alias_info and not argument.alias_info.is_write for argument in schema.arguments)
    computes = not captured.allocates and _computes(captured, name, views)
    multiplies = captured.multiplies
    if multiplies is None:
        multiplies = computes and captured.kind == "other" and _may_multiply(schema, namespace, name)
    return OperatorFacts(
        name=name,
        kind=captured.kind,
        mutable=bool(schema.is_mutable),
        written=tuple(written),
        unread=tuple(unread),
        free=captured.allocates,
        shape_only=name.endswith("_like") or name.startswith("new_"),
        gathers=captured.reads_table,
        computes=computes,
        hides_products=multiplies,
        full_name=str(function),
        is_view=captured.is_alias or (bool(function.is_view) and not written),
        returned=tuple(_returned(result, aliases) for result in schema.returns),
        is_immediate=captured.at_once or torch.Tag.nondeterministic_seeded in function.tags,
        resizes=captured.resizes,
        turns=torch.Tag.inplace_view in function.tags and not captured.resizes,
        is_foreach=name.startswith("_foreach_"),
        is_known=met is not None or namespace != "aten",
        last_axis=captured.last_axis,
        captured=captured,
    )


def _returned(result: Any, aliases: dict[str, int | str]) -> int | str | None:
    """The argument that a result is, or None for a new tensor."""
    names = result.alias_info.before_set if result.alias_info is not None else ()
    return next((aliases[name] for name in names if name in aliases), None)


def _unknown(function: Any, name: str) -> Captured:
    """Facts that torch itself tells about an operator that nobody entered."""
    if name.lstrip("_").startswith(HIDING):
        return Captured(names=(name,), kind="other", multiplies=True)
    return Captured(names=(name,), kind="elementwise" if torch.Tag.pointwise in function.tags else "other")


def _computes(captured: Captured, name: str, views: bool) -> bool:
    if captured.computes is not None or name.startswith("is_"):
        return bool(captured.computes) and not name.startswith("is_")
    return captured.kind not in ("copy", "random", "gather") and not views


def _may_multiply(schema: Any, namespace: str, name: str) -> bool:
    """Whether an operator of unknown kind reads two tensors, so that it may multiply one by the other and add up."""
    if namespace == "presilicon" or name.strip("_").startswith(("foreach", "fused_adam", "fused_sgd")):
        return False
    twin = getattr(torch.ops.aten, name[:-1], None) if namespace == "aten" and name.endswith("_") else None
    if twin is not None and any(torch.Tag.pointwise in getattr(twin, overload).tags for overload in twin.overloads()):
        return False  # the in-place form of a pointwise operator has no such tag
    read = [str(argument.type) for argument in schema.arguments if not argument.kwarg_only]
    return sum("Tensor" in word for word in read) > 1


def count_flops(
    captured: Captured,
    inputs: list[tuple[int, ...]],
    outputs: list[tuple[int, ...]],
    args: Sequence[Any] = (),
    *,
    fixed_statistics: bool = False,
    is_gradient: bool = False,
) -> int:
    """FLOPs of an operator that is no matrix product: one per arithmetic result, zero for moves.

    A reduction makes one result per element that it reads, an elementwise operator one per element that it writes;
    softmax and normalization make several passes. A batch normalization with `fixed_statistics` scales and adds; its
    gradients scale the error, and sum it and its product with the input.

    >>> count_flops(describe_operator(torch.ops.aten.sum.default).captured, [(4, 8)], [()])
    32
    """
    if captured.flops is not None:
        return captured.flops(inputs, outputs, args)
    if captured.kind in ("copy", "gather"):
        return 0
    written = max(map(prod, outputs), default=0)
    if captured.kind in ("elementwise", "random"):
        return written * captured.results
    if fixed_statistics:
        return max([written, *map(prod, inputs)]) * (4 if is_gradient else 2)
    return max([written, *map(prod, inputs)]) * captured.results


follow(describe_operator.cache_clear)
