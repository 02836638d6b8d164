"""The layers of a model that methods treat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from presilicon.records import LayerFact, Op, OpKind, ProductFact, ProductPhase, StepGraph, TensorRef

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn


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


def in_batch(x: Tensor, layer: nn.Module) -> Tensor:
    """An input, output or error of a layer, as a batch of one where it is a single sample."""
    return x if x.dim() >= layer.get_parameter("weight").dim() else x.unsqueeze(0)


def look_at(layers: Mapping[str, nn.Module], look: Callable[[str, Tensor, Tensor], None]) -> None:
    """Call `look` with the name, the input and the output of each layer whenever it runs."""
    for name, layer in layers.items():

        def after(
            module: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor, name: str = name
        ) -> None:
            look(name, args[0] if args else named["input"], output)

        layer.register_forward_hook(after, with_kwargs=True)


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


def by_reduction(weight: Tensor) -> np.ndarray:
    """A layer's weights as its forward product reads them: (reduction, outputs), channels innermost."""
    matrix: np.ndarray = weight.detach().movedim(1, -1).flatten(1).t().cpu().numpy()
    return matrix


def packed_facts(weights: Mapping[str, nn.Parameter], columns: int, *, balanced: bool) -> Iterator[ProductFact]:
    """Cycles of the two products that read weights, in tiles of the forward and of the transposed weights."""
    from presilicon.simulation import packed_share

    for layer, weight in weights.items():
        masks: tuple[tuple[ProductPhase, np.ndarray], ...] = (
            ("forward", by_reduction(weight) != 0),
            ("input_grad", by_reduction(weight.detach().transpose(0, 1)) != 0),
        )
        for product, mask in masks:
            share = packed_share(mask, columns, balanced=balanced)
            yield ProductFact(layer=layer, product=product, zeros="weights", share=share, columns=columns)


def structured_facts(weights: Mapping[str, nn.Parameter], pattern: str) -> Iterator[ProductFact]:
    """Cycles of products whose weights are N:M along their reduction; the others are not mentioned."""
    from presilicon.simulation import structured_share

    for layer, weight in weights.items():
        sides: tuple[tuple[ProductPhase, Tensor], ...] = (
            ("forward", weight.detach()),
            ("input_grad", weight.detach().transpose(0, 1)),
        )
        for product, side in sides:
            share = structured_share(by_reduction(side) != 0, pattern)
            if share is not None:
                yield ProductFact(layer=layer, product=product, zeros=pattern, share=share)
