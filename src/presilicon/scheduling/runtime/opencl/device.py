"""An OpenCL device behind the interface of all devices: aten ops on tensors in its memory."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from presilicon.base import np, torch
from presilicon.ops import follow
from presilicon.scheduling.runtime.devices import DeviceTensor, contiguous_strides, map_leaves
from presilicon.scheduling.runtime.opencl.boards import Board
from presilicon.scheduling.runtime.opencl.tuning import load_tuned

Op = Callable[..., Any]
"""Called with the device, the operand to write in place (or None), and the arguments of the aten call."""
Check = Callable[..., bool]
"""Called with the arguments of the aten call, after the general checks."""

LARGEST_RANK = 6
_MODULES = ("elementwise", "products", "layers")
_REFUSED = ("out", "mode", "_Tensor_Tensor", "complex")
_AS_VIEW = {"_unsafe_view": "view", "detach": "alias", "lift_fresh": "alias"}


@cache
def ops() -> dict[str, tuple[Op, Check]]:
    """The covered aten operators by name, without the underscore of in-place twins."""
    table: dict[str, tuple[Op, Check]] = {}
    for module in _MODULES:
        own = import_module(f"presilicon.scheduling.runtime.opencl.{module}").OPS
        table |= {name: (run, _typed(name, check) if name in _TYPED or module != "elementwise" else check)
                  for name, (run, check) in own.items()}  # fmt: skip
    return table


@cache
def op_named(name: str) -> tuple[Op, Check] | None:
    """The kernel of an operator and its check: written by hand, or printed from its formula; None if there is none."""
    from presilicon.scheduling.runtime.opencl.elementwise import by_formula

    return ops().get(name) or by_formula(name)


follow(op_named.cache_clear)
_TYPED = ("mse_loss_backward", "slice_backward", "select_backward", "masked_fill")
_CASTS = ("sum", "masked_fill")
"""Operators that check or convert the dtype of an operand themselves."""


def _typed(name: str, check: Check) -> Check:
    """A check that operands also have the dtypes that a kernel reads: float32, and int64 for indices."""
    from presilicon.scheduling.runtime.opencl.layers import WHOLE

    whole = WHOLE.get(name, -1)

    def typed(*args: Any, **kwargs: Any) -> bool:
        for position, value in enumerate(args):
            wanted = torch.int64 if position == whole else torch.float32
            converts = name in _CASTS and getattr(value, "dtype", None) == torch.bool
            if getattr(value, "dtype", wanted) != wanted and not converts:
                return False
        return check(*args, **kwargs)

    return typed


@cache
def _names(func: Any) -> tuple[str, bool, bool]:
    """Name without the underscore of in-place twins, whether it is one, and whether it is a view."""
    name = func._schema.name.split("::")[1]
    in_place = name.endswith("_") and not name.endswith("__")
    name = name[:-1] if in_place else name
    return name, in_place, (func.is_view or name in _AS_VIEW) and not in_place


@cache
def _dtypes() -> tuple[Any, ...]:
    return torch.float32, torch.int64, torch.bool


class OpenCLDevice:
    """A board of OpenCL as a device of the runtime."""

    def __init__(self, platform: int = 0, device: int = 0, part: int | None = None, *, profile: bool = False) -> None:
        self.board = Board(platform, device, part, profile=profile)
        self.name = self.board.info.name
        self.tuned = load_tuned(self.board.info)
        self.views: dict[Any, Any] = {}

    def covers(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether there are kernels for this call: float32, with int64 and bool where torch has them."""
        name, in_place, is_view = _names(func)
        if func.namespace != "aten" or any(func._overloadname.endswith(word) for word in _REFUSED):
            return False
        tensors = _tensors((args, kwargs))
        if any(t.dtype not in _dtypes() or len(t.shape) > LARGEST_RANK for t in tensors):
            return False
        if is_view:
            return name != "as_strided" or (isinstance(tensors[0], DeviceTensor) and tensors[0].contiguous)
        own = op_named(name)
        if own is None or (in_place and not tensors) or kwargs.get("dtype") not in (None, *_dtypes()):
            return False
        if any(0 in t.shape for t in tensors) or kwargs.get("memory_format") not in _memory_formats():
            return False
        if in_place and tensors[0].dtype != torch.float32 and not _stays(tensors, args):
            return False
        try:
            return own[1](*args, **kwargs)
        except (TypeError, IndexError, AttributeError):
            return False  # arguments that the kernel's function does not know

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Start an aten call; results are there when the queue has come to them."""
        name, in_place, is_view = _names(func)
        if is_view:
            return self._view(func, name, args, kwargs)
        own = op_named(name)
        assert own is not None
        return own[0](self, args[0] if in_place else None, *args, **kwargs)

    def put(self, tensor: "torch.Tensor") -> DeviceTensor:
        """A copy of a host tensor on the device."""
        placed = self.empty(tuple(tensor.shape), tensor.dtype)
        if tensor.numel():
            array = tensor.detach().contiguous().numpy()
            self.board.copy(placed._storage, array.view(np.uint8) if array.dtype == np.bool_ else array)
        return placed

    def get(self, tensor: DeviceTensor) -> "torch.Tensor":
        """A copy on the host; waits for the device."""
        dense = tensor if tensor.contiguous and not tensor.offset else self._copied(tensor)
        host = torch.empty(dense.shape, dtype=dense.dtype)
        if host.numel():
            self.board.copy(
                host.view(torch.uint8).numpy() if host.dtype == torch.bool else host.numpy(), dense._storage
            )
        return host

    def _copied(self, tensor: DeviceTensor) -> DeviceTensor:
        from presilicon.scheduling.runtime.opencl.elementwise import copy

        return copy(self, tensor, self.empty(tensor.shape, tensor.dtype))

    def empty(self, shape: tuple[int, ...], dtype: Any = None, strides: tuple[int, ...] | None = None) -> DeviceTensor:
        """A tensor of float32 (or that dtype) with any contents."""
        shape, dtype = tuple(shape), torch.float32 if dtype is None else dtype
        count = 1
        for side in shape:
            count *= side
        buffer = self.board.allocate(count * dtype.itemsize)
        return DeviceTensor(buffer, shape, contiguous_strides(shape) if strides is None else strides, 0, dtype)

    def contiguous(self, tensor: DeviceTensor) -> DeviceTensor:
        """The tensor itself, or a contiguous copy that the device makes."""
        return tensor if tensor.contiguous else self._copied(tensor)

    def launch(self, file: str, kernel: str, items: int | tuple[int, int], *args: Any, **options: Any) -> Any:
        """Start a kernel of a file; tensors among the arguments stand for their buffer and their offset."""
        group = options.pop("group", None)
        flat: list[Any] = []
        for value in args:
            if isinstance(value, DeviceTensor):
                flat += (value._storage, value.offset)
            else:
                flat.append(value)
        return self.board.launch(self.board.configure(file, kernel, options), items, *flat, group=group)

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.board.synchronize()

    def close(self) -> None:
        """Release the board."""
        self.views.clear()
        self.board.release()

    def _view(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Views by torch's own rules: the same call on tensors without data says shape, strides and offset."""
        source = next(t for t in _tensors(args) if isinstance(t, DeviceTensor))
        key = func, source.shape, source.strides, source.offset, source.dtype, repr(args[1:]), repr(kwargs)
        layouts = self.views.get(key)
        if layouts is None:
            function = getattr(torch.ops.aten, _AS_VIEW[name]).default if name in _AS_VIEW else func
            try:
                result = function(*map_leaves(_as_meta, args), **kwargs)
            except RuntimeError:  # strides that torch would not have here: view a copy
                return self._view(func, name, (self._copied(source), *args[1:]), kwargs)
            several = isinstance(result, (list, tuple))
            metas = list(result) if several else [result]
            layouts = several, [(tuple(meta.shape), meta.stride(), int(meta.storage_offset())) for meta in metas]
            self.views[key] = layouts
        views = [source.view(*layout) for layout in layouts[1]]
        return views if layouts[0] else views[0]


def _memory_formats() -> tuple[Any, ...]:
    return None, torch.contiguous_format, torch.preserve_format


def _tensors(value: Any) -> list[Any]:
    found: list[Any] = []

    def visit(leaf: Any) -> None:
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            found.append(leaf)

    map_leaves(visit, value)
    return found


def _stays(tensors: list[Any], args: Any) -> bool:
    """Whether a whole number or a condition that is written in place has operands of its own kind only."""
    alike = all(tensor.dtype == tensors[0].dtype for tensor in tensors)
    return alike and not any(isinstance(value, float) for value in args)


def _as_meta(value: Any) -> Any:
    if not isinstance(value, DeviceTensor):
        return value
    reach = value.offset + sum((side - 1) * stride for side, stride in zip(value.shape, value.strides, strict=True)) + 1
    base = torch.empty(max(reach, value.offset, 0), dtype=value.dtype, device="meta")
    return base.as_strided(value.shape, value.strides, value.offset)
