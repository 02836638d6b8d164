"""Networks that were compared with predictions only after all choices in the roofline model and its layers were made.

Grouped bottlenecks, hard swishes, fire modules, a video network of split convolutions, clouds of points, a transformer
with an encoder and a decoder, tables of clicks, a speech network, a tiny vision transformer, a segmentation network.
"""

from functools import partial
from itertools import pairwise

import torch
from blind_models import token_loss
from modern_models import Residual, Squeeze, head
from torch import Tensor, nn

from presilicon.workloads import Workload, adamw, classified, sequences, sgd


def conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: type = nn.ReLU
) -> nn.Sequential:
    padding = kernel // 2
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, act())


def regnet() -> nn.Sequential:
    """Groups of 24 channels, in the manner of RegNet."""
    layers: list[nn.Module] = [conv(3, 32, 3, 2)]
    inputs = 32
    for width, depth in ((72, 2), (168, 4), (408, 8), (912, 2)):
        for block in range(depth):
            stride = 2 if block == 0 else 1
            body = [conv(inputs, width, 1), conv(width, width, 3, stride, width // 24), conv(width, width, 1)]
            layers += body if block == 0 else [Residual(*body)]
            inputs = width
    return nn.Sequential(*layers, *head(912))


def mobilenet3() -> nn.Sequential:
    """Inverted bottlenecks with hard swishes and squeezing."""
    act = nn.Hardswish
    layers: list[nn.Module] = [conv(3, 16, 3, 2, act=act)]
    inputs = 16
    for kernel, grown, width, stride in (
        (3, 64, 24, 2), (3, 72, 24, 1), (5, 72, 40, 2), (5, 120, 40, 1), (3, 240, 80, 2), (3, 200, 80, 1),
        (3, 480, 112, 1), (3, 672, 112, 1), (5, 672, 160, 2), (5, 960, 160, 1),
    ):  # fmt: skip
        body = [
            conv(inputs, grown, 1, act=act), conv(grown, grown, kernel, stride, grown, act=act), Squeeze(grown, 8),
            nn.Conv2d(grown, width, 1, bias=False), nn.BatchNorm2d(width),
        ]  # fmt: skip
        layers += [Residual(*body)] if stride == 1 and inputs == width else body
        inputs = width
    return nn.Sequential(*layers, conv(160, 960, 1, act=act), *head(960))


class Fire(nn.Module):
    def __init__(self, inputs: int, squeezed: int, width: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU())
        self.small = nn.Sequential(nn.Conv2d(squeezed, width, 1), nn.ReLU())
        self.large = nn.Sequential(nn.Conv2d(squeezed, width, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x)
        return torch.cat([self.small(x), self.large(x)], 1)


def squeezenet() -> nn.Sequential:
    pool = partial(nn.MaxPool2d, 3, 2)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), Fire(64, 16, 64), Fire(128, 16, 64), pool(), Fire(128, 32, 128),
        Fire(256, 32, 128), pool(), Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
        nn.Dropout(0.5), nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def video() -> nn.Sequential:
    """Convolutions split into space and time."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2)):
        middle = width * 2
        layers += [
            nn.Conv3d(inputs, middle, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False), nn.BatchNorm3d(middle),
            nn.ReLU(), nn.Conv3d(middle, width, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False),
            nn.BatchNorm3d(width), nn.ReLU(),
        ]  # fmt: skip
        inputs = width
    return nn.Sequential(*layers, *head(256, 400, 3))


class Points(nn.Module):
    """Points by themselves, then the maximum over all, in the manner of PointNet."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, width in ((3, 64), (64, 64), (64, 128), (128, 1024)):
            layers += [nn.Conv1d(inputs, width, 1), nn.BatchNorm1d(width), nn.ReLU()]
        self.points = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 40))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.points(x).amax(2))


class Translator(nn.Module):
    """torch's own transformer with an encoder and a decoder; both read the same words."""

    def __init__(self, width: int = 512, words: int = 12000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.body = nn.Transformer(width, 8, 3, 3, 2048, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        return self.head(self.body(x, x))


class Speech(nn.Module):
    """Strided convolutions over a spectrogram, then a recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(80, 256, 5, 2, 2), nn.BatchNorm1d(256), nn.ReLU(), nn.Conv1d(256, 256, 5, 2, 2), nn.ReLU()
        )
        self.cells = nn.GRU(256, 384, 2, batch_first=True)
        self.head = nn.Linear(384, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.front(x).transpose(1, 2))[0].mean(1))


class Tiny(nn.Module):
    """A vision transformer of width 192 behind a stem of convolutions."""

    def __init__(self, width: int = 192, depth: int = 12) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 48, 3, 2), conv(48, 96, 3, 2), nn.Conv2d(96, width, 4, 4))
        layer = nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x).flatten(2).transpose(1, 2)).mean(1))


def clicks() -> nn.Sequential:
    """The dense part of a recommender: wide perceptrons with normalized inputs."""
    widths = (1024, 2048, 2048, 1024, 512, 256)
    layers: list[nn.Module] = [nn.BatchNorm1d(1024)]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(256, 10))


class Segments(nn.Module):
    """Dilated convolutions at full resolution, and the result in the size of the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(conv(3, 64, 7, 2), conv(64, 128, 3, 2), conv(128, 256, 3))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Conv2d(256, 128, 3, padding=d, dilation=d, bias=False), nn.BatchNorm2d(128), nn.ReLU())
            for d in (1, 6, 12, 18)
        )
        self.back = nn.Sequential(conv(512, 256, 1), nn.ConvTranspose2d(256, 64, 4, 2, 1), nn.ReLU(), *head(64, 21))

    def forward(self, x: Tensor) -> Tensor:
        x = self.front(x)
        return self.back(torch.cat([branch(x) for branch in self.wide], 1))


_IMAGES = partial(classified, shape=(3, 224, 224))
_SGD = partial(sgd, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
FRESH = {
    workload.name: workload
    for workload in (
        Workload(name="regnet", model=regnet, example=_IMAGES, optimizer=_SGD),
        Workload(name="mobilenet3", model=mobilenet3, example=_IMAGES, optimizer=_SGD),
        Workload(name="squeezenet", model=squeezenet, example=_IMAGES, optimizer=_SGD),
        Workload(name="video", model=video, example=partial(classified, shape=(3, 8, 56, 56)), optimizer=_SGD),
        Workload(name="points", model=Points, example=partial(classified, shape=(3, 2048)), optimizer=adamw),
        Workload(
            name="translator",
            model=Translator,
            example=partial(sequences, tokens=256),
            loss=token_loss,
            optimizer=adamw,
        ),
        Workload(name="speech", model=Speech, example=partial(classified, shape=(80, 400)), optimizer=adamw),
        Workload(name="tiny-vit", model=Tiny, example=_IMAGES, optimizer=adamw),
        Workload(name="clicks", model=clicks, example=partial(classified, shape=(1024,)), optimizer=adamw),
        Workload(name="segments", model=Segments, example=partial(classified, shape=(3, 128, 128)), optimizer=_SGD),
    )
}
CASES = {
    "regnet": (96,),
    "mobilenet3": (128,),
    "squeezenet": (96,),
    "video": (24,),
    "points": (64,),
    "translator": (32,),
    "speech": (64,),
    "tiny-vit": (128,),
    "clicks": (8192,),
    "segments": (48,),
}
