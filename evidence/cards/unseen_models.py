"""Networks that were written before the last layers of the calibration were measured, and predicted only afterwards.

A wide residual network, separable and fused bottlenecks, an hourglass, an autoencoder, slices of videos, gated waves, a
conformer, a transformer with parallel branches, spatial gates, a bidirectional tagger, residual perceptrons.
"""

from functools import partial

import torch
from blind_models import token_loss
from fresh_models import conv
from modern_models import Residual, Squeeze, head
from torch import Tensor, nn
from torch.nn import functional

from presilicon.workloads import Workload, adamw, classified, sequences, sgd


def wide_resnet() -> nn.Sequential:
    """Bottlenecks whose inner layers are twice as wide as usual."""
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for inner, depth in ((128, 3), (256, 4), (512, 6), (1024, 3)):
        for block in range(depth):
            stride = 2 if block == 0 and inner > 128 else 1
            body = [conv(inputs, inner, 1), conv(inner, inner, 3, stride), nn.Conv2d(inner, 2 * inner, 1, bias=False)]
            body.append(nn.BatchNorm2d(2 * inner))
            layers += [nn.Sequential(*body) if block == 0 else Residual(*body), nn.ReLU()]
            inputs = 2 * inner
    return nn.Sequential(*layers, *head(2048))


def xception() -> nn.Sequential:
    """Separable convolutions."""
    layers: list[nn.Module] = [conv(3, 32, 3, 2), conv(32, 64, 3)]
    inputs = 64
    for width, blocks, stride in ((128, 1, 2), (256, 1, 2), (728, 1, 2), (728, 8, 1), (1024, 1, 2)):
        for _ in range(blocks):
            body: list[nn.Module] = []
            for place in range(3 if stride == 1 else 2):
                entering = inputs if place == 0 else width
                body += [
                    nn.ReLU(), nn.Conv2d(entering, entering, 3, padding=1, groups=entering, bias=False),
                    nn.Conv2d(entering, width, 1, bias=False), nn.BatchNorm2d(width),
                ]  # fmt: skip
            layers += [Residual(*body)] if stride == 1 else [*body, nn.MaxPool2d(3, 2, 1)]
            inputs = width
    return nn.Sequential(*layers, *head(1024))


def fused_bottlenecks() -> nn.Sequential:
    """Dense 3 x 3 expansions first, depthwise ones with squeezing later, as in EfficientNet v2."""
    layers: list[nn.Module] = [conv(3, 24, 3, 2, act=nn.SiLU)]
    inputs = 24
    for grown, width, depth, stride, fused in (
        (4, 48, 3, 2, True), (4, 64, 3, 2, True), (4, 128, 4, 2, False), (6, 160, 5, 1, False), (6, 256, 6, 2, False),
    ):  # fmt: skip
        for block in range(depth):
            hidden, step = grown * inputs, stride if block == 0 else 1
            body = (
                [conv(inputs, hidden, 3, step, act=nn.SiLU)] if fused
                else [
                    conv(inputs, hidden, 1, act=nn.SiLU), conv(hidden, hidden, 3, step, hidden, act=nn.SiLU),
                    Squeeze(hidden, inputs // 4),
                ]
            )  # fmt: skip
            body += [nn.Conv2d(hidden, width, 1, bias=False), nn.BatchNorm2d(width)]
            layers.append(Residual(*body) if block else nn.Sequential(*body))
            inputs = width
    return nn.Sequential(*layers, conv(256, 1280, 1, act=nn.SiLU), *head(1280))


class Hourglass(nn.Module):
    """Down to a quarter and up again, with sums across."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(conv(3, 64, 7, 2), conv(64, 128, 3))
        self.sides = nn.ModuleList(nn.Sequential(conv(128, 64, 1), conv(64, 64, 3), conv(64, 128, 1)) for _ in range(3))
        self.inner = nn.ModuleList(nn.Sequential(conv(128, 64, 1), conv(64, 64, 3), conv(64, 128, 1)) for _ in range(6))
        self.back = nn.Sequential(conv(128, 128, 1), *head(128, 16))

    def forward(self, x: Tensor) -> Tensor:
        x = self.front(x)
        kept = []
        for level in range(3):
            kept.append(self.sides[level](x))
            x = self.inner[level](functional.max_pool2d(x, 2))
        for level in reversed(range(3)):
            x = functional.interpolate(self.inner[3 + level](x), scale_factor=2.0) + kept[level]
        return self.back(x)


def autoencoder() -> nn.Sequential:
    """Strided convolutions down, transposed ones up."""
    down = [nn.Sequential(conv(a, b, 4, 2), nn.LeakyReLU()) for a, b in ((3, 64), (64, 128), (128, 256), (256, 512))]
    up = [
        nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        for a, b in ((512, 256), (256, 128), (128, 64))
    ]
    return nn.Sequential(*down, *up, *head(64, 10))


def slices() -> nn.Sequential:
    """Planes first, then time: a video network with kernels of one frame or one point."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        layers += [
            nn.Conv3d(inputs, width, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False), nn.BatchNorm3d(width),
            nn.ReLU(), nn.Conv3d(width, width, (3, 1, 1), 1, (1, 0, 0), bias=False), nn.BatchNorm3d(width), nn.ReLU(),
        ]  # fmt: skip
        inputs = width
    return nn.Sequential(*layers, *head(256, 400, dims=3))


