"""CAMEL (Zhang et al., "CAMEL: Co-Designing AI Models and Embedded DRAMs", HPCA 2024, arXiv 2305.03148).

Reversible blocks recompute their inputs in the backward pass, so that activations live for about one block, however
deep the network is. Embedded DRAM then needs no refresh where all lifetimes are below its retention time
(`[[machine.memories]]` with `kind = "edram"`). The model must have `Reversible` blocks, as `digits-revnet` has. With
`freeze`, other layers are not trained: the source has a pretrained network in front of a small reversible branch.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import Method

if TYPE_CHECKING:
    from torch import nn

    from presilicon.workloads import Reversible


class Camel(Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="camel"):
    """Recomputes the inputs of reversible blocks instead of keeping them."""

    in_training = "the inputs of reversible blocks are recomputed from their outputs"
    in_hardware = "a second forward pass of each block; activations that live for one block"

    freeze: tuple[str, ...] = ()
    """Names of layers that are not trained, with `*` for any letters."""

    def transform(self, model: nn.Module) -> nn.Module:
        """The model, whose reversible blocks recompute."""
        from presilicon.workloads import Reversible

        sequences = [module for module in model.modules() if isinstance(module, Reversible)]
        if not sequences:
            raise ConfigError(
                "methods: camel needs reversible blocks, which this model does not have: build it of "
                "presilicon.workloads.Reversible, as the workload digits-revnet is"
            )
        for sequence in sequences:
            _check(sequence)
            sequence.recomputes = True
        for pattern in self.freeze:
            frozen = [layer for name, layer in model.named_modules() if fnmatchcase(name, pattern)]
            if not frozen:
                raise ConfigError(f'methods: camel.freeze: no layer matches "{pattern}"')
            for layer in frozen:
                layer.requires_grad_(False)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ConfigError("methods: camel.freeze leaves no parameter to train")
        return model


def _check(sequence: Reversible) -> None:
    """Refuse what a second forward pass would not repeat."""
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.dropout import _DropoutNd

    for name, module in sequence.named_modules():
        random = isinstance(module, _DropoutNd) and module.p > 0
        counting = isinstance(module, _NormBase) and module.track_running_stats
        if random or counting:
            what = "draws other random numbers" if random else "counts its batch twice"
            raise ConfigError(
                f'methods: camel: "{name}" ({type(module).__name__}) {what} when it is run again; leave it out of the '
                "reversible blocks"
            )
    owned = [
        id(parameter)
        for coupling in sequence.couplings
        for function in coupling._modules.values()
        if function is not None
        for parameter in function.parameters()
    ]
    if len(owned) != len(set(owned)):
        raise ConfigError("methods: camel: two functions of a reversible block share parameters; give each its own")
