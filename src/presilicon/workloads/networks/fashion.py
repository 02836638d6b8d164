"""Networks for 28x28 images in ten classes; all but the last are small enough to train on one core in seconds."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from torch import nn

from presilicon.workloads.networks.resnet import BasicBlock


def convolutional() -> nn.Module:
    """Two 3x3 convolutions with pooling and two linear layers, without normalization: 105,866 parameters."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 16, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(16, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            hidden=nn.Linear(32 * 7 * 7, 64),
            relu3=nn.ReLU(),
            output=nn.Linear(64, 10),
        )
    )


def alexnet32() -> nn.Module:
    """AlexNet's layers for images padded to 32x32, with a quarter to a half of its channels: 629,098 parameters."""
    return nn.Sequential(
        nn.ZeroPad2d(2),
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
        *(nn.Conv2d(64, 96, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(96, 64, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
        nn.Flatten(),
        *(nn.Dropout(), nn.Linear(64 * 3 * 3, 512), nn.ReLU()),
        *(nn.Dropout(), nn.Linear(512, 256), nn.ReLU()),
        nn.Linear(256, 10),
    )


def residual() -> nn.Module:
    """A ResNet-8 with batch normalization: a stem, blocks of 16, 32 and 64 channels; 77,754 parameters."""
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            block1=BasicBlock(16, 16, 1, "batch"),
            block2=BasicBlock(16, 32, 2, "batch"),
            block3=BasicBlock(32, 64, 2, "batch"),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            output=nn.Linear(64, 10),
        )
    )


def residual18() -> nn.Module:
    """A ResNet-18 with a 3x3 stem, as for CIFAR: 11,172,810 parameters."""
    widths = (64, 64, 128, 256, 512)
    stages = {
        f"stage{number}": nn.Sequential(
            BasicBlock(before, width, 1 if number == 1 else 2, "batch"), BasicBlock(width, width, 1, "batch")
        )
        for number, (before, width) in enumerate(pairwise(widths), 1)
    }
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
            **stages,
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            output=nn.Linear(512, 10),
        )
    )
