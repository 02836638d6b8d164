"""The layers of one network, as layers that can be measured: its products and normalizations."""

from collections.abc import Iterator
from math import prod

from msgspec import json

from presilicon.records import Convolution, Op, StepGraph
from presilicon.simulation import FusedAttention, find_attention
from presilicon.study.cards.layers import Layer


def layers_of(graph: StepGraph, *, channels_last: bool = False) -> list[Layer]:
    """Convolutions, linear layers, attention and normalizations of a step, each once.

    Products of strided operands and recurrent layers are left out: their times come from layers that are like them.
    """
    attention = find_attention(graph.ops)
    forward = [op for op in graph.ops if op.phase == "forward" and not op.recurrent]
    layers = [layer for op in forward for layer in _layer(op, attention, channels_last)]
    return list({json.encode(layer): layer for layer in layers}.values())


def left_out(graph: StepGraph) -> int:
    """Products of a step that `layers_of` leaves out."""
    products = [op for op in graph.ops if op.phase == "forward" and op.gemm is not None and op.convolution is None]
    return sum(op.recurrent or (op.gemm.count == 1 and op.access != "dense") for op in products if op.gemm is not None)


def _layer(op: Op, attention: FusedAttention, channels_last: bool) -> Iterator[Layer]:
    if op.convolution is not None:
        yield _convolution(op.convolution, channels_last)
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


def _convolution(convolution: Convolution, channels_last: bool) -> Layer:
    dims = len(convolution.kernel)
    arguments = {
        "dims": dims, "in_channels": convolution.in_channels, "out_channels": convolution.out_channels,
        "kernel_size": convolution.kernel, "stride": convolution.stride, "padding": convolution.padding,
        "dilation": convolution.dilation, "groups": convolution.groups,
    }  # fmt: skip
    size = convolution.input_size if convolution.transposed else convolution.output_size
    if convolution.transposed:
        arguments["output_padding"] = tuple(
            out - ((before - 1) * stride - 2 * padding + dilation * (length - 1) + 1)
            for out, before, stride, padding, dilation, length in zip(
                convolution.output_size, convolution.input_size, convolution.stride, convolution.padding,
                convolution.dilation, convolution.kernel, strict=True,
            )
        )  # fmt: skip
    results = convolution.batch * convolution.out_channels * prod(size)
    return Layer(
        name="transposed-convolution" if convolution.transposed else "convolution", arguments=arguments,
        shapes=((convolution.batch, convolution.in_channels, *convolution.input_size),),
        channels_last=channels_last and dims > 1,
        flops=2.0 * results * prod(convolution.kernel) * convolution.in_channels / convolution.groups,
    )  # fmt: skip
