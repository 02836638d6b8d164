"""torch's own compiler as an oracle: the loops that Inductor would write for a GPU, on a machine without one.

A training step is traced on the CPU, as torch.compile does it. When its forward and its backward graph are handed to
Inductor, their tensors are moved to a fake `cuda` device: lowering and the scheduler, which decide what is computed
again, what is stored and what becomes one kernel, take the way of Triton on an H200. Nothing is written or run.

Known differences to a real card: passes over the graph before lowering see a CPU, so that attention is the kernel of
the CPU, which is as little a loop as the GPU's.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo import device_interface
from torch._functorch import config as functorch_config
from torch._guards import TracingContext, detect_fake_mode
from torch._inductor import compile_fx, config, decomposition, scheduler
from torch._inductor.debug import DebugContext
from torch._inductor.dependencies import MemoryDep
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

_CUDA = torch.device("cuda", 0)
_H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    regs_per_multiprocessor=65536,
    shared_memory_per_block_optin=232448,
    warp_size=32,
    gcnArchName="",
)


class InductorLoop(NamedTuple):
    """A kernel that Inductor writes."""

    is_backward: bool
    size_bytes: int
    """Read and written, each buffer once."""
    nodes: tuple[str, ...]
    """Nodes of the graph that it computes."""


def inductor_loops(run: Callable[[], Tensor]) -> list[InductorLoop]:
    """The loops of a training step: a function that returns the loss, whose gradients are then computed."""
    loops: list[InductorLoop] = []

    def compile_graph(graph: Any, inputs: list[Any], **settings: Any) -> Any:
        is_backward = settings.get("is_backward", False)
        loops.extend(_loops_of_graph(graph, inputs, is_backward))
        results = [_meta(node) for node in graph.graph.output_node().args[0]]

        def execute(arguments: list[Any]) -> list[Any]:
            arguments.clear()
            return [pytree.tree_map_only(Tensor, _empty, result) for result in results]

        execute._boxed_call = True  # type: ignore[attr-defined]
        return execute

    torch._dynamo.reset()
    with (
        config.patch(compile_threads=1, shape_padding=False),
        functorch_config.patch(enable_autograd_cache=False),
        mock.patch.object(torch._C, "_conv_determine_backend_memory_format", _layout_of_cudnn),
        mock.patch.object(decomposition, "is_gpu", return_value=True),
    ):
        backend = lambda graph, inputs: compile_fx.compile_fx(graph, inputs, inner_compile=compile_graph)  # noqa: E731
        torch.compile(run, backend=backend, fullgraph=True)().backward()
    torch._dynamo.reset()
    return loops


def _loops_of_graph(original: Any, inputs: list[Any], is_backward: bool) -> Iterator[InductorLoop]:
    """What compile_fx's own `codegen_and_compile` does with a graph, up to the end of the scheduler."""
    graph = deepcopy(original)
    compile_fx.view_to_reshape(graph)
    with torch.no_grad():
        fake = compile_fx.fake_tensor_prop(graph, inputs)
    compile_fx._recursive_record_original_output_strides(graph)
    with V.set_debug_handler(DebugContext()), V.set_fake_mode(fake):
        compile_fx._recursive_post_grad_passes(graph, is_inference=False)
        moved = _move_to_gpu(graph, inputs)
        with _pretended_gpu():
            lowering = GraphLowering(
                graph, example_inputs=moved, shape_env=graph.shape_env, is_backward=is_backward, is_inference=False
            )
            lowering.freeze_runtime_asserts()
            with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]):
                lowering.run(*moved)
                _report_strides(lowering)
                lowering.init_wrapper_code()
                lowering._update_scheduler()
                for node in lowering.scheduler.nodes:
                    if not node.is_extern() and not isinstance(node, scheduler.NopKernelSchedulerNode):
                        origins = {origin.name for part in node.get_nodes() for origin in part.node.get_origins()}
                        yield InductorLoop(is_backward, _size_bytes(node), tuple(sorted(origins)))


def _move_to_gpu(graph: Any, inputs: list[Any]) -> list[Any]:
    """Move all tensors of a graph to the fake device; returns its inputs there."""
    mode = detect_fake_mode(inputs)

    def move(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_CUDA)

    def rename(argument: Any) -> Any:
        return _CUDA if isinstance(argument, torch.device) else argument

    for node in graph.graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, rename), map_aggregate(node.kwargs, rename)
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(move, node.meta["val"])
    graph.recompile()
    return [move(value) for value in inputs]


@contextmanager
def _pretended_gpu() -> Iterator[None]:
    interface = device_interface.CudaInterface
    answers: list[tuple[Any, str, Any]] = [
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        (torch.cuda, "get_device_properties", lambda *_: _H200),
        (interface, "get_device_properties", staticmethod(lambda *_: _H200)),
        (interface.Worker, "get_device_properties", staticmethod(lambda *_: _H200)),
        (interface, "get_compute_capability", staticmethod(lambda *_: 90)),
        (scheduler, "has_triton", lambda *_: True),
    ]
    with ExitStack() as stack:
        for owner, name, answer in answers:
            stack.enter_context(mock.patch.object(owner, name, answer))
        yield


def _layout_of_cudnn(images: Tensor, weight: Tensor, _: Any) -> torch.memory_format:
    """The layout of a convolution's result: channels last if one of its inputs is."""
    for layout, dims in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        for tensor in (images, weight):
            if tensor.dim() == dims and tensor.is_contiguous(memory_format=layout) and not tensor.is_contiguous():
                return layout
    return torch.contiguous_format


def _report_strides(lowering: Any) -> None:
    """Tell the backward pass how the results of the forward pass lie in memory."""
    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None:
        for result in lowering.graph_outputs:
            is_tensor = hasattr(result, "get_stride") and result.has_tensor_output()
            context.output_strides.append(tuple(map(_hint, result.get_stride())) if is_tensor else None)


def _size_bytes(node: Any) -> int:
    """Inductor's own count, but of what is looked up only as many elements as the loop has turns."""
    total = 0
    for name, size in node.get_read_write_buffer_accesses(include_reads=True, include_writes=True).items():
        accesses = {access for access in (*node.read_writes.reads, *node.read_writes.writes) if access.name == name}
        if all(isinstance(access, MemoryDep) for access in accesses):
            turns = sum(prod(map(_hint, access.size)) for access in accesses)
            size = min(size, turns * V.graph.get_dtype(name).itemsize)
        total += size
    return total


def _hint(size: Any) -> int:
    return int(V.graph.sizevars.optimization_hint(size, fallback=0))


def _meta(node: Any) -> Any:
    return None if node is None else node.meta["val"]


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
