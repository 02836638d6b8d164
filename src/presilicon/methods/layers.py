"""The layers of a model that methods treat."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from presilicon.records import LayerFact, Op, OpKind, StepGraph, TensorRef

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


def updated_weights(graph: StepGraph, layers: Collection[str]) -> Iterator[tuple[TensorRef, Op]]:
    """The master weights of layers, and the last op of the update that writes each."""
    writers = {tensor.id: op for op in graph.ops if op.phase == "update" for tensor in op.outputs}
    for weight in graph.parameters:
        update = writers.get(weight.id)
        if update is not None and update.layer in layers and len(weight.shape) >= 2:
            yield TensorRef(weight.id, weight.shape, "master"), update


def op_after(update: Op, index: int, name: str, kind: OpKind, master: TensorRef, *, flops: int = 1) -> Op:
    """An op on master weights after their update, of so many operations for each; a reduction writes nothing back."""
    return Op(
        index=index,
        name=f"{update.layer}.update.{name}",
        kind=kind,
        operator=f"presilicon.{name}",
        phase="update",
        layer=update.layer,
        inputs=(master,),
        outputs=() if kind == "reduction" else (master,),
        flops=flops * master.elements,
        depends_on=(update.index,),
    )


def density_facts(weights: Mapping[str, nn.Parameter]) -> tuple[LayerFact, ...]:
    """The measured share of weights that are not zero, in each layer."""
    return tuple(
        LayerFact(layer=layer, role="weight", density=int(weight.count_nonzero()) / weight.numel())
        for layer, weight in weights.items()
    )
