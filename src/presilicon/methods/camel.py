"""CAMEL (Zhang et al., "CAMEL: Co-Designing AI Models and Embedded DRAMs", HPCA 2024, arXiv 2305.03148).

Reversible blocks recompute their inputs in the backward pass, so that activations live for about one block, however
deep the network is. Embedded DRAM then needs no refresh where all lifetimes are below its retention time
(`[[machine.memories]]` with `kind = "edram"`). The model must have `Reversible` blocks, as `digits-revnet` has; those
that change the width are kept as they are, as in the source. With `freeze`, layers before them are not trained: the
source has a pretrained network there, and a small reversible branch without normalization behind it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import Method

if TYPE_CHECKING:
    from torch import nn


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
            sequence.recomputes = True
        for pattern in self.freeze:
            frozen = [layer for name, layer in model.named_modules() if fnmatchcase(name, pattern)]
            if not frozen:
                raise ConfigError(f'methods: camel.freeze: no layer matches "{pattern}"')
            for layer in frozen:
                layer.requires_grad_(False)
        return model
