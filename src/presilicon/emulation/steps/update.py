"""The operators of an optimizer's update as sequences of steps."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from presilicon.emulation.steps.lines import Line
from presilicon.emulation.steps.primitives import RoundedSteps
from presilicon.ops import all_entries, follow


@cache
def update_steps() -> Mapping[Any, Callable[..., Tensor]]:
    """The program of each ATen operator that SGD, Adam and their relatives use on single tensors."""
    table: dict[Any, Callable[..., Tensor]] = {}
    for entry in all_entries():
        for spelling in (entry.name, f"{entry.name}_") if entry.updates else ():
            packet = getattr(torch.ops.aten, spelling, None)
            for overload in () if packet is None else packet.overloads():
                if "out" not in overload:
                    assert entry.program is not None
                    table[getattr(packet, overload)] = entry.program
    return table


follow(update_steps.cache_clear)


def run_update_step(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], line: Line) -> Any:
    """An operator computed step by step, in place if it is; NotImplemented if it has no such sequence."""
    decompose = update_steps().get(func)
    if decompose is None or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
        return NotImplemented
    out = decompose(RoundedSteps(line, line, args[0]), *args, **kwargs)
    if out is NotImplemented or not func._schema.name.endswith("_"):
        return out
    return args[0].copy_(out)
