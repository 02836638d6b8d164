"""Kernels that stand for several ops: those of a compiler (torch.compile), and fused optimizers.

Inside of a merged kernel, data stays in registers: it reads what it does not compute itself, each tensor once, and
writes what others read or what was there before.
"""

from collections.abc import Iterable, Sequence
from math import inf

from msgspec import structs

from presilicon.designs import Numerics, StepFormats
from presilicon.records import Op
from presilicon.simulation.roofline.features import Features
from presilicon.simulation.roofline.kernels import Kernel, make_kernels
from presilicon.simulation.roofline.machine import RooflineMachine
from presilicon.simulation.roofline.widths import Layout, lay_out_tensors

_LOOPS = ("elementwise", "reduction", "normalization", "softmax", "loss", "copy", "random")
"""Kinds of ops that a compiler writes as loops over elements or rows."""
_LOOP_KEYS, _UPDATE_KEYS = ("loop.32", "elementwise.32"), ("update.fused.32", "optimizer.32")
"""Groups in which merged kernels are looked up."""


def launched_kernels(
    ops: Sequence[Op], machine: RooflineMachine, numerics: Numerics, formats: StepFormats
) -> list[Kernel]:
    """The kernels of a step as the machine launches them, one for each op; ops that were merged have no launch."""
    compiled = machine.launch == "compile"
    lay_out = structs.replace(machine, layout="channels-last") if compiled else machine
    kernels = make_kernels(ops, lay_out, numerics, formats)
    if not compiled and machine.optimizer == "foreach":
        return kernels
    layouts = lay_out_tensors(ops, numerics, formats)
    kernels = compile_kernels(kernels, layouts) if compiled else kernels
    return fuse_optimizer(kernels, layouts) if machine.optimizer == "fused" else kernels


def compile_kernels(kernels: Sequence[Kernel], layouts: Sequence[Layout]) -> list[Kernel]:
    """The kernels of a compiled step: loops over the same elements are merged; products and the update stay.

    The loops convert operands, pad the rows of products, and add biases on the way. Gradients are converted for the
    optimizer by kernels of their own. Batch normalization needs sums over its whole input first: it begins a loop, and
    reads its inputs twice.
    """
    merged = [_without_extras(kernel) if kernel.op.phase != "update" else kernel for kernel in kernels]
    return _merge(merged, layouts, _loops([kernel.op for kernel in kernels], _fusible(kernels)), _LOOP_KEYS)


def fuse_optimizer(kernels: Sequence[Kernel], layouts: Sequence[Layout]) -> list[Kernel]:
    """One kernel for all ops that update a parameter."""
    groups: list[tuple[list[int], set[int]]] = []
    for position, kernel in enumerate(kernels):
        if kernel.op.kind == "optimizer":
            touched = {tensor.id for tensor in kernel.op.inputs + kernel.op.outputs if tensor.shape}
            joined = [group for group in groups if group[1] & touched]
            members = sorted(member for group in joined for member in group[0])
            groups = [group for group in groups if not group[1] & touched]
            groups.append(([*members, position], touched.union(*(group[1] for group in joined))))
    return _merge(kernels, layouts, [members for members, _ in groups], _UPDATE_KEYS)


def _merge(
    kernels: Sequence[Kernel], layouts: Sequence[Layout], groups: Iterable[list[int]], keys: tuple[str, ...]
) -> list[Kernel]:
    merged = list(kernels)
    readers: dict[int, set[int]] = {}
    for position, kernel in enumerate(kernels):
        for tensor in kernel.op.inputs:
            readers.setdefault(tensor.id, set()).add(position)
    for members in groups:
        for position in members:
            merged[position] = structs.replace(kernels[position], launches=0, size_bytes=0.0, flops=0.0, extras=())
        merged[members[0]] = structs.replace(
            kernels[members[0]],
            features=Features(keys, kernels[members[0]].features.shape),
            size_bytes=_edge_bytes(members, kernels, layouts, readers),
            flops=sum(kernels[position].flops for position in members),
            launches=kernels[members[0]].launches,
        )
    return merged


def _edge_bytes(
    members: list[int], kernels: Sequence[Kernel], layouts: Sequence[Layout], readers: dict[int, set[int]]
) -> float:
    """Bytes that a merged kernel reads and writes."""
    read: dict[int, float] = {}
    written: dict[int, float] = {}
    inside = set(members)
    for position in members:
        op, layout = kernels[position].op, layouts[position]
        passes = 2 if _is_batch_norm(op) else 1
        for tensor, bits in zip(op.inputs, layout.inputs, strict=True):
            if tensor.id not in written:
                read[tensor.id] = max(read.get(tensor.id, 0.0), passes * tensor.elements * bits / 8)
        for tensor, bits in zip(op.outputs, layout.outputs, strict=True):
            written[tensor.id] = tensor.elements * bits / 8
    needed = [key for key in written if key in read or not readers.get(key) or readers[key] - inside]
    return sum(read.values()) + sum(written[key] for key in needed)


def _fusible(kernels: Sequence[Kernel]) -> list[bool]:
    """Whether each op becomes a loop; lookups of rows do, sums into them do not."""
    return [
        kernel.launches > 0
        and not kernel.format
        and kernel.op.phase != "update"
        and (kernel.op.kind in _LOOPS or kernel.op.operator.startswith(("aten.embedding.", "aten.index.")))
        for kernel in kernels
    ]


def _loops(ops: Sequence[Op], fusible: Sequence[bool]) -> list[list[int]]:
    """Groups of ops that run as one loop, by position.

    An op joins a loop over as many elements that computes one of its inputs, unless another input depends on that loop.
    Each kernel has a rank in the order; a loop's limit is the lowest rank that reads from it, so a kernel of a lower
    rank does not depend on it.
    """
    home: dict[int, int] = {}
    members: list[list[int]] = []
    sizes: list[int] = []
    ranks: list[int] = []
    limits: list[float] = []
    for position, op in enumerate(ops):
        sources = {home[tensor.id] for tensor in op.inputs if tensor.id in home}
        size = max((tensor.elements for tensor in op.inputs + op.outputs), default=0)
        own = -1
        for loop in sorted(sources, reverse=True) if fusible[position] and not _is_batch_norm(op) else ():
            others = [ranks[source] for source in sources - {loop}]
            is_same_pass = (ops[members[loop][0]].phase == "forward") == (op.phase == "forward")
            if sizes[loop] == size and is_same_pass and all(rank < limits[loop] for rank in others):
                own = loop
                ranks[own] = max([ranks[own], *others])
                break
        if own < 0:
            own = len(members)
            members.append([])
            sizes.append(size if fusible[position] else -1)
            ranks.append(own)
            limits.append(inf)
        members[own].append(position)
        for source in sources - {own}:
            limits[source] = min(limits[source], ranks[own])
        home.update({tensor.id: own for tensor in op.outputs})
    return [loop for loop, size in zip(members, sizes, strict=True) if size >= 0]


def _without_extras(kernel: Kernel) -> Kernel:
    """A kernel without what loops do for it: only the conversion of a weight's gradient is left."""
    casts = [extra for extra in kernel.extras if extra.is_cast]
    is_kept = kernel.op.phase == "weight_grad" and kernel.format
    return structs.replace(kernel, extras=tuple(casts[-1:]) if is_kept else ())


def _is_batch_norm(op: Op) -> bool:
    return op.kind == "normalization" and "batch_norm" in op.operator
