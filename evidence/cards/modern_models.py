"""Networks of kinds that the layers of a calibration are not taken from, to judge its predictions.

Depthwise, grouped, one- and three-dimensional convolutions, windows, shuffles, mixers, recurrent language models.
"""

from functools import partial

import torch
from blind_models import token_loss
from torch import Tensor, nn
from torch.nn import functional

from presilicon.workloads import Workload, adamw, classified, sequences, sgd


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Permute(nn.Module):
    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(*self.dims)


def head(width: int, classes: int = 1000, dims: int = 2) -> list[nn.Module]:
    pool = getattr(nn, f"AdaptiveAvgPool{dims}d")(1)
    return [pool, nn.Flatten(), nn.Linear(width, classes)]


def convnext() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, stride=4)]
    for stage, (width, depth) in enumerate(((96, 3), (192, 3), (384, 9), (768, 3))):
        if stage:
            layers.append(nn.Conv2d(width // 2, width, 2, stride=2))
        layers += [
            Residual(
                nn.Conv2d(width, width, 7, padding=3, groups=width),
                Permute(0, 2, 3, 1),
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Linear(4 * width, width),
                Permute(0, 3, 1, 2),
            )
            for _ in range(depth)
        ]
    return nn.Sequential(*layers, *head(768))


class Squeeze(nn.Module):
    def __init__(self, width: int, least: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, least, 1), nn.Conv2d(least, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        share = functional.silu(self.down(x.mean((2, 3), keepdim=True)))
        return x * self.up(share).sigmoid()


def efficientnet() -> nn.Sequential:
    """Depthwise kernels of 3 and 5, squeeze and excitation, SiLU."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
    inputs = 32
    for outputs, depth, kernel, stride in ((24, 2, 3, 2), (40, 2, 5, 2), (80, 3, 3, 2), (112, 3, 5, 1), (192, 4, 5, 2)):
        for block in range(depth):
            hidden = 6 * inputs
            body = [
                nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.SiLU(),
                nn.Conv2d(
                    hidden, hidden, kernel, stride=1 if block else stride,
                    padding=kernel // 2, groups=hidden, bias=False,
                ),
                nn.BatchNorm2d(hidden), nn.SiLU(), Squeeze(hidden, max(8, inputs // 4)),
                nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
            ]  # fmt: skip
            layers.append(Residual(*body) if block else nn.Sequential(*body))
            inputs = outputs
    return nn.Sequential(*layers, *head(192))


def resnext() -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(64, 256, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU(),
    ]  # fmt: skip
    for stage, (width, depth) in enumerate(((256, 3), (512, 4), (1024, 6), (2048, 3))):
        if stage:
            layers += [nn.Conv2d(width // 2, width, 1, stride=2, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(depth):
            inner = width // 2
            layers += [
                Residual(
                    nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
                    nn.Conv2d(inner, inner, 3, padding=1, groups=32, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
                    nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width),
                ),
                nn.ReLU(),
            ]  # fmt: skip
    return nn.Sequential(*layers, *head(2048))


class Shuffled(nn.Module):
    """Half of the channels pass, half are convolved, both are shuffled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        x = torch.cat((left, self.body(right)), dim=1)
        batch, channels, height, width = x.shape
        return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(x.shape)


def shufflenet() -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 24, 3, stride=2, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 24
    for width, depth in ((116, 4), (232, 8), (464, 4)):
        layers += [nn.Conv2d(inputs, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [Shuffled(width) for _ in range(depth)]
        inputs = width
    return nn.Sequential(*layers, *head(464))


def volumes() -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv3d(3, 64, 3, stride=(1, 2, 2), padding=1, bias=False),
        nn.BatchNorm3d(64),
        nn.ReLU(),
    ]
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        for stride_here, inputs_here in ((stride, inputs), (1, outputs)):
            layers += [
                nn.Conv3d(inputs_here, outputs, 3, stride=stride_here, padding=1, bias=False),
                nn.BatchNorm3d(outputs),
                nn.ReLU(),
            ]
    return nn.Sequential(*layers, *head(512, 400, dims=3))


def waves() -> nn.Sequential:
    """Dilated one-dimensional convolutions."""
    layers: list[nn.Module] = [nn.Conv1d(1, 128, 1)]
    for block in range(16):
        dilation = 2 ** (block % 8)
        layers.append(
            Residual(nn.Conv1d(128, 256, 3, padding=dilation, dilation=dilation), nn.Tanh(), nn.Conv1d(256, 128, 1))
        )
    return nn.Sequential(*layers, nn.BatchNorm1d(128), nn.ReLU(), *head(128, 35, dims=1))


class Windows(nn.Module):
    """Attention in windows of 7 x 7, as in Swin."""

    def __init__(self, width: int, heads: int, shift: int) -> None:
        super().__init__()
        self.heads, self.shift = heads, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, 49, 49))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, side, _, width = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-3, -3), (1, 2))
        y = y.view(batch, side // 7, 7, side // 7, 7, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, width)
        q, k, v = self.qkv(y).view(-1, 49, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5 + self.bias
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 49, width)
        y = self.out(y).view(batch, side // 7, side // 7, 7, 7, width).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        if self.shift:
            y = torch.roll(y, (3, 3), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 96, 4, stride=4)
        stages: list[nn.Module] = []
        for stage, (width, heads, depth) in enumerate(((96, 3, 2), (192, 6, 2), (384, 12, 4))):
            if stage:
                stages.append(nn.Linear(2 * width, width))
            stages.append(nn.Sequential(*(Windows(width, heads, block % 2) for block in range(depth))))
        self.stages, self.norm, self.head = nn.ModuleList(stages), nn.LayerNorm(384), nn.Linear(384, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).permute(0, 2, 3, 1)
        for stage in self.stages:
            if isinstance(stage, nn.Linear):
                x = torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], dim=-1)
            x = stage(x)
        return self.head(self.norm(x).mean((1, 2)))


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_tokens = nn.Sequential(nn.Linear(tokens, width // 2), nn.GELU(), nn.Linear(width // 2, tokens))
        self.over_width = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_width(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width: int = 512, depth: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.blocks = nn.Sequential(*(MixerBlock(196, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Down(nn.Module):
    """A U-Net, from the inside out."""

    def __init__(self, width: int, inner: nn.Module | None) -> None:
        super().__init__()
        self.inner = inner
        self.before = nn.Sequential(
            nn.Conv2d(width // 2 if width > 64 else 3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        )  # fmt: skip
        if inner is not None:
            self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
            self.after = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        if self.inner is None:
            return x
        y = self.up(self.inner(functional.max_pool2d(x, 2)))
        return self.after(torch.cat((x, y), dim=1))


def unet() -> nn.Sequential:
    network: nn.Module | None = None
    for width in (512, 256, 128, 64):
        network = Down(width, network)
    assert network is not None
    return nn.Sequential(network, *head(64, 10))


class Language(nn.Module):
    """A recurrent language model."""

    def __init__(self, kind: str, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.cells = getattr(nn, kind)(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.cells(self.words(tokens))[0])


class Gated(nn.Module):
    """A block in the manner of Llama: RMS normalization, rotated positions, gated perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (part * 0.5 + torch.cat((-part[..., 1::2], part[..., ::2]), -1) * 0.5 for part in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width: int = 768, depth: int = 6, heads: int = 12, words: int = 16000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Gated(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.words(tokens))))


_IMAGES = partial(classified, shape=(3, 224, 224))
_SGD = partial(sgd, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
_TOKENS = {"loss": token_loss, "optimizer": adamw}
MODERN = {
    workload.name: workload
    for workload in (
        Workload(name="convnext", model=convnext, example=_IMAGES, optimizer=adamw),
        Workload(name="efficientnet", model=efficientnet, example=_IMAGES, optimizer=_SGD),
        Workload(name="resnext", model=resnext, example=_IMAGES, optimizer=_SGD),
        Workload(name="shufflenet", model=shufflenet, example=_IMAGES, optimizer=_SGD),
        Workload(name="unet", model=unet, example=partial(classified, shape=(3, 128, 128)), optimizer=adamw),
        Workload(name="volumes", model=volumes, example=partial(classified, shape=(3, 16, 56, 56)), optimizer=_SGD),
        Workload(name="waves", model=waves, example=partial(classified, shape=(1, 8000)), optimizer=adamw),
        Workload(name="swin", model=Swin, example=_IMAGES, optimizer=adamw),
        Workload(name="mixer", model=Mixer, example=_IMAGES, optimizer=adamw),
        Workload(
            name="lstm-words",
            model=partial(Language, "LSTM", 10000, 512, 2),
            example=partial(sequences, tokens=64),
            **_TOKENS,
        ),
        Workload(
            name="gru-words",
            model=partial(Language, "GRU", 8000, 768, 1),
            example=partial(sequences, tokens=96),
            **_TOKENS,
        ),
        Workload(name="llama", model=Llama, example=partial(sequences, tokens=512), **_TOKENS),
    )
}
CASES = {
    "convnext": (64,),
    "efficientnet": (64,),
    "resnext": (64,),
    "shufflenet": (128,),
    "unet": (32,),
    "volumes": (16,),
    "waves": (16,),
    "swin": (64,),
    "mixer": (64,),
    "lstm-words": (64,),
    "gru-words": (128,),
    "llama": (16,),
}
