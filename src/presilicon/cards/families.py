"""Layers of well-known networks: the sizes that most networks share, each at two batch sizes.

Random sizes (`suite`) tell how time depends on shape; these are the shapes that users have. Families are written as
their papers give them, so that one description stands for all depths.
"""

from collections.abc import Iterable, Iterator
from math import prod

from msgspec import structs

from presilicon.cards.layers import Layer, Shape, convolution_layer
from presilicon.records import Convolution

MOST_ELEMENTS, MOST_FLOPS = 1 << 29, 3e12


def _convolution(
    size: Shape, inputs: int, outputs: int, kernel: Shape, stride: Shape, groups: int = 1, padding: Shape = (),
    dilation: int = 1, transposed: bool = False,
) -> Convolution:  # fmt: skip
    """A convolution of one image, line or volume; without `padding`, half the kernel."""
    padding = padding or tuple(dilation * (taps - 1) // 2 for taps in kernel)
    axes = zip(size, kernel, stride, padding, strict=True)
    if transposed:
        result = tuple((length - 1) * step - 2 * pad + taps for length, taps, step, pad in axes)
    else:
        result = tuple((length + 2 * pad - dilation * (taps - 1) - 1) // step + 1 for length, taps, step, pad in axes)
    return Convolution(
        1, inputs, outputs, size, result, kernel, stride, padding, (dilation,) * len(size), groups, transposed
    )  # fmt: skip


def _image(
    side: int, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, padding: int | None = None,
    transposed: bool = False,
) -> Convolution:  # fmt: skip
    pads = () if padding is None else (padding, padding)
    size, taps, steps = (side, side), (kernel, kernel), (stride, stride)
    return _convolution(size, inputs, outputs, taps, steps, groups, pads, transposed=transposed)


def _layers(convolution: Convolution, batch: int) -> Iterator[Layer]:
    """The layers of a convolution for a batch, in both layouts; none where they would be too large."""
    whole = structs.replace(convolution, batch=batch)
    inputs = whole.in_channels * prod(whole.input_size)
    largest = batch * max(inputs, whole.out_channels * prod(whole.output_size))
    for channels_last in (False, True) if len(whole.kernel) > 1 else (False,):
        layer = convolution_layer(whole, channels_last=channels_last)
        if largest <= MOST_ELEMENTS and layer.flops <= MOST_FLOPS:
            yield layer


def _vgg(side: int) -> Iterator[Convolution]:
    inputs = 3
    for width in (64, 128, 256, 512, 512):
        for before in dict.fromkeys((inputs, width)):
            yield _image(side, before, width, 3)
        inputs, side = width, side // 2


def _alexnet() -> Iterator[Convolution]:
    for first, *others in ((64, 192, 384, 256, 256), (96, 256, 384, 384, 256)):
        yield _image(224, 3, first, 11, 4, padding=2)
        for before, width, kernel in zip((first, *others), others, (5, 3, 3, 3), strict=False):
            yield _image(27 if kernel == 5 else 13, before, width, kernel)


def _basic(side: int, widths: Shape) -> Iterator[Convolution]:
    """ResNets of blocks with two convolutions."""
    before = widths[0]
    for width in widths:
        stride = 1 if width == before else 2
        yield _image(side, before, width, 3, stride)
        if stride == 2:
            yield _image(side, before, width, 1, 2)
            side //= 2
        yield _image(side, width, width, 3)
        before = width


def _bottlenecks(widen: int = 1, groups: int = 1) -> Iterator[Convolution]:
    """ResNet-50 and deeper; wide ones and ResNeXt have wider middles."""
    before, side = 64, 56
    for width in (64, 128, 256, 512):
        middle, after, stride = width * widen, 4 * width, 1 if width == 64 else 2
        yield _image(side, before, middle, 1)
        yield _image(side, middle, middle, 3, stride, groups)
        yield _image(side, before, after, 1, stride)
        side //= stride
        yield _image(side, middle, after, 1)
        yield _image(side, after, middle, 1)
        yield _image(side, middle, middle, 3, 1, groups)
        before = after


def _inception() -> Iterator[Convolution]:
    """Inception v3, without padding where it has none."""
    for side, inputs, outputs, kernel, stride in (
        (299, 3, 32, 3, 2), (149, 32, 32, 3, 1), (73, 64, 80, 1, 1), (73, 80, 192, 3, 1), (35, 288, 384, 3, 2),
        (35, 96, 96, 3, 2), (17, 192, 320, 3, 2), (17, 192, 192, 3, 2), (5, 768, 128, 1, 1), (5, 128, 768, 5, 1),
    ):  # fmt: skip
        yield _image(side, inputs, outputs, kernel, stride, padding=0)
    for side, inputs, widths, kernel in (
        (147, 32, (64,), 3), (35, 192, (64, 48, 32), 1), (35, 256, (64, 48), 1), (35, 288, (64, 48), 1),
        (35, 48, (64,), 5), (35, 64, (96,), 3), (35, 96, (96,), 3), (17, 768, (192, 160, 128), 1),
        (8, 1280, (320, 384, 448, 192), 1), (8, 2048, (320, 384, 448, 192), 1), (8, 448, (384,), 3),
    ):  # fmt: skip
        for width in widths:
            yield _image(side, inputs, width, kernel)
    lines = [(17, inputs, outputs, 7) for inputs in (128, 160, 192) for outputs in dict.fromkeys((inputs, 192))]
    for side, inputs, outputs, taps in (*lines, (8, 384, 384, 3)):
        yield _convolution((side, side), inputs, outputs, (1, taps), (1, 1))
        yield _convolution((side, side), inputs, outputs, (taps, 1), (1, 1))


def _densenet() -> Iterator[Convolution]:
    """Dense blocks with a growth of 32; every second or fourth of their many widths."""
    for side, widths in ((56, (64, 128, 192)), (28, (128, 256, 384)), (14, (256, 384, 512, 768, 1024, 1536)),
                         (7, (512, 640, 896, 1024, 1280, 1792))):  # fmt: skip
        yield _image(side, 128, 32, 3)
        for width in widths:
            yield _image(side, width, 128, 1)
    for side, width in ((56, 256), (28, 512), (14, 1024), (14, 1792)):
        yield _image(side, width, width // 2, 1)


def _separable() -> Iterator[Convolution]:
    """MobileNets and EfficientNets: depthwise convolutions between pointwise ones."""
    side, before = 112, 32
    yield _image(224, 3, 32, 3, 2)
    yield _image(224, 3, 16, 3, 2)
    for width, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (1024, 2), (1024, 1)):
        yield _image(side, before, before, 3, stride, before)
        side //= stride
        yield _image(side, before, width, 1)
        before = width
    for side, before, after, stride, kernel, expands in (
        (112, 32, 16, 1, 3, (1,)), (112, 16, 24, 2, 3, (6,)), (56, 24, 24, 1, 3, (6, 3)), (56, 24, 40, 2, 5, (6, 3)),
        (56, 24, 32, 2, 3, (6,)), (28, 32, 32, 1, 3, (6,)), (28, 40, 40, 1, 5, (6, 3)), (28, 32, 64, 2, 3, (6,)),
        (28, 40, 80, 2, 3, (6,)), (14, 64, 64, 1, 3, (6,)), (14, 80, 80, 1, 3, (6,)), (14, 64, 96, 1, 3, (6,)),
        (14, 80, 112, 1, 5, (6,)), (14, 112, 112, 1, 5, (6,)), (14, 96, 160, 2, 3, (6,)), (14, 112, 192, 2, 5, (6,)),
        (7, 160, 160, 1, 3, (6,)), (7, 192, 192, 1, 5, (6,)), (7, 160, 320, 1, 3, (6,)), (7, 192, 320, 1, 3, (6,)),
    ):  # fmt: skip
        for width in (before * expand for expand in expands):
            yield _image(side, before, width, 1)
            yield _image(side, width, width, kernel, stride, width)
            yield _image(side // stride, width, after, 1)
    for width in (1280, 960):
        yield _image(7, width // 4 * (1 if width == 1280 else 4), width, 1)


def _others() -> Iterator[Convolution]:
    """ShuffleNet, ConvNeXt, patches of transformers, SqueezeNet, U-Net, DCGAN, RegNet."""
    for side, width in ((28, 58), (14, 116), (7, 232)):
        yield _image(side, width, width, 1)
        yield _image(side, width, width, 3, 1, width)
        yield _image(2 * side, width, width, 3, 2, width)
    for side, scale in ((56, 1), (28, 2), (14, 4), (7, 8)):
        for width in (96 * scale, 128 * scale):
            yield _image(side, width, width, 7, 1, width)
            if side > 7:
                yield _image(side, width, 2 * width, 2, 2, padding=0)
    for width, patch in ((96, 4), (128, 4), (384, 16), (768, 16), (768, 32), (1024, 16)):
        yield _image(224, 3, width, patch, patch, padding=0)
    for side, squeezed, width in ((55, 16, 64), (27, 32, 128), (13, 48, 192), (13, 64, 256)):
        yield _image(side, 2 * width, squeezed, 1)
        yield _image(side, squeezed, width, 1)
        yield _image(side, squeezed, width, 3)
    for side, width in ((256, 32), (256, 64), (128, 128), (64, 256), (32, 512), (16, 1024)):
        yield _image(side, width, width, 3)
        if width > 32:
            yield _image(side, width // 2, width, 3)
            yield _image(side, 2 * width, width, 3)
            yield _image(side // 2, 2 * width, width, 2, 2, padding=0, transposed=True)
    for side, inputs, outputs in ((64, 3, 64), (32, 64, 128), (16, 128, 256), (8, 256, 512)):
        yield _image(side, inputs, outputs, 4, 2, padding=1)
        yield _image(side // 2, outputs, inputs, 4, 2, padding=1, transposed=True)
    yield _image(1, 100, 512, 4, 1, padding=0, transposed=True)
    yield _image(4, 512, 1, 4, 1, padding=0)
    for side, width, each in ((56, 48, 8), (28, 96, 8), (14, 240, 24), (7, 528, 24), (28, 120, 8), (14, 336, 24)):
        yield _image(side, width, width, 3, 1, width // each)
        yield _image(2 * side, width, width, 3, 2, width // each)


def _volumes() -> Iterator[Convolution]:
    """Videos and scans: whole kernels, and kernels of one frame or one point."""
    yield _convolution((16, 112, 112), 3, 64, (3, 7, 7), (1, 2, 2))
    yield _convolution((16, 112, 112), 3, 45, (1, 7, 7), (1, 2, 2))
    size: Shape = (16, 56, 56)
    before = 64
    for width, middle in ((64, 144), (128, 230), (256, 460), (512, 921)):
        if width > 64:
            yield _convolution(size, before, width, (3, 3, 3), (2, 2, 2))
            yield _convolution(size, before, width, (1, 1, 1), (2, 2, 2))
            size = tuple(length // 2 for length in size)
        yield _convolution(size, width, width, (3, 3, 3), (1, 1, 1))
        yield _convolution(size, width, middle, (1, 3, 3), (1, 1, 1))
        yield _convolution(size, middle, width, (3, 1, 1), (1, 1, 1))
        yield _convolution(size, width, width, (1, 3, 3), (1, 1, 1))
        yield _convolution(size, width, width, (3, 1, 1), (1, 1, 1))
        yield _convolution(size, width, 4 * width, (1, 1, 1), (1, 1, 1))
        yield _convolution(size, 4 * width, width, (1, 1, 1), (1, 1, 1))
        before = width
    for side, width in ((64, 32), (32, 64), (16, 128), (8, 256)):
        yield _convolution((side,) * 3, width, width, (3, 3, 3), (1, 1, 1))
        yield _convolution((side,) * 3, 2 * width, width, (3, 3, 3), (1, 1, 1))
        yield _convolution((side // 2,) * 3, 2 * width, width, (2, 2, 2), (2, 2, 2), padding=(0, 0, 0), transposed=True)


def _lines() -> Iterator[Convolution]:
    """Audio and text: dilated, separable and strided convolutions."""
    for length, width in ((4096, 64), (8000, 64), (8192, 128), (2048, 256), (1024, 512)):
        for kernel, dilation in ((2, 1), (2, 8), (2, 64), (3, 1), (3, 4), (3, 16), (3, 128), (1, 1)):
            yield _convolution((length,), width, width, (kernel,), (1,), dilation=dilation)
        yield _convolution((length,), width, 2 * width, (3,), (1,))
        yield _convolution((length,), width, 2 * width, (1,), (1,))
    for length, width, kernel in ((512, 256, 31), (512, 512, 31), (1000, 144, 15), (400, 256, 15), (1000, 512, 5)):
        yield _convolution((length,), width, width, (kernel,), (1,), width)
        yield _convolution((length,), width, 2 * width, (1,), (1,))
        yield _convolution((length,), 2 * width, width, (1,), (1,))
    for length, inputs, kernel, stride in ((3199, 512, 3, 2), (1599, 512, 3, 2), (3000, 80, 3, 1), (3000, 512, 3, 2)):
        yield _convolution((length,), inputs, 512, (kernel,), (stride,))


def _linears() -> Iterator[tuple[int, int, int]]:
    """Rows, inputs and outputs: transformers, window attention, perceptrons, classifiers, vocabularies."""
    for width in (256, 384, 512, 768, 1024, 1280, 1600, 2048):
        for rows in (1024, 2048, 4096, 8192, 16384, 32768):
            if rows * width <= 1 << 24:
                yield from ((rows, width, width), (rows, width, 3 * width))
                yield from ((rows, width, 4 * width), (rows, 4 * width, width))
    for width, rows in ((768, 6304), (384, 12608), (192, 25216), (1024, 6304)):
        yield from ((rows, width, 3 * width), (rows, width, width), (rows, width, 4 * width), (rows, 4 * width, width))
    for side, width in ((56, 96), (28, 192), (14, 384), (7, 768), (56, 128), (28, 256), (14, 512), (7, 1024)):
        rows = 64 * side * side
        yield from ((rows, width, 3 * width), (rows, width, width), (rows, width, 4 * width), (rows, 4 * width, width))
        if side > 7:
            yield rows // 4, 4 * width, 2 * width
    for rows in (64, 128, 256, 1024, 4096, 8192):
        for width in (256, 512, 1024, 2048, 4096):
            yield from ((rows, 784, width), (rows, width, width), (rows, width, 10))
    for rows in (32, 64, 128, 256):
        for inputs in (512, 768, 1024, 1280, 2048, 4096):
            yield rows, inputs, 1000
        yield from ((rows, 9216, 4096), (rows, 25088, 4096), (rows, 4096, 4096))
    for rows, width, words in (
        (2048, 768, 30522), (8192, 768, 30522), (1024, 1024, 30522), (4096, 1024, 30522), (4096, 768, 50257),
        (16384, 768, 50257), (4096, 1024, 50257), (4096, 2048, 32000), (8192, 512, 32000), (2560, 650, 10000),
    ):  # fmt: skip
        yield rows, width, words


def _attentions() -> Iterator[tuple[int, int, int, bool]]:
    """Sequences times heads, tokens, width of a head, whether causal."""
    for count, tokens, width in (
        (192, 128, 64), (768, 128, 64), (128, 128, 64), (512, 128, 64), (96, 512, 64), (384, 512, 64), (128, 256, 64),
        (768, 197, 64), (384, 197, 64), (1024, 197, 64), (768, 196, 64), (12288, 49, 32), (6144, 49, 32),
        (3072, 49, 32), (1536, 49, 32), (128, 384, 64), (256, 64, 64), (1024, 64, 64), (512, 100, 64),
    ):  # fmt: skip
        yield count, tokens, width, False
    for count, tokens, width in (
        (48, 1024, 64), (192, 1024, 64), (384, 1024, 64), (64, 1024, 64), (256, 512, 64), (96, 256, 64), (384, 256, 64),
        (32, 2048, 64), (32, 2048, 128), (128, 1024, 128), (64, 512, 128),
    ):  # fmt: skip
        yield count, tokens, width, True


def families() -> Iterator[Layer]:
    """All layers of well-known networks, each once."""
    images = dict.fromkeys((
        *_vgg(224), *_alexnet(), _image(224, 3, 64, 7, 2), *_basic(56, (64, 128, 256, 512)), *_bottlenecks(),
        *_bottlenecks(2), *_bottlenecks(2, 32), *_inception(), *_densenet(), *_separable(), *_others(),
    ))  # fmt: skip
    small = dict.fromkeys((*_vgg(32), *_basic(32, (16, 32, 64)), *_basic(32, (64, 128, 256, 512))))
    for convolutions, batches in ((images, (32, 128)), (small, (128, 512)), (_volumes(), (4, 16)), (_lines(), (16,))):
        for convolution in dict.fromkeys(convolutions):
            for batch in batches:
                yield from _layers(convolution, batch)
    for rows, inputs, outputs in dict.fromkeys(_linears()):
        arguments = {"in_features": inputs, "out_features": outputs, "bias": True}
        flops = 2.0 * rows * inputs * outputs
        yield Layer(name="linear", arguments=arguments, shapes=((rows, inputs),), flops=flops)
    for count, tokens, width, causal in _attentions():
        shapes, flops = ((count, 1, tokens, width),) * 3, 4.0 * count * tokens * tokens * width
        yield Layer(name="attention", arguments={"causal": causal}, shapes=shapes, flops=flops)
    yield from _norms((*images, *small))
    yield from _companions()
    # Measured times name a layer by its place, so that new ones come last.
    yield from _late()


def _late() -> Iterator[Layer]:
    """Layers of which too few were measured at first: long lines, kernels of one frame, average pools, few rows."""
    lines = (
        (16000, 1, 128, 80, 4), (8000, 1, 64, 80, 4), (16000, 1, 64, 400, 160), (8192, 1, 32, 64, 8),
        (4096, 2, 64, 49, 2), (2000, 64, 64, 65, 1), (1000, 32, 64, 25, 1),
    )  # fmt: skip
    for length, inputs, outputs, taps, stride in lines:
        for batch in (16, 64):
            yield from _layers(_convolution((length,), inputs, outputs, (taps,), (stride,)), batch)
    for frames, side, inputs, outputs in (
        (8, 56, 64, 64), (8, 28, 128, 128), (8, 14, 256, 256), (4, 56, 64, 256), (32, 28, 64, 128), (16, 56, 32, 64),
    ):  # fmt: skip
        for kernel in ((1, 3, 3), (3, 1, 1), (1, 1, 1), (5, 1, 1)):
            for batch in (8, 24):
                yield from _layers(_convolution((frames, side, side), inputs, outputs, kernel, (1, 1, 1)), batch)
    for batch, width, side in ((64, 128, 56), (64, 512, 14), (128, 256, 28), (32, 64, 112)):
        for window in (2, 5, 7):
            for channels_last in (False, True):
                arguments = {"kind": "AvgPool2d", "kernel_size": window, "stride": 2 if window == 2 else 1}
                shape = (batch, width, side, side)
                yield Layer(name="pool", arguments=arguments, shapes=(shape,), channels_last=channels_last)
    for rows in (1, 2, 4, 8, 12):
        for inputs, outputs in ((512, 512), (1024, 4096), (4096, 1000), (2048, 2048), (256, 10)):
            arguments = {"in_features": inputs, "out_features": outputs, "bias": True}
            flops = 2.0 * rows * inputs * outputs
            yield Layer(name="linear", arguments=arguments, shapes=((rows, inputs),), flops=flops)
    for batch, tokens, width, outputs in (
        (192, 64, 512, 256), (32, 196, 512, 256), (64, 256, 384, 192), (128, 49, 768, 384), (64, 196, 768, 384),
    ):  # fmt: skip
        for inputs, results in ((tokens, outputs), (outputs, tokens)):
            yield Layer(
                name="mixing", arguments={"inputs": inputs, "outputs": results}, shapes=((batch, inputs, width),),
                flops=2.0 * batch * tokens * width * outputs,
            )  # fmt: skip


def _norms(images: Iterable[Convolution]) -> Iterator[Layer]:
    """Batch normalization after the convolutions, layer normalization between transformers' linear layers."""
    for width, side in dict.fromkeys((conv.out_channels, conv.output_size[0]) for conv in images):
        if width * side * side * 64 <= MOST_ELEMENTS and width > 16 and side > 4:
            for channels_last in (False, True):
                yield Layer(
                    name="batch-norm", arguments={"dims": 2, "features": width}, shapes=((64, width, side, side),),
                    channels_last=channels_last,
                )  # fmt: skip
    for rows, width in dict.fromkeys((rows, width) for rows, width, _ in _linears() if rows >= 1024 and width < 2048):
        yield Layer(name="layer-norm", arguments={"normalized_shape": width}, shapes=((rows, width),))


def _companions() -> Iterator[Layer]:
    """Small kernels around products: biases and their gradients, losses of few classes, gates."""
    for batch, width, size in (
        (64, 64, (224, 224)), (16, 64, (112, 112)), (64, 128, (112, 112)), (64, 256, (56, 56)), (256, 64, (55, 55)),
        (256, 192, (27, 27)), (128, 384, (13, 13)), (512, 256, (13, 13)), (64, 512, (28, 28)), (64, 512, (14, 14)),
        (64, 96, (56, 56)), (128, 32, (112, 112)), (8, 1024, (16, 16)), (256, 16, (32, 32)), (32, 64, (64, 64)),
        (16, 64, (4096,)), (16, 128, (8192,)), (16, 256, (2048,)), (32, 512, (1024,)), (64, 1024, (2048,)),
        (16, 384, (8192,)), (8, 64, (16, 56, 56)), (4, 32, (64, 64, 64)), (8, 256, (4, 14, 14)),
    ):  # fmt: skip
        for channels_last in (False, True) if len(size) > 1 else (False,):
            yield Layer(
                name="channel-bias", arguments={"channels": width, "dims": len(size)}, shapes=((batch, width, *size),),
                channels_last=channels_last,
            )  # fmt: skip
    for rows, width in (
        (128, 10), (256, 1024), (256, 4096), (512, 2048), (1024, 1024), (4096, 1024), (2048, 4096), (4096, 4096),
        (8192, 768), (8192, 3072), (16384, 768), (32768, 384), (65536, 256), (8192, 30522), (200704, 96),
        (50176, 192), (12544, 384), (6304, 768), (2048, 768), (16384, 2304), (4096, 10), (64, 1000),
    ):  # fmt: skip
        yield Layer(name="sum", arguments={"dim": 0}, shapes=((rows, width),))
    for rows, classes in (
        (64, 10), (256, 10), (1024, 10), (4096, 10), (8192, 10), (128, 100), (32, 1000), (64, 1000), (512, 1000),
        (2048, 1000), (2560, 10000), (8192, 256),
    ):  # fmt: skip
        yield Layer(name="loss", arguments={"classes": classes}, shapes=((rows, classes),))
    for shape, dim in (((16, 384, 8192), 1), ((16, 128, 4096), 1), ((32, 512, 512), 1), ((32, 512, 1024), 2)):
        yield Layer(name="gate", arguments={"dim": dim}, shapes=(shape,))
    for kind, batch, steps, width, layers in (
        ("LSTM", 64, 35, 650, 2), ("LSTM", 128, 35, 650, 2), ("LSTM", 20, 35, 200, 2), ("LSTM", 32, 64, 512, 1),
        ("LSTM", 64, 64, 512, 2), ("LSTM", 32, 100, 256, 2), ("LSTM", 64, 128, 256, 1), ("LSTM", 128, 50, 1024, 2),
        ("LSTM", 256, 32, 512, 2), ("LSTM", 16, 64, 1024, 1), ("LSTM", 64, 48, 384, 3), ("GRU", 32, 64, 512, 1),
        ("GRU", 64, 64, 512, 2), ("GRU", 128, 35, 650, 2), ("GRU", 64, 50, 1024, 1), ("GRU", 32, 100, 256, 2),
    ):  # fmt: skip
        yield Layer(
            name="recurrent", arguments={"kind": kind, "inputs": width, "width": width, "layers": layers},
            shapes=((batch, steps, width),),
        )  # fmt: skip
