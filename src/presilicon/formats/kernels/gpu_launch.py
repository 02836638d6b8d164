"""Launches of compiled Triton kernels, found again by what they were compiled for."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

_ALIGNED = 16
"""Bytes to which tensors must be aligned for a launch to serve them all."""
_MOST = 4096


class _Launch(NamedTuple):
    """A compiled kernel with its grid."""

    run: Callable[..., None]
    constants: tuple[Any, ...]


_launches: dict[tuple[Any, ...], _Launch] = {}
"""Python takes longer to find a kernel by its arguments than to start it."""


def start(
    kernel: Any,
    programs: int,
    tensors: tuple[Tensor, ...],
    sizes: tuple[int, ...],
    constants: dict[str, Any],
    numbers: tuple[Any, ...] = (),
) -> None:
    """Start a kernel with these arguments: tensors, sizes, numbers that it is not specialised for, constants.

    Of the tensors, only the second has a type that the constants do not determine; the first of the numbers may be a
    tensor that holds it (see `gpu_keys`).
    """
    (first, second), holds_key = tensors[:2], bool(numbers) and isinstance(numbers[0], Tensor)
    key = (id(kernel), programs, first.device, second.dtype, holds_key, *sizes, *constants.values())
    launch = _launches.get(key)
    is_aligned = not any(x.data_ptr() % _ALIGNED for x in tensors)
    if launch is not None and is_aligned:
        launch.run(*tensors, *sizes, *numbers, *launch.constants)
        return
    grid = (programs, 1, 1)
    compiled = kernel[grid](*tensors, *sizes, *numbers, **constants)
    if compiled is not None and is_aligned:  # Triton's interpreter returns no kernel
        if len(_launches) >= _MOST:
            _launches.clear()
        names = kernel.arg_names[len(tensors) + len(sizes) + len(numbers) :]
        _launches[key] = _Launch(compiled[grid], tuple(constants[name] for name in names))