class Waves(nn.Module):
    """Gated convolutions of growing dilation."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.front = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=2**d, dilation=2**d) for _ in range(2) for d in range(5)
        )
        self.joins = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in self.gates)
        self.back = nn.Sequential(*head(width, 256, dims=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.front(x)
        for gate, join in zip(self.gates, self.joins, strict=True):
            a, b = gate(x).chunk(2, 1)
            x = x + join(a.tanh() * b.sigmoid())
        return self.back(x)


class Heads(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.mixed(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Turned(nn.Module):
    """Layers over the other order of the last two axes."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.transpose(1, 2)).transpose(1, 2)


class Conformer(nn.Module):
    """Attention between half steps, and a depthwise convolution over time."""

    def __init__(self, width: int = 256, depth: int = 8) -> None:
        super().__init__()
        self.front = nn.Linear(80, width)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    Residual(nn.LayerNorm(width), nn.Linear(width, 1024), nn.SiLU(), nn.Linear(1024, width)),
                    Residual(nn.LayerNorm(width), Heads(width, 4)),
                    Residual(
                        nn.LayerNorm(width),
                        Turned(
                            nn.Conv1d(width, 2 * width, 1), nn.GLU(1), nn.Conv1d(width, width, 15, 1, 7, groups=width),
                            nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1),
                        ),
                    ),
                )
                for _ in range(depth)
            )
        )  # fmt: skip
        self.back = nn.Linear(width, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.back(self.blocks(self.front(x.transpose(1, 2))).mean(1))


class Parallel(nn.Module):
    """A language model whose attention and perceptron read the same normalized input."""

    def __init__(self, width: int = 640, depth: int = 10, words: int = 32000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.heads = nn.ModuleList(Heads(width, 10, causal=True) for _ in range(depth))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)
        )
        self.back = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x)
        for norm, heads, inner in zip(self.norms, self.heads, self.inner, strict=True):
            y = norm(x)
            x = x + heads(y) + inner(y)
        return self.back(x)


class Gate(nn.Module):
    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Conv1d(tokens, tokens, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v = x.chunk(2, -1)
        return u * self.mix(self.norm(v))


def gates() -> nn.Sequential:
    """Patches, and perceptrons with gates over them in place of attention."""
    width, tokens = 256, 196
    body = [
        Residual(
            nn.LayerNorm(width), nn.Linear(width, 6 * width), nn.GELU(), Gate(3 * width, tokens),
            nn.Linear(3 * width, width),
        )
        for _ in range(12)
    ]  # fmt: skip
    return nn.Sequential(nn.Conv2d(3, width, 16, 16), nn.Flatten(2), _Swap(), *body, _Mean(), nn.Linear(width, 1000))


class _Swap(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Tagger(nn.Module):
    """A recurrent layer in each direction."""

    def __init__(self, words: int = 20000, width: int = 384) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.ahead, self.back = (nn.LSTM(width, 512, batch_first=True) for _ in range(2))
        self.out = nn.Linear(1024, words // 40)

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x)
        return self.out(torch.cat([self.ahead(x)[0], self.back(x.flip(1))[0].flip(1)], -1))


def tag_loss(scores: Tensor, words: Tensor) -> Tensor:
    return token_loss(scores, words % scores.shape[-1])


def tabular() -> nn.Sequential:
    """Residual perceptrons with batch normalization."""
    body = [
        Residual(nn.BatchNorm1d(768), nn.Linear(768, 1536), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1536, 768))
        for _ in range(8)
    ]
    return nn.Sequential(nn.Linear(256, 768), *body, nn.BatchNorm1d(768), nn.ReLU(), nn.Linear(768, 10))


_IMAGES = partial(classified, shape=(3, 224, 224))
_SGD = partial(sgd, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
UNSEEN = {
    workload.name: workload
    for workload in (
        Workload(name="wide-resnet", model=wide_resnet, example=_IMAGES, optimizer=_SGD),
        Workload(name="xception", model=xception, example=_IMAGES, optimizer=_SGD),
        Workload(name="fused-bottlenecks", model=fused_bottlenecks, example=_IMAGES, optimizer=_SGD),
        Workload(name="hourglass", model=Hourglass, example=partial(classified, shape=(3, 256, 256)), optimizer=_SGD),
        Workload(
            name="autoencoder", model=autoencoder, example=partial(classified, shape=(3, 128, 128)), optimizer=adamw
        ),
        Workload(name="slices", model=slices, example=partial(classified, shape=(3, 16, 64, 64)), optimizer=_SGD),
        Workload(name="waves", model=Waves, example=partial(classified, shape=(1, 8192)), optimizer=adamw),
        Workload(name="conformer", model=Conformer, example=partial(classified, shape=(80, 512)), optimizer=adamw),
        Workload(
            name="parallel-gpt",
            model=Parallel,
            example=partial(sequences, tokens=512),
            loss=token_loss,
            optimizer=adamw,
        ),
        Workload(name="gates", model=gates, example=_IMAGES, optimizer=adamw),
        Workload(name="tagger", model=Tagger, example=partial(sequences, tokens=64), loss=tag_loss, optimizer=adamw),
        Workload(name="tabular", model=tabular, example=partial(classified, shape=(256,)), optimizer=adamw),
    )
}
CASES = {
    "wide-resnet": (64,),
    "xception": (64,),
    "fused-bottlenecks": (96,),
    "hourglass": (32,),
    "autoencoder": (64,),
    "slices": (16,),
    "waves": (16,),
    "conformer": (32,),
    "parallel-gpt": (16,),
    "gates": (96,),
    "tagger": (64,),
    "tabular": (4096,),
}
