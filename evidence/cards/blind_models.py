"""Models that the calibration has never seen, written apart from it, to judge its predictions."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from presilicon.workloads import Workload, adamw, classified, sequences, sgd


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 384, depth: int = 12, heads: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.places = nn.Parameter(torch.zeros(1, 196, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


class SmallGpt(nn.Module):
    def __init__(self, width: int = 512, depth: int = 6, heads: int = 8, words: int = 8192, tokens: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(tokens, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.words(tokens) + self.places)))


class Encoder(nn.Module):
    """torch's own encoder layers."""

    def __init__(self, width: int = 512, depth: int = 6, heads: int = 8, words: int = 16000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.words(tokens)))


def inverted(inputs: int, outputs: int, stride: int, grow: int = 6) -> nn.Sequential:
    hidden = inputs * grow
    return nn.Sequential(
        nn.Conv2d(inputs, hidden, 1, bias=False),
        nn.BatchNorm2d(hidden),
        nn.ReLU6(),
        nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
        nn.BatchNorm2d(hidden),
        nn.ReLU6(),
        nn.Conv2d(hidden, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
    )


class MobileNet(nn.Module):
    """In the manner of MobileNet v2: depthwise convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())
        plan = (
            (32, 24, 2),
            (24, 32, 2),
            (32, 64, 2),
            (64, 64, 1),
            (64, 96, 1),
            (96, 160, 2),
            (160, 160, 1),
            (160, 320, 1),
        )
        self.blocks = nn.Sequential(*(inverted(*entry) for entry in plan))
        self.head = nn.Linear(320, 1000)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))


def normed_mlp() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in ((1024, 8192), (8192, 8192), (8192, 8192)):
        layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(8192, 1000))


def wide_resnet() -> nn.Sequential:
    """Plain 3x3 convolutions with group normalization, 32x32 images."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in (
        (3, 160, 1),
        (160, 160, 1),
        (160, 320, 2),
        (320, 320, 1),
        (320, 640, 2),
        (640, 640, 1),
    ):
        convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        layers += [convolution, nn.GroupNorm(16, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 100))


def token_loss(scores: Tensor, words: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), words.flatten())


_IMAGES = partial(classified, shape=(3, 224, 224))
_SGD = partial(sgd, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
BLIND = {
    "vit-s": Workload(name="vit-s", model=VisionTransformer, example=_IMAGES, optimizer=adamw),
    "gpt-mini": Workload(
        name="gpt-mini", model=SmallGpt, example=partial(sequences, tokens=512), loss=token_loss, optimizer=adamw
    ),
    "encoder": Workload(
        name="encoder", model=Encoder, example=partial(sequences, tokens=256), loss=token_loss, optimizer=adamw
    ),
    "mobilenet": Workload(name="mobilenet", model=MobileNet, example=_IMAGES, optimizer=_SGD),
    "normed-mlp": Workload(
        name="normed-mlp", model=normed_mlp, example=partial(classified, shape=(1024,)), optimizer=adamw
    ),
    "wide-convolutions": Workload(
        name="wide-convolutions", model=wide_resnet, example=partial(classified, shape=(3, 32, 32)), optimizer=_SGD
    ),
}
CASES = {
    "vit-s": (32, 128),
    "gpt-mini": (8, 64),
    "encoder": (8, 64),
    "mobilenet": (64, 256),
    "normed-mlp": (512, 4096),
    "wide-convolutions": (64, 512),
    "densenet201": (32, 128),
    "resnet152": (32, 128),
}
