"""Activation checkpointing: a recomputation in the backward pass continues from the state of the forward pass.

The random numbers of an op depend on the layer, on the number of its calls so far, and on the op that first rounded a
tensor. A recomputation runs a part of the forward pass out of order, so it starts from the state that was in force
when that part first ran.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import _CheckpointFrame

from presilicon.emulation.origins import Origins

if TYPE_CHECKING:
    from presilicon.emulation.site import Rounded


@dataclass(frozen=True, slots=True)
class Moment:
    """State of a forward pass at the start of a checkpointed region."""

    step: int
    pass_number: int
    training: bool
    layers: tuple[str, ...]
    calls: dict[str, int]
    rounded: "Rounded"
    origins: Origins
    is_exact: bool
    """Whether the region is inside `exact()`."""


def checkpointed_region() -> Any | None:
    """Torch's record of the innermost `checkpoint(..., use_reentrant=False)` whose forward pass is running.

    It is private in torch: the region's hooks for saved tensors refer to it.
    """
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None:
        return None
    for cell in getattr(hooks[0], "__closure__", None) or ():
        with suppress(ValueError):  # a cell without contents
            if isinstance(cell.cell_contents, _CheckpointFrame):
                return cell.cell_contents
    return None


def moments_of(region: Any, emulation: object) -> list[Moment]:
    """The state at the start of a region, or of each forward pass that began inside; the region itself keeps them."""
    moments: list[Moment] = vars(region).setdefault(f"moments of emulation {id(emulation)}", [])
    return moments


def continue_from(region: Any, resumed: Callable[[], AbstractContextManager[None]]) -> None:
    """Make the region's recomputations run inside the context that `resumed` returns."""
    recompute = region.recompute_fn

    def run(*inputs: Any) -> Any:
        with resumed():
            return recompute(*inputs)

    region.recompute_fn = run
