"""Networks that were written before the table with well-known layers was made, and predicted only afterwards.

Eight of the classical kind (VGG-19, ResNet-34 and -101, a ResNet for small images, two perceptrons, an encoder, a GPT),
eight of other kinds (depthwise, grouped, inverted, one- and three-dimensional convolutions, window attention, a mixer,
a recurrent language model), in sizes and batches of their own.
"""

from functools import partial
from itertools import pairwise

import torch
from blind_models import Block, Encoder, SmallGpt, token_loss
from fresh_models import conv
from modern_models import Language, MixerBlock, Residual, head
from torch import Tensor, nn

from presilicon.workloads import Workload, adamw, classified, sequences, sgd


def vgg19() -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for width, depth in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(depth):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(), nn.Linear(4096, 1000))


class Skip(nn.Module):
    """A residual block whose shortcut is projected where sizes change."""

    def __init__(self, body: nn.Sequential, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))


def normed(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)
    )


def basic(first: nn.Module, stages: tuple[tuple[int, int], ...], classes: int) -> nn.Sequential:
    layers, inputs = [first], stages[0][0]
    for width, depth in stages:
        for block in range(depth):
            stride = 2 if block == 0 and width != stages[0][0] else 1
            shortcut = normed(inputs, width, 1, stride) if stride == 2 else None
            layers.append(Skip(nn.Sequential(conv(inputs, width, 3, stride), normed(width, width, 3)), shortcut))
            inputs = width
    return nn.Sequential(*layers, *head(inputs, classes))


def resnet34() -> nn.Sequential:
    first = nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
    return basic(first, ((64, 3), (128, 4), (256, 6), (512, 3)), 1000)


def resnet20() -> nn.Sequential:
    return basic(conv(3, 16, 3), ((16, 3), (32, 3), (64, 3)), 10)


def bottlenecks(depths: tuple[int, ...], groups: int = 1, each: int = 0) -> nn.Sequential:
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        inner = (each * groups if each else 64) << stage
        width = 256 << stage
        for block in range(depth):
            stride = 2 if block == 0 and stage else 1
            body = nn.Sequential(
                conv(inputs, inner, 1), conv(inner, inner, 3, stride, groups), normed(inner, width, 1)
            )  # fmt: skip
            layers.append(Skip(body, normed(inputs, width, 1, stride) if block == 0 else None))
            inputs = width
    return nn.Sequential(*layers, *head(inputs))


