"""The layers of a model that methods treat."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def product_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Linear and convolution layers with trainable weights, by name, in the order of the model."""
    from torch import nn

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module.weight.requires_grad
    }


def channel_axis(layer: nn.Module) -> int:
    """The axis of the channels in the inputs and outputs of a linear or convolution layer."""
    return 1 if layer.get_parameter("weight").dim() > 2 else -1
