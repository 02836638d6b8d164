"""The layers of one network, as layers that can be measured: its products and normalizations."""

from collections.abc import Iterator

from msgspec import json

from presilicon.cards.layers import Layer, convolution_layer
from presilicon.records import Op, StepGraph
from presilicon.simulation import FusedAttention, find_attention


def layers_of(graph: StepGraph, *, channels_last: bool = False) -> list[Layer]:
    """Convolutions, linear layers, attention and normalizations of a step, each once.

    Products of strided operands and recurrent layers are left out: their times come from layers that are like them.
    """
    attention = find_attention(graph.ops)
    forward = [op for op in graph.ops if op.phase == "forward" and not op.recurrent]
    layers = [layer for op in forward for layer in _layer(op, attention, channels_last)]
    return list({json.encode(layer): layer for layer in layers}.values())


def left_out(graph: StepGraph) -> int:
    """Number of products that `layers_of` leaves out."""
    linear = [op for op in graph.ops if op.phase == "forward" and op.gemm and op.gemm.count == 1 and not op.convolution]
    return sum(op.recurrent or op.access != "dense" for op in linear)


def _layer(op: Op, attention: FusedAttention, channels_last: bool) -> Iterator[Layer]:
    if op.convolution is not None:
        yield convolution_layer(op.convolution, channels_last=channels_last)
    elif op.gemm is not None and op.index in attention.products:
        if op.outputs[0].id in attention.scores:
            count, m, k, n = op.gemm.count, op.gemm.m, op.gemm.k, op.gemm.n
            yield Layer(
                name="attention", arguments={"causal": op.index in attention.causal},
                shapes=((count, 1, m, k), (count, 1, n, k), (count, 1, n, k)), flops=2.0 * op.gemm.flops,
            )  # fmt: skip
    elif op.gemm is not None and op.gemm.count > 1:
        count, m, k, n = op.gemm.count, op.gemm.m, op.gemm.k, op.gemm.n
        yield Layer(name="matmul", shapes=((count, m, k), (count, k, n)), flops=float(op.gemm.flops))
    elif op.gemm is not None and op.access == "dense":
        arguments = {"in_features": op.gemm.k, "out_features": op.gemm.n, "bias": op.operator.startswith("aten.addmm")}
        yield Layer(
            name="linear", arguments=arguments, shapes=((op.gemm.m, op.gemm.k),), flops=float(op.gemm.flops)
        )  # fmt: skip
    elif op.operator.startswith("aten.native_batch_norm") and len(shape := op.inputs[0].shape) <= 5:
        dims = max(1, len(shape) - 2)
        arguments = {"dims": dims, "features": shape[1]}
        yield Layer(name="batch-norm", arguments=arguments, shapes=(shape,), channels_last=channels_last and dims > 1)
    elif op.operator.startswith("aten.native_layer_norm"):
        shape = op.inputs[0].shape
        yield Layer(name="layer-norm", arguments={"normalized_shape": shape[-1]}, shapes=(shape,))