def perceptron(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def depthwise() -> nn.Sequential:
    """Large depthwise kernels between pointwise ones, with batch normalization."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 4, 4), nn.BatchNorm2d(64)]
    for width, depth in ((64, 2), (128, 2), (256, 6), (512, 2)):
        if width > 64:
            layers.append(nn.Conv2d(width // 2, width, 2, 2))
        for _ in range(depth):
            body = [nn.Conv2d(width, width, 7, padding=3, groups=width), nn.BatchNorm2d(width)]
            layers.append(Residual(*body, nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)))
    return nn.Sequential(*layers, *head(512))


def inverted() -> nn.Sequential:
    """Inverted bottlenecks, 1.5 times as wide as usual."""
    layers: list[nn.Module] = [conv(3, 48, 3, 2, act=nn.ReLU6)]
    inputs = 48
    for width, depth, stride in ((24, 1, 1), (36, 2, 2), (48, 3, 2), (96, 4, 2), (144, 3, 1), (240, 3, 2)):
        for block in range(depth):
            step, hidden = stride if block == 0 else 1, 6 * inputs
            body = [conv(inputs, hidden, 1, act=nn.ReLU6), conv(hidden, hidden, 3, step, hidden, act=nn.ReLU6)]
            body.append(normed(hidden, width, 1))
            layers.append(Residual(*body) if block else nn.Sequential(*body))
            inputs = width
    return nn.Sequential(*layers, conv(240, 1280, 1, act=nn.ReLU6), *head(1280))


def sound() -> nn.Sequential:
    """Strided convolutions over a second of sound."""
    layers: list[nn.Module] = []
    inputs = 1
    for width, kernel, stride in (
        (64, 80, 4),
        (64, 3, 1),
        (128, 3, 4),
        (128, 3, 1),
        (256, 3, 4),
        (256, 3, 1),
        (512, 3, 4),
    ):
        layers += [nn.Conv1d(inputs, width, kernel, stride, kernel // 2), nn.BatchNorm1d(width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, *head(512, 35, dims=1))


def clips() -> nn.Sequential:
    """Plain convolutions over short videos, as in C3D."""
    layers: list[nn.Module] = []
    inputs = 3
    for stage, (width, depth) in enumerate(((64, 1), (128, 1), (256, 2), (512, 2))):
        for _ in range(depth):
            layers += [nn.Conv3d(inputs, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool3d((1, 2, 2) if stage == 0 else 2))
    return nn.Sequential(*layers, *head(512, 101, dims=3))


class Windowed(nn.Module):
    """Transformer blocks inside windows of 8 x 8 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.merge = nn.Conv2d(3, 128, 4, 4), nn.Conv2d(128, 256, 2, 2)
        self.first = nn.Sequential(*(Block(128, 4, causal=False) for _ in range(3)))
        self.second = nn.Sequential(*(Block(256, 8, causal=False) for _ in range(5)))
        self.head = nn.Linear(256, 1000)

    def windows(self, x: Tensor, blocks: nn.Module) -> Tensor:
        batch, width, side, _ = x.shape
        cut = x.view(batch, width, side // 8, 8, side // 8, 8).permute(0, 2, 4, 3, 5, 1).reshape(-1, 64, width)
        cut = blocks(cut).view(batch, side // 8, side // 8, 8, 8, width)
        return cut.permute(0, 5, 1, 3, 2, 4).reshape(batch, width, side, side)

    def forward(self, images: Tensor) -> Tensor:
        x = self.windows(self.patches(images), self.first)
        return self.head(self.windows(self.merge(x), self.second).mean((2, 3)))


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 384, 32, 32)
        self.blocks = nn.Sequential(*(MixerBlock(49, 384) for _ in range(10)))
        self.head = nn.Linear(384, 1000)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


_IMAGES = partial(classified, shape=(3, 224, 224))
_SGD = partial(sgd, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
SEALED = {
    workload.name: workload
    for workload in (
        Workload(name="vgg19", model=vgg19, example=_IMAGES, optimizer=_SGD),
        Workload(name="resnet34", model=resnet34, example=_IMAGES, optimizer=_SGD),
        Workload(name="resnet101", model=partial(bottlenecks, (3, 4, 23, 3)), example=_IMAGES, optimizer=_SGD),
        Workload(name="resnet20", model=resnet20, example=partial(classified, shape=(3, 32, 32)), optimizer=_SGD),
        Workload(
            name="mlp-2048", model=partial(perceptron, 1024, 2048, 2048, 2048, 100),
            example=partial(classified, shape=(1024,)), optimizer=_SGD,
        ),
        Workload(
            name="mlp-8192", model=partial(perceptron, 784, 8192, 8192, 10), example=partial(classified, shape=(784,)),
            optimizer=adamw,
        ),
        Workload(
            name="encoder-640", model=partial(Encoder, 640, 8, 10, 30000), example=partial(sequences, tokens=256),
            loss=token_loss, optimizer=adamw,
        ),
        Workload(
            name="gpt-1024", model=partial(SmallGpt, 1024, 10, 16, 40000, 768), example=partial(sequences, tokens=768),
            loss=token_loss, optimizer=adamw,
        ),
        Workload(name="depthwise", model=depthwise, example=_IMAGES, optimizer=adamw),
        Workload(name="grouped", model=partial(bottlenecks, (3, 4, 6, 3), 16, 8), example=_IMAGES, optimizer=_SGD),
        Workload(name="inverted", model=inverted, example=_IMAGES, optimizer=_SGD),
        Workload(name="sound", model=sound, example=partial(classified, shape=(1, 16000)), optimizer=adamw),
        Workload(name="clips", model=clips, example=partial(classified, shape=(3, 16, 64, 64)), optimizer=_SGD),
        Workload(name="windowed", model=Windowed, example=partial(classified, shape=(3, 256, 256)), optimizer=adamw),
        Workload(name="mixing", model=Mixing, example=_IMAGES, optimizer=adamw),
        Workload(
            name="gru-768", model=partial(Language, "GRU", 12000, 768, 2), example=partial(sequences, tokens=48),
            loss=token_loss, optimizer=adamw,
        ),
    )
}  # fmt: skip
CASES = {
    "vgg19": (48,), "resnet34": (96,), "resnet101": (48,), "resnet20": (256,), "mlp-2048": (512,), "mlp-8192": (2048,),
    "encoder-640": (24,), "gpt-1024": (8,), "depthwise": (96,), "grouped": (80,), "inverted": (80,), "sound": (64,),
    "clips": (8,), "windowed": (48,), "mixing": (192,), "gru-768": (96,),
}  # fmt: skip
CLASSICAL = tuple(CASES)[:8]
