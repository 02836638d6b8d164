"""The layers that characterize a card: many small ones of every class, in shapes, strides and groups of many networks.

Most sizes are drawn at random, with a fixed seed, so that networks are left for checks. About a fifth are written by
hand, some of them as they are usual in networks: first convolutions of images, large vocabularies, heads of attention.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from presilicon.cards.families import families
from presilicon.cards.layers import Layer, Shape

LARGEST = 1 << 27
"""Elements of the largest tensor."""


def suite() -> list[Layer]:
    """All layers."""
    draw = random.Random(20)
    layers: list[Layer] = []
    for part in (
        _linears,
        _matmuls,
        _convolutions,
        _other_dimensions,
        _norms,
        _elementwise,
        _rows,
        _pools,
        _moves,
        _more,
    ):
        layers += part(draw)
    layers = [layer for layer in layers if layer.elements <= LARGEST]
    # Measured times name a layer by its place, so that new ones come last.
    later = [*_larger(random.Random(21)), *_usual(random.Random(22))]
    return [*layers, *(layer for layer in later if layer.elements <= 4 * LARGEST), *families()]


def measuring_order(layers: Sequence[Layer]) -> list[int]:
    """Places of all layers, those first that predictions need most: whatever is cut off at the end is missed least.

    Layers that are no products come first, since each is the only one of its kind in some way; then products of
    well-known networks and of random sizes by turns, each kind from all over its range.
    """
    known = len(layers) - sum(1 for _ in families())
    products = [place for place, layer in enumerate(layers) if layer.is_product]
    chosen = set(products)
    others = [place for place in range(len(layers)) if place not in chosen]
    ratio = (5**0.5 - 1) / 2  # of the golden section, whose multiples are spread evenly
    parts = [
        sorted(part, key=lambda place: place * ratio % 1)
        for part in ([p for p in products if p >= known], [p for p in products if p < known])
    ]
    turns = [place for pair in zip_longest(*parts) for place in pair if place is not None]
    return [*others, *turns]


def _log(draw: random.Random, low: float, high: float, multiple: int = 8) -> int:
    """A number between two others, evenly distributed by its logarithm, rounded to a multiple."""
    value: float = low * (high / low) ** draw.random()
    return max(multiple, round(value / multiple) * multiple)


def _linear(rows: int, inputs: int, outputs: int, bias: bool = False) -> Iterator[Layer]:
    flops = 2.0 * rows * inputs * outputs
    if flops < 3e12:
        yield Layer(
            name="linear", arguments={"in_features": inputs, "out_features": outputs, "bias": bias},
            shapes=((rows, inputs),), flops=flops,
        )  # fmt: skip


def _linears(draw: random.Random) -> Iterator[Layer]:
    sizes = [(_log(draw, 64, 65536, 32), _log(draw, 32, 8192, 32), _log(draw, 32, 8192, 32)) for _ in range(64)]
    sizes += [(2**e, 1024, 1024) for e in range(5, 16)] + [(512, k, 512) for k in (256, 512, 1016, 1024, 2048, 8192)]
    sizes += [(4096, 4096, 4096), (8192, 8192, 8192), (16384, 768, 3072), (2048, 768, 50257), (4096, 1000, 1001)]
    sizes += [(_log(draw, 256, 16384, 1), _log(draw, 64, 4096, 2), _log(draw, 64, 4096, 1)) for _ in range(10)]
    for size in sizes:
        yield from _linear(*size)
    for size in ((16384, 768, 768), (65536, 256, 1024), (256, 4096, 4096), (8192, 1024, 4096)):
        yield from _linear(*size, bias=True)
    for batch, tokens, width, outputs in (
        (64, 196, 512, 256),
        (128, 196, 768, 384),
        (256, 64, 256, 256),
        (32, 784, 256, 512),
    ):
        yield Layer(
            name="mixing", arguments={"inputs": tokens, "outputs": outputs}, shapes=((batch, tokens, width),),
            flops=2.0 * batch * tokens * width * outputs,
        )  # fmt: skip


def _matmuls(draw: random.Random) -> Iterator[Layer]:
    for _ in range(16):
        count, m, n, k = (
            _log(draw, 8, 1024),
            _log(draw, 32, 1024),
            _log(draw, 32, 1024),
            draw.choice((32, 64, 128, 256)),
        )
        if count * m * n <= LARGEST:
            yield Layer(name="matmul", shapes=((count, m, k), (count, k, n)), flops=2.0 * count * m * n * k)
    for batch, heads, tokens, width in (
        (16, 12, 128, 64), (64, 12, 128, 64), (8, 16, 512, 64), (4, 12, 1024, 64), (16, 16, 256, 64), (64, 6, 196, 64),
        (2, 32, 2048, 128), (8, 8, 1024, 128), (1024, 3, 49, 32), (256, 12, 49, 32), (128, 8, 64, 64), (32, 8, 384, 96),
    ):  # fmt: skip
        for causal in (False, True) if tokens >= 256 else (False,):
            yield Layer(
                name="attention", arguments={"causal": causal}, shapes=((batch, heads, tokens, width),) * 3,
                flops=4.0 * batch * heads * tokens * tokens * width,
            )  # fmt: skip


def _conv(
    dims: int, batch: int, side: int, inputs: int, outputs: int, kernel: int | Shape, **options: Any
) -> Iterator[Layer]:
    """A convolution in both layouts."""
    stride, groups = options.get("stride", 1), options.get("groups", 1)
    name, dilation = options.pop("name", "convolution"), options.get("dilation", 1)
    if isinstance(kernel, int):
        padding, taps = options.pop("padding", dilation * (kernel - 1) // 2), kernel**dims
    else:
        padding, taps = tuple(dilation * (length - 1) // 2 for length in kernel), prod(kernel)
    shape = (batch, inputs, *([side] * dims))
    outs = ((side + stride - 1) // stride) ** dims * batch * outputs
    is_transposed = name == "transposed-convolution"  # each input, not each output, is multiplied by all taps
    positions = side**dims * batch * outputs if is_transposed else outs
    flops = 2.0 * positions * (inputs // groups) * taps
    largest = options.pop("largest", LARGEST)
    if outs > largest or batch * inputs * side**dims > largest or flops > 3e12:
        return
    arguments = {
        "dims": dims, "in_channels": inputs, "out_channels": outputs, "kernel_size": kernel, "padding": padding,
        **options,
    }  # fmt: skip
    if name == "biased-convolution":
        arguments.pop("dims")
    for channels_last in (False, True) if dims > 1 else (False,):
        yield Layer(name=name, arguments=arguments, shapes=(shape,), channels_last=channels_last, flops=flops)


def _dense(draw: random.Random) -> Iterator[Layer]:
    side = draw.choice((7, 8, 14, 16, 28, 32, 56, 64, 112))
    most = max(16.0, min(2048.0, 65536 / side))
    kernel = draw.choice((1, 1, 1, 3, 3, 3, 5))
    return _conv(
        2, _log(draw, 8, 256), side, _log(draw, 16, most), _log(draw, 16, most), kernel,
        stride=draw.choice((1, 1, 1, 2)), dilation=draw.choice((1, 1, 1, 1, 2)),
    )  # fmt: skip


def _grouped(draw: random.Random) -> Iterator[Layer]:
    side, groups = draw.choice((7, 14, 28, 56)), draw.choice((2, 3, 4, 8, 16, 32, 32))
    width = groups * draw.choice((4, 8, 16, 32, 64))
    if width <= 2048:
        yield from _conv(
            2, _log(draw, 16, 128), side, width, width, draw.choice((1, 3, 3, 3)), groups=groups,
            stride=draw.choice((1, 1, 2)),
        )  # fmt: skip


def _depthwise(draw: random.Random) -> Iterator[Layer]:
    side, width = draw.choice((7, 14, 28, 56, 112)), _log(draw, 32, 1024)
    if side * width <= 16384:
        yield from _conv(
            2, _log(draw, 16, 256), side, width, width, draw.choice((3, 3, 5, 5, 7, 7, 9)), groups=width,
            stride=draw.choice((1, 1, 1, 2)),
        )  # fmt: skip


def _transposed_convolution(draw: random.Random) -> Iterator[Layer]:
    return _conv(
        2, _log(draw, 32, 128), draw.choice((4, 8, 16, 32)), _log(draw, 32, 512), _log(draw, 32, 512), 4,
        name="transposed-convolution", stride=2, padding=1,
    )  # fmt: skip


def _line(draw: random.Random) -> Iterator[Layer]:
    width = _log(draw, 32, 512)
    return _conv(
        1, _log(draw, 8, 64), _log(draw, 128, 16384), width, width if draw.random() < 0.5 else _log(draw, 32, 512),
        draw.choice((1, 2, 3, 3, 5, 9)), dilation=draw.choice((1, 1, 2, 8)), stride=draw.choice((1, 1, 2)),
    )  # fmt: skip


def _volume(draw: random.Random) -> Iterator[Layer]:
    return _conv(
        3, draw.choice((2, 4, 8, 16)), draw.choice((8, 14, 16, 28, 32)), _log(draw, 16, 256), _log(draw, 16, 256),
        draw.choice((1, 3, 3, 3)), stride=draw.choice((1, 1, 2)),
    )  # fmt: skip


def _convolutions(draw: random.Random) -> Iterator[Layer]:
    for _ in range(56):
        yield from _dense(draw)
    for batch, side, outputs, kernel, stride in (
        (64, 224, 64, 7, 2), (32, 224, 32, 3, 2), (128, 32, 64, 3, 1), (64, 224, 96, 4, 4), (64, 224, 384, 16, 16),
        (256, 32, 16, 3, 1), (16, 224, 64, 3, 1),
    ):  # fmt: skip
        padding = 0 if kernel == stride else kernel // 2
        yield from _conv(2, batch, side, 3, outputs, kernel, stride=stride, padding=padding)
    for _ in range(24):
        yield from _grouped(draw)
    for _ in range(32):
        yield from _depthwise(draw)
    for _ in range(6):
        yield from _transposed_convolution(draw)
    for batch, side, inputs, outputs in ((64, 28, 128, 128), (128, 14, 256, 512), (32, 56, 64, 64)):
        yield from _conv(2, batch, side, inputs, outputs, 3, name="biased-convolution")


def _other_dimensions(draw: random.Random) -> Iterator[Layer]:
    for _ in range(14):
        yield from _line(draw)
    for width, kernel in ((256, 3), (512, 31), (144, 15), (384, 7)):
        yield from _conv(1, 32, 1000, width, width, kernel, groups=width)
    for _ in range(12):
        yield from _volume(draw)
    yield from _conv(3, 4, 56, 3, 64, 3)
    yield from _conv(3, 8, 16, 128, 128, 3, groups=128)
    for kind, batch, steps, inputs, width, layers in (
        ("LSTM", 20, 35, 650, 650, 2), ("LSTM", 64, 70, 256, 512, 1), ("LSTM", 128, 100, 512, 512, 2),
        ("LSTM", 32, 200, 128, 256, 1),
        ("LSTM", 256, 50, 1024, 1024, 1), ("GRU", 64, 100, 256, 512, 1), ("GRU", 128, 50, 512, 1024, 2),
        ("RNN", 64, 100, 256, 512, 1),
    ):  # fmt: skip
        yield Layer(
            name="recurrent", arguments={"kind": kind, "inputs": inputs, "width": width, "layers": layers},
            shapes=((batch, steps, inputs),),
        )  # fmt: skip


def _norms(draw: random.Random) -> Iterator[Layer]:
    for batch, width, side in (
        (64, 64, 112), (64, 64, 56), (64, 256, 56), (128, 128, 28), (128, 512, 28), (64, 1024, 14), (64, 2048, 7),
        (32, 32, 112),
        (256, 16, 32), (16, 512, 14), (8, 256, 28), (256, 96, 14), (128, 960, 7),
    ):  # fmt: skip
        for channels_last in (False, True):
            yield Layer(
                name="batch-norm", arguments={"dims": 2, "features": width}, shapes=((batch, width, side, side),),
                channels_last=channels_last,
            )  # fmt: skip
            if width % 32 == 0:
                yield Layer(
                    name="group-norm", arguments={"num_groups": 32, "num_channels": width},
                    shapes=((batch, width, side, side),), channels_last=channels_last,
                )  # fmt: skip
    yield Layer(name="batch-norm", arguments={"dims": 1, "features": 1024}, shapes=((4096, 1024),))
    yield Layer(name="batch-norm", arguments={"dims": 1, "features": 256}, shapes=((32, 256, 1000),))
    for channels_last in (False, True):
        yield Layer(
            name="batch-norm",
            arguments={"dims": 3, "features": 64},
            shapes=((8, 64, 16, 28, 28),),
            channels_last=channels_last,
        )
    for _ in range(18):
        rows, width = _log(draw, 64, 131072), _log(draw, 64, 4096, 16)
        yield Layer(name="layer-norm", arguments={"normalized_shape": width}, shapes=((rows, width),))
    for rows, width in ((16384, 512), (4096, 1024), (65536, 256), (2048, 4096)):
        yield Layer(name="rms-norm", arguments={"normalized_shape": width}, shapes=((rows, width),))
    yield Layer(name="layer-norm", arguments={"normalized_shape": 96}, shapes=((64, 56, 56, 96),))
    yield Layer(name="layer-norm", arguments={"normalized_shape": 768}, shapes=((64, 14, 14, 768),))


def _elementwise(draw: random.Random) -> Iterator[Layer]:
    unary = ("relu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "leaky_relu", "exp", "rsqrt", "dropout", "square")
    for name in unary:
        for size in (1 << 14, 1 << 18, 1 << 21, 1 << 23, 1 << 26):
            yield Layer(name="function", arguments={"name": name}, shapes=((size >> 8, 256),))
    yield Layer(name="function", arguments={"name": "gelu", "approximate": "tanh"}, shapes=((32768, 1024),))
    for name in ("add", "mul"):
        for size in (1 << 14, 1 << 18, 1 << 21, 1 << 23, 1 << 26):
            yield Layer(name="function", arguments={"name": name}, shapes=((size >> 8, 256),) * 2)
    for shape in ((64, 56, 56, 96), (16384, 768), (65536, 128)):
        yield Layer(name="scale", arguments={"shape": shape[-1:]}, shapes=(shape,))
    for shape in ((64, 256, 28, 28), (128, 96, 14, 14)):
        yield Layer(name="function", arguments={"name": "mul"}, shapes=(shape, (*shape[:2], 1, 1)))


def _rows(draw: random.Random) -> Iterator[Layer]:
    for rows, width in ((98304, 128), (24576, 512), (8192, 1024), (49152, 49), (2048, 2048), (512, 1000), (16384, 196)):
        yield Layer(name="function", arguments={"name": "softmax", "dim": -1}, shapes=((rows, width),))
    for rows, classes in ((256, 1000), (2048, 50257), (8192, 8192), (16384, 1024), (128, 10), (4096, 30522)):
        yield Layer(name="loss", arguments={"classes": classes}, shapes=((rows, classes),))
    for shape, dims in (
        ((64, 2048, 7, 7), (2, 3)), ((128, 256, 14, 14), (2, 3)), ((64, 196, 768), (1,)), ((8192, 1024), (0,)),
        ((8192, 1024), (1,)),
        ((65536, 96), (0,)), ((32, 512, 28, 28), (2, 3)), ((256, 128, 1024), (0, 1)),
    ):  # fmt: skip
        yield Layer(name="mean", arguments={"dims": dims}, shapes=(shape,))
    for words, width, tokens in ((50257, 768, 4096), (30522, 1024, 4096), (10000, 650, 700), (8192, 512, 16384)):
        yield Layer(
            name="embedding", arguments={"num_embeddings": words, "embedding_dim": width}, shapes=((tokens // 64, 64),)
        )


def _pools(draw: random.Random) -> Iterator[Layer]:
    for batch, width, side in ((64, 64, 112), (64, 256, 28), (128, 192, 27), (32, 512, 14)):
        for channels_last in (False, True):
            for kind, options in (
                ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
                ("MaxPool2d", {"kernel_size": 2}),
                ("AvgPool2d", {"kernel_size": 3, "stride": 1, "padding": 1}),
                ("AdaptiveAvgPool2d", {"output_size": 1}),
            ):
                yield Layer(
                    name="pool", arguments={"kind": kind, **options}, shapes=((batch, width, side, side),),
                    channels_last=channels_last,
                )  # fmt: skip


def _moves(draw: random.Random) -> Iterator[Layer]:
    for count, size in ((64, 1 << 20), (200, 1 << 12), (16, 1 << 24)):
        for kind, fused in (("SGD", False), ("SGD", True), ("Adam", False), ("AdamW", True)):
            yield Layer(
                name="parameters",
                arguments={"count": count, "size": size, "optimizer": kind, "fused": fused},
                shapes=((1,),),
            )
    for size in (1 << 14, 1 << 18, 1 << 21, 1 << 23, 1 << 26):
        yield Layer(name="cast", shapes=((size,),))
    for shape, dims in (
        ((64, 512, 768), (0, 2, 1)), ((64, 196, 512), (0, 2, 1)), ((16, 512, 12, 64), (0, 2, 1, 3)),
        ((64, 12, 128, 64), (0, 2, 1, 3)),
        ((64, 128, 28, 28), (0, 2, 3, 1)), ((64, 28, 28, 128), (0, 3, 1, 2)), ((64, 96, 56, 56), (0, 2, 3, 1)),
        ((64, 56, 56, 96), (0, 3, 1, 2)), ((8, 1024, 16, 64), (0, 2, 3, 1)),
    ):  # fmt: skip
        yield Layer(name="transpose", arguments={"dims": dims}, shapes=(shape,))
    for side, width, window in ((56, 96, 7), (28, 192, 7), (14, 384, 7)):
        yield Layer(name="windows", arguments={"side": window}, shapes=((64, side, side, width),))
        yield Layer(name="roll", arguments={"by": -3}, shapes=((64, side, side, width),))
    for width, side in ((116, 28), (232, 14), (64, 56)):
        for channels_last in (False, True):
            shape = (64, width, side, side)
            yield Layer(name="cat", arguments={"dim": 1}, shapes=(shape, shape), channels_last=channels_last)
            yield Layer(name="shuffle", arguments={"groups": 2}, shapes=(shape,), channels_last=channels_last)


def _more(draw: random.Random) -> Iterator[Layer]:
    """More draws of the classes whose times depend on their shapes most."""
    for _ in range(110):
        yield from _linear(_log(draw, 64, 65536, 32), _log(draw, 32, 8192, 32), _log(draw, 32, 8192, 32))
    for _ in range(24):
        yield from _linear(_log(draw, 256, 32768, 1), _log(draw, 32, 8192, 2), _log(draw, 32, 16384, 1))
    for make, count in (
        (_dense, 170), (_grouped, 60), (_depthwise, 60), (_transposed_convolution, 14), (_line, 30), (_volume, 30),
    ):  # fmt: skip
        for _ in range(count):
            yield from make(draw)
    for _ in range(24):
        side, width = draw.choice((7, 14, 28, 56, 112)), _log(draw, 16, 2048, 16)
        for channels_last in (False, True):
            yield Layer(
                name="batch-norm", arguments={"dims": 2, "features": width},
                shapes=((min(256, 1 << 20 >> (width * side // 64).bit_length()), width, side, side),),
                channels_last=channels_last,
            )  # fmt: skip
    for _ in range(16):
        batch, heads, tokens = _log(draw, 2, 64, 2), draw.choice((4, 8, 12, 16)), _log(draw, 64, 2048, 32)
        if batch * heads * tokens * tokens < 1 << 30:
            yield Layer(
                name="attention", arguments={"causal": draw.random() < 0.5},
                shapes=((batch, heads, tokens, draw.choice((64, 64, 128))),) * 3, flops=1.0,
            )  # fmt: skip
    for _ in range(14):
        rows, width = _log(draw, 64, 131072), _log(draw, 64, 4096, 16)
        yield Layer(name="layer-norm", arguments={"normalized_shape": width}, shapes=((rows, width),))
    for _ in range(10):
        count, m, n, k = _log(draw, 8, 1024), _log(draw, 32, 1024), _log(draw, 32, 1024), _log(draw, 32, 512)
        if count * m * n <= LARGEST:
            yield Layer(name="matmul", shapes=((count, m, k), (count, k, n)), flops=2.0 * count * m * n * k)


def _larger(draw: random.Random) -> Iterator[Layer]:
    """Layers of hundreds of megabytes, which leave the cache, and more of the classes of which few were drawn."""
    for _ in range(80):
        side = draw.choice((7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224))
        most = max(64.0, min(1024.0, 16384 / side))
        yield from _conv(
            2, _log(draw, 16, 512), side, _log(draw, 32, most, 32), _log(draw, 32, most, 32),
            draw.choice((1, 3, 3, 3, 5)), stride=draw.choice((1, 1, 1, 2)), largest=4 * LARGEST,
        )  # fmt: skip
    for _ in range(24):
        side, width = draw.choice((7, 14, 28, 56, 112)), _log(draw, 32, 1024)
        yield from _conv(
            2, _log(draw, 64, 512), side, width, width, draw.choice((3, 3, 5, 7)), groups=width,
            stride=draw.choice((1, 1, 2)), largest=2 * LARGEST,
        )  # fmt: skip
    for _ in range(14):
        side, name = draw.choice((8, 16, 32, 64)), draw.choice(("convolution", "transposed-convolution"))
        yield from _conv(
            2, _log(draw, 64, 512), side, _log(draw, 32, 512, 32), _log(draw, 32, 512, 32), 4, name=name, stride=2,
            padding=1,
        )  # fmt: skip
    for _ in range(18):
        width = _log(draw, 32, 512)
        yield from _conv(
            1, _log(draw, 8, 64), _log(draw, 512, 16384), width, width, draw.choice((2, 3, 3, 5)),
            dilation=2 ** draw.randrange(8),
        )  # fmt: skip
    yield from _larger_rows(draw)


def _larger_rows(draw: random.Random) -> Iterator[Layer]:
    for _ in range(18):
        inputs, width = _log(draw, 128, 1024, 2), _log(draw, 128, 1536, 2)
        yield Layer(
            name="recurrent",
            arguments={
                "kind": draw.choice(("LSTM", "LSTM", "GRU")), "inputs": inputs, "width": width,
                "layers": draw.choice((1, 2)),
            },
            shapes=((_log(draw, 16, 256, 4), _log(draw, 16, 128, 1), inputs),),
        )  # fmt: skip
    for _ in range(14):
        yield from _linear(_log(draw, 512, 16384, 16), _log(draw, 256, 1600, 2), _log(draw, 8000, 60000, 1))
    for kind, options in (("MaxPool2d", {"kernel_size": 2}), ("MaxPool2d", {"kernel_size": 3, "stride": 2})):
        for _ in range(4):
            shape = (_log(draw, 32, 128), _log(draw, 32, 256), *(draw.choice((28, 55, 56, 112)),) * 2)
            for channels_last in (False, True):
                yield Layer(
                    name="pool", arguments={"kind": kind, **options}, shapes=(shape,), channels_last=channels_last
                )
    for _ in range(10):
        side, width = draw.choice((14, 28, 56, 112)), _log(draw, 32, 1024, 16)
        for channels_last in (False, True):
            yield Layer(
                name="batch-norm", arguments={"dims": 2, "features": width},
                shapes=((_log(draw, 32, 256), width, side, side),), channels_last=channels_last,
            )  # fmt: skip
    for name, count in (("relu", 1), ("gelu", 1), ("silu", 1), ("dropout", 1), ("add", 2), ("mul", 2)):
        yield Layer(name="function", arguments={"name": name}, shapes=((1 << 19, 256),) * count)
    for rows, width in ((262144, 768), (131072, 1024), (524288, 256)):
        yield Layer(name="layer-norm", arguments={"normalized_shape": width}, shapes=((rows, width),))
        yield Layer(name="function", arguments={"name": "softmax", "dim": -1}, shapes=((rows, width),))
    for rows, classes in ((8192, 30522), (4096, 50257), (16384, 10000)):
        yield Layer(name="loss", arguments={"classes": classes}, shapes=((rows, classes),))
    for images, order in (((256, 96, 56, 56), (0, 2, 3, 1)), ((256, 56, 56, 96), (0, 3, 1, 2))):
        yield Layer(name="transpose", arguments={"dims": order}, shapes=(images,))
    for batch, heads, tokens, causal in ((64, 16, 512, False), (16, 16, 1024, True), (8, 32, 2048, True)):
        yield Layer(name="attention", arguments={"causal": causal}, shapes=((batch, heads, tokens, 64),) * 3, flops=1.0)


_WIDTHS = (
    16,
    24,
    32,
    40,
    48,
    64,
    80,
    96,
    112,
    128,
    160,
    192,
    224,
    256,
    320,
    384,
    512,
    640,
    768,
    1024,
    1280,
    1536,
    2048,
)
"""Channels and widths as networks have them."""


def _width(draw: random.Random, middle: float, spread: float = 2.0) -> int:
    """A usual width around another one, within so many doublings."""
    near = [width for width in _WIDTHS if middle / 2**spread <= width <= middle * 2**spread]
    return draw.choice(near or [min(_WIDTHS, key=lambda width: abs(width - middle))])


def _batch(draw: random.Random, low: int = 3, high: int = 8) -> int:
    return 1 << draw.randint(low, high)


def _usual(draw: random.Random) -> Iterator[Layer]:
    """Layers whose sizes are drawn as networks have them: powers of two and their sums, halved sides, usual ratios."""
    for make, count in (
        (_usual_dense, 300), (_usual_grouped, 70), (_usual_depthwise, 80), (_usual_line, 40), (_usual_volume, 45),
        (_usual_linear, 170), (_usual_attention, 36), (_usual_norm, 60),
    ):  # fmt: skip
        for _ in range(count):
            yield from make(draw)
    yield from _usual_moves(draw)


def _usual_dense(draw: random.Random) -> Iterator[Layer]:
    side = draw.choice((7, 7, 14, 14, 28, 28, 56, 56, 112, 8, 16, 32, 64, 13, 27, 17, 35, 224))
    inputs = _width(draw, 4096 / side)
    ratio = draw.choice((1, 1, 1, 1, 2, 2, 4, 0.25, 0.5, 0))
    outputs = round(inputs * ratio) if ratio else _width(draw, 4096 / side)
    if 8 <= outputs <= 2560:
        kernel, stride = draw.choice((1, 1, 1, 3, 3, 3, 5, (1, 7), (7, 1))), draw.choice((1, 1, 1, 1, 2))
        yield from _conv(2, _batch(draw), side, inputs, outputs, kernel, stride=stride, largest=2 * LARGEST)


def _usual_grouped(draw: random.Random) -> Iterator[Layer]:
    side, each = draw.choice((7, 14, 14, 28, 28, 56)), draw.choice((4, 8, 12, 16, 16, 24, 24, 32, 40, 48, 56, 64))
    groups = max(2, round(draw.choice((4096, 8192, 8192)) / side / each * 2 ** draw.uniform(-1, 1)))
    if groups * each <= 3072:
        yield from _conv(
            2, _batch(draw, 4, 7), side, groups * each, groups * each, 3, groups=groups, stride=draw.choice((1, 1, 2))
        )


def _usual_depthwise(draw: random.Random) -> Iterator[Layer]:
    side = draw.choice((7, 14, 14, 28, 28, 56, 112))
    width = _width(draw, 1536 / side) * draw.choice((1, 1, 2, 3, 4, 6))
    kernel, stride = draw.choice((3, 3, 3, 5, 5, 7)), draw.choice((1, 1, 1, 2))
    yield from _conv(2, _batch(draw, 4), side, width, width, kernel, groups=width, stride=stride, largest=2 * LARGEST)


def _usual_line(draw: random.Random) -> Iterator[Layer]:
    width, length = _width(draw, 256), 1 << draw.randint(7, 14)
    groups = width if draw.random() < 0.25 else 1
    outputs = width if groups > 1 else _width(draw, 256)
    yield from _conv(
        1, _batch(draw, 2, 6), length, width, outputs, draw.choice((1, 1, 3, 3, 5, 7, 15, 31)), groups=groups,
        stride=draw.choice((1, 1, 1, 2)), dilation=draw.choice((1, 1, 1, 2, 4, 16)),
    )  # fmt: skip


def _usual_volume(draw: random.Random) -> Iterator[Layer]:
    side = draw.choice((4, 7, 8, 14, 16, 28, 32, 56))
    inputs = _width(draw, 1536 / side)
    kernel = draw.choice((3, 3, 1, (1, 3, 3), (1, 3, 3), (3, 1, 1), (3, 1, 1)))
    outputs = draw.choice((inputs, inputs, 2 * inputs, 4 * inputs, inputs // 2))
    yield from _conv(3, _batch(draw, 0, 5), side, inputs, outputs, kernel, stride=draw.choice((1, 1, 1, 2)))


def _usual_linear(draw: random.Random) -> Iterator[Layer]:
    tokens = draw.choice((1, 1, 1, 49, 64, 128, 196, 197, 256, 512, 1024))
    rows, inputs = _batch(draw, 4, 12 if tokens == 1 else 7) * tokens, _width(draw, 1024, 2.5)
    outputs = draw.choice((inputs, inputs, 3 * inputs, 4 * inputs, inputs // 4, 2 * inputs, 4096, 1000, 10, 32000))
    if rows * max(inputs, outputs) <= 2 * LARGEST:
        yield from _linear(rows, *draw.choice(((inputs, outputs), (inputs, outputs), (outputs, inputs))))


def _usual_attention(draw: random.Random) -> Iterator[Layer]:
    batch, heads, tokens = (
        _batch(draw, 1, 7),
        draw.choice((3, 4, 6, 8, 12, 16, 32)),
        draw.choice((49, 64, 128, 196, 197)),
    )
    if draw.random() < 0.5:
        batch, tokens = max(1, batch // 8), draw.choice((256, 384, 512, 1024, 2048))
    width = draw.choice((32, 64, 64, 64, 80, 96, 128))
    if batch * heads * tokens * tokens <= 2 * LARGEST:
        shape = (batch, heads, tokens, width)
        yield Layer(
            name="attention",
            arguments={"causal": tokens >= 256 and draw.random() < 0.5},
            shapes=(shape,) * 3,
            flops=1.0,
        )
        if draw.random() < 0.7:
            turned = (batch, heads, width, tokens)
            yield Layer(name="matmul", shapes=(shape, turned), flops=2.0 * batch * heads * tokens * tokens * width)
            yield Layer(
                name="function", arguments={"name": "softmax", "dim": -1}, shapes=((batch, heads, tokens, tokens),)
            )


def _usual_norm(draw: random.Random) -> Iterator[Layer]:
    side = draw.choice((7, 14, 28, 56, 112))
    width, batch = _width(draw, 4096 / side) * draw.choice((1, 1, 1, 4)), _batch(draw)
    if batch * width * side * side <= LARGEST:
        for channels_last in (False, True):
            shape = (batch, width, side, side)
            yield Layer(
                name="batch-norm",
                arguments={"dims": 2, "features": width},
                shapes=(shape,),
                channels_last=channels_last,
            )
    if draw.random() < 0.6:
        rows, width = _batch(draw, 3, 7) * draw.choice((49, 64, 128, 196, 512, 1024, 3136)), _width(draw, 512)
        yield Layer(name="layer-norm", arguments={"normalized_shape": width}, shapes=((rows, width),))


def _usual_moves(draw: random.Random) -> Iterator[Layer]:
    for name in ("relu", "gelu", "silu", "tanh", "dropout", "hardswish", "add", "mul"):
        for exponent in (16, 20, 22, 24, 25):
            shape = (1 << exponent >> 8, 256)
            yield Layer(
                name="function", arguments={"name": name}, shapes=(shape,) * (2 if name in ("add", "mul") else 1)
            )
    for exponent in (16, 20, 22, 24):
        yield Layer(name="cast", shapes=((1 << exponent,),))
    for count, size in ((8, 1 << 20), (60, 1 << 14), (150, 1 << 17), (30, 1 << 22), (400, 1 << 16), (160, 1 << 19)):
        for kind, fused in (("SGD", False), ("SGD", True), ("Adam", False), ("AdamW", False), ("AdamW", True)):
            arguments = {"count": count, "size": size, "optimizer": kind, "fused": fused}
            yield Layer(name="parameters", arguments=arguments, shapes=((1,),))
    for _ in range(12):
        images = (_batch(draw, 4, 7), _width(draw, 128), *(draw.choice((14, 28, 56, 112)),) * 2)
        for channels_last in (False, True):
            for kind, options in (
                ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}), ("MaxPool2d", {"kernel_size": 2}),
                ("AdaptiveAvgPool2d", {"output_size": 1}),
            ):  # fmt: skip
                yield Layer(
                    name="pool", arguments={"kind": kind, **options}, shapes=(images,), channels_last=channels_last
                )
