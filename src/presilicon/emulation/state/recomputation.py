"""Activation checkpointing: a recomputation in the backward pass continues from the state of the forward pass.

The random numbers of an op depend on the layer, on the number of its calls so far, and on the op that first rounded a
tensor. A recomputation runs a part of the forward pass out of order, so it starts from the state that was in force
when that part first ran.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from inspect import unwrap
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointFunction, _CheckpointFrame, checkpoint

from presilicon.emulation.origins import Origins

if TYPE_CHECKING:
    from presilicon.emulation.rounded import Rounded

_CHECKPOINT = unwrap(checkpoint).__code__
_REENTRANT = unwrap(CheckpointFunction.forward).__code__


@dataclass(frozen=True, slots=True)
class Moment:
    """State of a forward pass at the start of a checkpointed region."""

    step: int
    pass_number: int
    evaluated: str
    earlier_tasks: int
    training: bool
    layers: tuple[str, ...]
    calls: dict[str, int]
    rounded: "Rounded"
    origins: Origins
    is_exact: bool
    """Whether the region is inside `exact()`."""

    def seen_by(self, inputs: Sequence[Any]) -> "tuple[Rounded, Origins]":
        """Caches of a recomputation, which has `inputs` in place of the tensors that the region was called with."""
        rounded, origins = self.rounded.emptied(), self.origins.copied()
        for number, value in enumerate(inputs):
            if isinstance(value, Tensor):
                rounded.stand_in(value, number)
                origins.stand_in(value, number)
        return rounded, origins


class Region(NamedTuple):
    """A call of `torch.utils.checkpoint.checkpoint` whose forward pass is running."""

    record: Any
    """Torch's own record of the call, which keeps the function that is called again."""
    inputs: tuple[Any, ...] = ()

    @property
    def is_reentrant(self) -> bool:
        """Whether the region runs without gradients, and is differentiated after it was called again."""
        return not isinstance(self.record, _CheckpointFrame)

    def moments_of(self, emulation: object) -> list[Moment]:
        """The state at the start, or of each forward pass that began inside; the record itself keeps them."""
        moments: list[Moment] = vars(self.record).setdefault(f"moments of emulation {id(emulation)}", [])
        return moments

    def continue_from(self, resumed: Callable[[Sequence[Any]], AbstractContextManager[None]]) -> None:
        """Make the region's recomputations run inside the context that `resumed` returns for their inputs."""
        name = "run_function" if self.is_reentrant else "recompute_fn"
        recompute = getattr(self.record, name)

        def run(*inputs: Any) -> Any:
            with resumed(inputs):
                return recompute(*inputs)

        setattr(self.record, name, run)


def innermost_record() -> Any | None:
    """Torch's record of the innermost region that is not reentrant, found in little time."""
    return _record_of(torch._C._autograd._top_saved_tensors_default_hooks(True))


def open_regions() -> list[Region]:
    """All regions whose forward pass is running, of both kinds."""
    called = list(_called_regions())
    inputs = {id(region.record): region.inputs for region in called}
    records = [record for record in map(_record_of, _hooks()) if record is not None]
    regions = [Region(record, inputs.get(id(record), ())) for record in records]
    return regions + [region for region in called if region.is_reentrant]


def _called_regions() -> Iterator[Region]:
    """The regions among the running Python functions, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        values = frame.f_locals if frame.f_code in (_CHECKPOINT, _REENTRANT) else {}
        if frame.f_code is _REENTRANT:
            yield Region(values["ctx"], values["args"])
        elif "gen" in values and values["gen"].gi_frame is not None:
            record = values["gen"].gi_frame.f_locals.get("new_frame")
            if record is not None:
                yield Region(record, values["args"])
        frame = frame.f_back


def reentrant_regions() -> list[Region]:
    """The reentrant regions whose forward pass is running, which is without gradients."""
    return [] if torch.is_grad_enabled() else [region for region in _called_regions() if region.is_reentrant]


def _hooks() -> list[Any]:
    """Torch's stack of hooks for saved tensors, which only shows its top."""
    autograd: Any = torch._C._autograd
    hooks: list[Any] = []
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    for pair in reversed(hooks):
        autograd._push_saved_tensors_default_hooks(*pair)
    return hooks


def _record_of(hooks: Any) -> Any | None:
    """The record of a region whose hooks these are; it is private in torch, and the hooks refer to it."""
    for cell in (getattr(hooks[0], "__closure__", None) or ()) if hooks is not None else ():
        with suppress(ValueError):  # a cell without contents
            if isinstance(cell.cell_contents, _CheckpointFrame):
                return cell.cell_contents
    return None
