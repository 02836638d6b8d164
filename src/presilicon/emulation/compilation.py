"""torch.compile: emulation itself runs uncompiled, inside models that are compiled."""

from collections.abc import Callable
from functools import wraps
from types import CodeType
from typing import Any, ParamSpec, TypeVar

import torch

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")

_REASON = "an emulated model cannot be exported: the result would not round"
"""Torch shows it where a graph may not be broken: in a strict export, and with `fullgraph=True`."""


def uncompiled(function: Callable[ArgumentsT, ResultT]) -> Callable[ArgumentsT, ResultT]:
    """`function`, which torch.compile neither traces nor compiles: it counts calls and keeps caches.

    Torch's own decorator imports its compiler, which takes longer than all else that emulation imports.
    """
    disabled: list[Callable[ArgumentsT, ResultT]] = []

    @wraps(function)
    def run(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> ResultT:
        if torch._C._dynamo.eval_frame.get_eval_frame_callback() is None:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    wrapper: Any = run
    wrapper._torchdynamo_disable = True
    wrapper._torchdynamo_disable_msg = _REASON
    _skip(wrapper.__code__)
    return run


def _skip(code: CodeType) -> None:
    """Make torch.compile run frames of this code as they are; without it, it compiles them and breaks off at once."""
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):  # torch 2.6
        frames.skip_code(code)
    elif hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, default))
