"""Launches of compiled Triton kernels, found again by what they were compiled for."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor

_ALIGNED = 16
"""Bytes to which tensors must be aligned for a launch to serve them all."""
_MOST = 4096


class Launch(NamedTuple):
    """A compiled kernel with its grid."""

    run: Callable[..., None]
    constants: tuple[Any, ...]
    """The last arguments of the kernel."""
    shape: tuple[int, ...]
    """The shape of the result, where the caller allocates it."""


Key = tuple[Any, ...]

launches: dict[Key | None, Launch] = {}
"""Python takes longer to find a kernel by its arguments than to start it."""


def aligned(key: Key, tensors: Iterable[Tensor]) -> Key | None:
    """The key of a launch with these tensors; None if one of them is not aligned, since no other launch serves it."""
    return None if any(x.data_ptr() % _ALIGNED for x in tensors) else key


def remember(key: Key | None, compiled: Any, grid: Key, constants: Key, shape: tuple[int, ...] = ()) -> None:
    """Keep a compiled kernel for the next launch with the same key; Triton's interpreter compiles none."""
    if compiled is not None and key is not None:
        if len(launches) >= _MOST:
            launches.clear()
        launches[key] = Launch(compiled[grid], constants, shape)


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
    names = (id(kernel), programs, first.device, second.dtype, holds_key, *sizes, *constants.values())
    key = aligned(names, tensors)
    launch = launches.get(key)
    if launch is not None:
        launch.run(*tensors, *sizes, *numbers, *launch.constants)
        return
    grid = (programs, 1, 1)
    compiled = kernel[grid](*tensors, *sizes, *numbers, **constants)
    ordered = kernel.arg_names[len(tensors) + len(sizes) + len(numbers) :]
    remember(key, compiled, grid, tuple(constants[name] for name in ordered))
