"""Kernels that stand for several ops: those of a compiler (torch.compile), and fused optimizers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import structs

from presilicon.designs import StepFormats
from presilicon.ops import facts_of_op
from presilicon.records import Op, Role
from presilicon.simulation.roofline.features import Features
from presilicon.simulation.roofline.kernels import Extra, OpKernel, make_kernels
from presilicon.simulation.roofline.loops import FusedLoop, fuse
from presilicon.simulation.roofline.lowering import Lowering
from presilicon.simulation.roofline.machine import RooflineMachine
from presilicon.simulation.roofline.widths import TensorWidths, lay_out_tensors

_LOOP_KEYS, _UPDATE_KEYS = ("loop.32", "elementwise.32"), ("update.fused.32", "optimizer.32")
"""Groups in which merged kernels are looked up."""
_SMALL = 64
"""Channels of convolutions for which a compiler leaves images as they are."""


def launched_kernels(ops: Sequence[Op], machine: RooflineMachine, formats: StepFormats) -> list[OpKernel]:
    """The kernels of a step as the machine launches them, one for each op; ops that were merged have no launch."""
    layout = image_layout(ops, machine)
    kernels = make_kernels(ops, structs.replace(machine, layout=layout), formats)
    if machine.launch != "compile" and machine.optimizer == "foreach":
        return kernels
    layouts = lay_out_tensors(ops, formats)
    if machine.launch == "compile":
        kernels = _without_copies_of_attention(kernels)
        fusible = [_is_fusible(kernel) for kernel in kernels]
        # Weights that are rounded in every step are written in the right layout.
        converted: tuple[Role, ...] = ("activation",) if formats.copies_weights else ("activation", "weight")
        converted = converted if layout != machine.layout else ()
        nodes = Lowering(ops, layouts, fusible, machine.cores, layout == "channels-last", converted).nodes
        kernels = compile_kernels(kernels, fusible, fuse(nodes, ops))
    return fuse_optimizer(kernels, layouts) if machine.optimizer == "fused" else kernels


def image_layout(ops: Sequence[Op], machine: RooflineMachine) -> str:
    """How images lie in memory: a compiler lays them out channels last where its developers found that faster."""
    channels = []
    for op in ops:
        if machine.launch == "compile" and op.phase == "forward" and op.convolution is not None:
            outputs, inputs = op.convolution.out_channels, op.convolution.in_channels
            outputs, inputs = (inputs, outputs) if op.convolution.transposed else (outputs, inputs)
            inputs //= op.convolution.groups
            shrinks = 2 * outputs <= inputs and op.convolution.kernel[0] > 1
            is_grouped = op.convolution.groups > 1 and inputs > 1
            if shrinks or is_grouped or len(op.convolution.kernel) != 2:
                return machine.layout
            channels.append(max(outputs, inputs))
    return "channels-last" if channels and max(channels) > _SMALL else machine.layout


def compile_kernels(kernels: Sequence[OpKernel], fusible: Sequence[bool], loops: Iterable[FusedLoop]) -> list[OpKernel]:
    """The kernels of a compiled step: products and the update stay, other ops are their loops, if they begin any.

    The loops convert operands, pad the rows of products, and add biases on the way. Gradients are converted for the
    optimizer by kernels of their own.
    """
    sizes: defaultdict[int, list[float]] = defaultdict(list)
    for loop in loops:
        sizes[loop.op].append(loop.size_bytes)
    compiled = []
    for position, kernel in enumerate(kernels):
        own = sorted(sizes[position], reverse=True)
        if fusible[position]:
            kernel = structs.replace(
                kernel,
                features=Features(_LOOP_KEYS, kernel.features.shape),
                launches=min(len(own), 1),
                size_bytes=sum(own[:1]),
                extras=tuple(Extra(Features(_LOOP_KEYS, ()), size) for size in own[1:]),
            )
        elif kernel.op.phase != "update":
            casts = [extra for extra in kernel.extras if extra.is_cast]
            is_kept = kernel.op.phase == "weight_grad" and kernel.format
            extras = (Extra(Features(_LOOP_KEYS, ()), size) for size in own)
            kernel = structs.replace(kernel, extras=(*(casts[-1:] if is_kept else ()), *extras))
        compiled.append(kernel)
    return compiled


def fuse_optimizer(kernels: Sequence[OpKernel], layouts: Sequence[TensorWidths]) -> list[OpKernel]:
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
    kernels: Sequence[OpKernel], layouts: Sequence[TensorWidths], groups: Iterable[list[int]], keys: tuple[str, ...]
) -> list[OpKernel]:
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
    members: list[int], kernels: Sequence[OpKernel], layouts: Sequence[TensorWidths], readers: dict[int, set[int]]
) -> float:
    """Bytes that a merged kernel reads and writes."""
    read: dict[int, float] = {}
    written: dict[int, float] = {}
    inside = set(members)
    for position in members:
        op, layout = kernels[position].op, layouts[position]
        for tensor, bits in zip(op.inputs, layout.inputs, strict=True):
            if tensor.id not in written:
                read[tensor.id] = max(read.get(tensor.id, 0.0), tensor.elements * bits / 8)
        for tensor, bits in zip(op.outputs, layout.outputs, strict=True):
            written[tensor.id] = tensor.elements * bits / 8
    needed = [key for key in written if key in read or not readers.get(key) or readers[key] - inside]
    return sum(read.values()) + sum(written[key] for key in needed)


def _is_fusible(kernel: OpKernel) -> bool:
    """Whether an op becomes part of loops."""
    op = kernel.op
    facts = facts_of_op(op)
    is_loop = facts.of_kind.is_loop and not facts.captured.is_library
    return is_loop and op.phase != "update" and kernel.launches > 0 and not kernel.format


def _without_copies_of_attention(kernels: Sequence[OpKernel]) -> list[OpKernel]:
    """Kernels without those that copy results of fused attention, which lie as the next product reads them."""
    results: set[int] = set()
    kept = []
    for kernel in kernels:
        op, keys = kernel.op, kernel.features.keys
        if op.phase == "forward" and keys and keys[0].startswith("attention."):
            results.update(tensor.id for tensor in op.outputs)
        is_copy = facts_of_op(op).captured.copies and op.inputs[0].id in results
        kept.append(OpKernel(op=op, launches=0) if is_copy else kernel)
    return kept
