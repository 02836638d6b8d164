"""The conversions of torch.autocast on a GPU, run for real without one.

Autocast's policies differ between CPU and GPU. This registers the GPU's, as torch's own header lists them, for the
CPU's dispatch key, so that torch itself converts tensors and their gradients, and counts the conversions.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_KEY = "AutocastCPU"
HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def policies(name: str) -> list[str]:
    """Operators with their overloads in a list of torch's header: `AT_FORALL_FP32`, `AT_FORALL_FP32_SET_OPT_DTYPE`."""
    text = HEADER.read_text().partition(f"#define {name}(_)")[2]
    entries = re.findall(r"_\((\w+)(?:, (\w+))?\)", text.partition("\n\n")[0])
    return [f"{operator}.{overload}" if overload else operator for operator, overload in entries]


def _kernel(function: Any, is_told: bool) -> Callable[..., Any]:
    """The GPU's kernel of an operator: operands in float32, or the operator is told to return float32."""

    def convert(leaf: Any) -> Any:
        return leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in (torch.bfloat16, torch.float16) else leaf

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            if not is_told:
                return function(*pytree.tree_map(convert, args), **pytree.tree_map(convert, kwargs))
            is_free = kwargs.get("dtype") is None and args[0].is_floating_point()
            chosen = kwargs | {"dtype": torch.float32} if is_free else kwargs
            names = [argument.name for argument in function._schema.arguments]
            return function(**dict(zip(names, args, strict=False)) | chosen)

    return run


@contextmanager
def gpu_policies() -> Iterator[None]:
    """Inside, `torch.autocast("cpu")` converts what it would convert on a GPU."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, is_told in (("AT_FORALL_FP32", False), ("AT_FORALL_FP32_SET_OPT_DTYPE", True)):
            for entry in policies(name):
                operator, _, overload = entry.partition(".")
                if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{entry}", _KEY):
                    function = getattr(getattr(torch.ops.aten, operator), overload or "default")
                    library.impl(entry, _kernel(function, is_told), _KEY)
        yield
    finally:
        library._destroy()


class Conversions(TorchDispatchMode):
    """Counts the numbers that are converted between 16 and 32 bits, by stage."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.shapes: list[tuple[tuple[int, ...], torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and {output.dtype, args[0].dtype} == {torch.float32, torch.bfloat16}:
            self.elements += output.numel()
            self.shapes.append((tuple(output.shape), output.dtype))
        return output
