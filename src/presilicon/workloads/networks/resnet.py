"""ResNets in plain torch (He et al., 2015; the stride on the 3x3 convolution, as torchvision has it)."""

from __future__ import annotations

from torch import Tensor, nn

from presilicon.workloads.networks.normalization import Normalization, make_norm


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, normalization: Normalization = "batch") -> None:
        super().__init__()
        first = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.conv1, self.bn1 = make_norm(normalization, first)
        self.conv2, self.bn2 = make_norm(normalization, nn.Conv2d(width, width, 3, padding=1, bias=False))
        self.relu = nn.ReLU()
        self.shortcut = _shortcut(channels, width, stride, normalization)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, h / stride, w / stride) from (batch, channels, h, w)."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        out: Tensor = self.relu(y + self.shortcut(x))
        return out


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution with a residual connection."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, normalization: Normalization = "batch") -> None:
        super().__init__()
        middle = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.conv1, self.bn1 = make_norm(normalization, nn.Conv2d(channels, width, 1, bias=False))
        self.conv2, self.bn2 = make_norm(normalization, middle)
        self.conv3, self.bn3 = make_norm(normalization, nn.Conv2d(width, width * self.expansion, 1, bias=False))
        self.relu = nn.ReLU()
        self.shortcut = _shortcut(channels, width * self.expansion, stride, normalization)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 4 width, h / stride, w / stride) from (batch, channels, h, w)."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        out: Tensor = self.relu(y + self.shortcut(x))
        return out


class ResNet(nn.Module):
    """A stem, stages of blocks, and a classifier."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        classes: int,
        normalization: Normalization = "batch",
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *make_norm(normalization, nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages: list[nn.Module] = []
        channels = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            layers: list[nn.Module] = []
            for number in range(depth):
                stride = 2 if number == 0 and stage > 0 else 1
                layers.append(block(channels, width, stride, normalization))
                channels = width * block.expansion
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of (batch, 3, 224, 224) images; any size from 33 works."""
        features: Tensor = self.stages(self.stem(images))
        scores: Tensor = self.classifier(features.mean(dim=(2, 3)))
        return scores


def resnet18(classes: int = 1000) -> nn.Module:
    """ResNet-18: 11.7 million parameters, 3.63 GFLOP per 224x224 image forward."""
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000, normalization: Normalization = "batch") -> nn.Module:
    """ResNet-50: 25.6 million parameters, 8.18 GFLOP per 224x224 image forward."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, normalization)


def resnet152(classes: int = 1000) -> nn.Module:
    """ResNet-152: 60.2 million parameters, 23.1 GFLOP per 224x224 image forward."""
    return ResNet(Bottleneck, (3, 8, 36, 3), classes)


def _shortcut(channels: int, width: int, stride: int, normalization: Normalization) -> nn.Module:
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(*make_norm(normalization, nn.Conv2d(channels, width, 1, stride=stride, bias=False)))
