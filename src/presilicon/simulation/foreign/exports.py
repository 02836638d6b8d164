"""A step for other simulators: as a Chakra trace, which ASTRA-sim reads, and as a topology of SCALE-Sim."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from presilicon.base import ConfigError, MissingToolError, write_file
from presilicon.designs import Design, StepFormats
from presilicon.records import Cost, Op, OpCost, StepFacts, StepGraph, TensorRef
from presilicon.simulation.execution import executed_ops

MICRO = 1e6


def write_chakra(
    path: Path | str, graph: StepGraph, design: Design, cost: Cost, facts: StepFacts = StepFacts()
) -> None:
    """Write the step as a Chakra trace; `cost` is the result of `simulate` for the same graph, design and facts.

    Each op is a compute node. Its number is the op's index, and its data dependencies are the op's. Starts and
    durations are whole microseconds, rounded so that they add up to the step's; a short op may have 0, so the exact
    time is in the attribute `time_s`. `num_ops` are FLOPs, `tensor_size` the bytes that cross DRAM, as in ASTRA-sim's
    roofline. Tensors are written as in Chakra: tensor, storage, offset, elements, bytes per element, device.

    Raises:
        MissingToolError: mlc-chakra is not installed.
        ConfigError: the file cannot be written.
    """
    chakra = _schema()
    formats = StepFormats(design.numerics, facts, graph)
    executed = executed_ops(graph, formats, facts)
    present = {op.index for op in executed}
    metadata = chakra.GlobalMetadata(version="1.0.0")
    for name, text in (("workload", graph.name), ("design", design.name), ("generator", "presilicon")):
        metadata.attr.append(chakra.AttributeProto(name=name, string_val=text))
    metadata.attr.append(chakra.AttributeProto(name="batch_size", int64_val=cost.batch_size))
    try:
        with Path(path).open("wb") as file:
            chakra.encode(file, metadata)
            for op, price in zip(executed, cost.ops, strict=True):
                chakra.encode(file, _node(chakra, op, price, formats, present))
    except OSError as error:
        raise ConfigError(f"{path}: the trace cannot be written: {error.strerror}") from error


def _node(chakra: Any, op: Op, price: OpCost, formats: StepFormats, present: set[int]) -> Any:
    start, end = round(price.start_s * MICRO), round(price.end_s * MICRO)
    node = chakra.Node(
        id=op.index,
        name=op.name,
        type=chakra.COMP_NODE,
        data_deps=[index for index in op.depends_on if index in present],
        start_time_micros=start,
        duration_micros=end - start,
        inputs=_tensors(chakra, op.inputs, op, formats),
        outputs=_tensors(chakra, op.outputs, op, formats),
    )
    node.attr.extend(
        [
            # Without it, readers treat the node as work of the host.
            chakra.AttributeProto(name="is_cpu_op", bool_val=False),
            chakra.AttributeProto(name="num_ops", int64_val=op.flops),
            chakra.AttributeProto(name="tensor_size", uint64_val=round(price.bytes_dram)),
            chakra.AttributeProto(name="time_s", double_val=price.time_s),
            chakra.AttributeProto(name="energy_j", double_val=price.energy_j),
            chakra.AttributeProto(name="op_kind", string_val=op.kind),
            chakra.AttributeProto(name="phase", string_val=op.phase),
            chakra.AttributeProto(name="layer", string_val=op.layer),
        ]
    )
    return node


def _tensors(chakra: Any, tensors: Sequence[TensorRef], op: Op, formats: StepFormats) -> Any:
    stored = [formats.format_of(tensor.role, op.layer, op.product_phase) for tensor in tensors]
    widths = [fmt.bits_per_element / 8 for fmt in stored]
    values = [
        [tensor.id, tensor.id, 0, tensor.elements, width, "npu"] for tensor, width in zip(tensors, widths, strict=True)
    ]
    return chakra.IOInfo(
        values=json.dumps(values),
        shapes=json.dumps([tensor.shape for tensor in tensors]),
        types=json.dumps([f"Tensor({fmt})" for fmt in stored]),
    )


def _schema() -> Any:
    try:
        from chakra.schema.protobuf import et_def_pb2
        from chakra.src.third_party.utils.protolib import encodeMessage
    except ImportError:
        raise MissingToolError("Chakra traces need mlc-chakra: pip install 'presilicon[chakra]'") from None
    names = ("AttributeProto", "GlobalMetadata", "IOInfo", "Node", "COMP_NODE")
    return SimpleNamespace(encode=encodeMessage, **{name: getattr(et_def_pb2, name) for name in names})


def topology_of(graph: StepGraph) -> str:
    """A CSV with a line for each matrix product, in the order of the step, with SCALE-Sim's columns name, M, N, K.

    Several equal products of an op (the heads of attention, groups of a convolution) are one line.

    >>> from presilicon.records import Gemm, Op, TensorRef
    >>> x, w, y = (TensorRef(i, (2, 2), "activation") for i in range(3))
    >>> op = Op(index=0, name="fc.forward", kind="gemm", operator="aten.mm", phase="forward", layer="fc",
    ...         inputs=(x, w), outputs=(y,), flops=48, gemm=Gemm(m=2, k=3, n=4))
    >>> print(topology_of(StepGraph(name="one", batch_size=2, ops=(op,))), end="")
    Layer,M,N,K,
    fc_forward,2,4,3,
    """
    lines = [
        f"{op.name.replace('.', '_')},{op.gemm.m},{op.gemm.n},{op.gemm.k}," for op in graph.ops if op.gemm is not None
    ]
    return "\n".join(["Layer,M,N,K,", *lines]) + "\n"


def write_topology(path: Path | str, graph: StepGraph) -> None:
    """Write `topology_of(graph)` to a file.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_file(Path(path), topology_of(graph))
