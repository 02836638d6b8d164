"""Multilayer perceptrons in plain torch."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def perceptron(widths: Sequence[int]) -> nn.Module:
    """Linear layers between the given widths, with a ReLU after each but the last.

    >>> [layer.out_features for layer in perceptron((8, 4, 2)) if isinstance(layer, nn.Linear)]
    [4, 2]
    """
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
