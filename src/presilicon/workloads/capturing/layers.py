"""Layers of a model: the one that is running, and those that multiply by weights.

Module hooks track the forward pass; the autograd nodes that it created identify layers in the backward pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from presilicon.records import Ends

_sequence_number = getattr(torch.autograd, "_get_sequence_nr", None)
"""Returns the number of the next autograd node. Private in torch; without it, backward ops have no layer."""


_WRAPPED = frozenset(["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"])
"""Names under which torch.compile, FSDP and the checkpoint wrapper hold the module that they wrap."""


def plain_name(model: nn.Module, name: str) -> str:
    """The name that a module or parameter has in the model itself, if `model` is that model in a wrapper of torch.

    >>> plain_name(nn.DataParallel(nn.Sequential(nn.Linear(2, 2))), "module.0.weight")
    '0.weight'
    """
    parts = name.split(".")
    for depth, part in enumerate(parts):
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel) and part == "module":
            parts[depth], model = "", model.module
        elif part in _WRAPPED:
            parts[depth], model = "", getattr(model, part)
        else:
            break
    return ".".join(part for part in parts if part and part not in _WRAPPED)


def named_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """`model.named_modules()`, without the names of torch's wrappers (DDP, FSDP, torch.compile)."""
    for name, module in model.named_modules():
        yield plain_name(model, name), module


def constants_of(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    """Buffers and other tensors that modules hold, which are neither parameters nor data."""
    for module in modules:
        for value in (*module._buffers.values(), *vars(module).values()):
            if isinstance(value, Tensor):
                yield value


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors among values, and in lists, tuples and dicts of them."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple | dict):
            yield from tensors_in(value)


class _Layer(NamedTuple):
    name: str
    recurrent: bool


_OUTSIDE = _Layer("", recurrent=False)


class Layers:
    """Tracks a model's forward passes through its modules."""

    def __init__(self, model: nn.Module) -> None:
        self._stack: list[_Layer] = []
        self._numbers: list[int] = []
        self._entered: list[_Layer] = []
        for name, module in named_layers(model):
            # Prepended, so that the user's own hooks run inside the layer.
            layer = _Layer(name, isinstance(module, nn.RNNBase))
            module.register_forward_pre_hook(self._entering(layer), prepend=True)
            module.register_forward_hook(self._leaving, always_call=True)

    @property
    def inside(self) -> bool:
        """Whether a module's forward pass is running."""
        return bool(self._stack)

    @property
    def current(self) -> str:
        """Qualified name of the innermost module whose forward pass is running; empty outside."""
        return self._innermost.name

    @property
    def recurrent(self) -> bool:
        """Whether that module is recurrent."""
        return self._innermost.recurrent

    @property
    def _innermost(self) -> _Layer:
        return self._stack[-1] if self._stack else _OUTSIDE

    def of_node(self, node: Any) -> str:
        """The layer whose forward pass created an autograd node; empty if it was created outside or is unknown."""
        return self._creator(node).name

    def recurs(self, node: Any) -> bool:
        """Whether a recurrent layer's forward pass created an autograd node."""
        return self._creator(node).recurrent

    def _creator(self, node: Any) -> _Layer:
        number = sequence_number_of(node)
        position = -1 if number is None else bisect_right(self._numbers, number) - 1
        return self._entered[position] if position >= 0 else _OUTSIDE

    def _entering(self, layer: _Layer) -> Any:
        def enter(*_: Any) -> None:
            self._stack.append(layer)
            self._note()

        return enter

    def _leaving(self, *_: Any) -> None:
        self._stack.pop()
        self._note()

    def _note(self) -> None:
        number = next_sequence_number()
        if number is not None:
            self._numbers.append(number)
            self._entered.append(self._innermost)


def next_sequence_number() -> int | None:
    """The sequence number that the next autograd node of this thread will get."""
    return None if _sequence_number is None else int(_sequence_number())


def sequence_number_of(node: Any) -> int | None:
    """The sequence number of an autograd node, or None if torch does not tell."""
    if _sequence_number is None or not hasattr(node, "_sequence_nr"):
        return None
    return int(node._sequence_nr())


_MULTIPLYING = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear)
_LOOKED_UP_OR_SCALED = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm)


def ends_of(model: nn.Module) -> Ends:
    """The first and the last layer, in the order of registration, that multiply by a matrix of weights.

    Emulation calls this function; the simulator reads `StepGraph.ends`, which capture took from here.
    """
    layers = multiplying_layers(model)
    return Ends(layers[0], layers[-1]) if layers else Ends()


def multiplying_layers(model: nn.Module) -> list[str]:
    """The layers that multiply by a matrix of weights, in the order of registration.

    Those are torch's own layers that multiply, and modules without children that own a matrix, such as the Conv1D of
    transformers. Embedding tables and the weights of norms do not count, nor do parameters whose first dimension is 1,
    such as position embeddings, which are added. The modules inside an nn.MultiheadAttention are part of it. The model
    itself counts only if none of its layers does.
    """
    inside = tuple(f"{name}." for name, module in named_layers(model) if isinstance(module, nn.MultiheadAttention))
    layers = [name for name, module in named_layers(model) if not name.startswith(inside) and _multiplies(module)]
    return [name for name in layers if name] or layers


def _multiplies(module: nn.Module) -> bool:
    if isinstance(module, _MULTIPLYING):
        return True
    if isinstance(module, _LOOKED_UP_OR_SCALED) or next(module.children(), None) is not None:
        return False
    return any(parameter.dim() > 1 and len(parameter) > 1 for parameter in module.parameters(recurse=False))
