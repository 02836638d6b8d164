"""Element-wise aten ops: arithmetic, functions, comparisons, casts, copies and fills, with broadcasting."""

from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.ops import compile_formula, find, formula_of, operands
from presilicon.scheduling.runtime.devices import DeviceTensor, contiguous_strides
from presilicon.scheduling.runtime.opencl.printing import is_printable, print_kernel

if TYPE_CHECKING:
    from presilicon.scheduling.runtime.opencl.device import OpenCLDevice

GRAIN = 8192
"""Elements per work item at least; fewer do not pay for another one."""


def apply(
    dev: "OpenCLDevice", kernel: str, out: DeviceTensor, operands: tuple[DeviceTensor, ...], s: Any = 0, t: Any = 0,
    *, file: str = "elementwise",
) -> DeviceTensor:  # fmt: skip
    """Run an element-wise kernel over broadcast operands."""
    a = operands[0] if operands else out
    b = operands[1] if len(operands) > 1 else a
    c = operands[2] if len(operands) > 2 else b
    n = out.numel()
    if not n:
        return out
    key = out.shape, out.strides, a.shape, a.strides, b.shape, b.strides, c.shape, c.strides
    cached = dev.views.get(key)
    if cached is None:
        cached = dev.views[key] = _layout(out, (a, b, c))
    items = max(1, min(4 * dev.board.units, n // GRAIN))
    name = "map_" + kernel
    if cached == ():
        dev.launch(file, name, items, out, a, b, c, s, t, n)
    else:
        dev.launch(file, name + "_strided", items, out, a, b, c, s, t, n, dev.board.constants(cached))
    return out


def _layout(out: DeviceTensor, operands: tuple[DeviceTensor, ...]) -> tuple[int, ...]:
    """Dimensions that cannot be merged, as the strided kernels read them; empty if all is one contiguous run."""
    rank = out.ndim
    strides = [out.strides]
    for operand in operands:
        missing = rank - operand.ndim
        padded = (0,) * missing + operand.strides
        sides = (1,) * missing + operand.shape
        strides.append(tuple(0 if side == 1 else stride for side, stride in zip(sides, padded, strict=True)))
    dims: list[list[int]] = []  # [side, stride of out, of a, of b, of c], outermost first
    for axis, side in enumerate(out.shape):
        if side == 1:
            continue
        steps = [stride[axis] for stride in strides]
        if dims and all(dims[-1][i + 1] == step * side for i, step in enumerate(steps)):
            dims[-1] = [dims[-1][0] * side, *steps]
        else:
            dims.append([side, *steps])
    if not dims or (len(dims) == 1 and dims[0][1:] == [1, 1, 1, 1]):
        return ()
    columns = [[dim[i] for dim in dims] + [0] * (6 - len(dims)) for i in range(5)]
    return (len(dims), *(value for column in columns for value in column))


def copy(dev: "OpenCLDevice", source: DeviceTensor, out: DeviceTensor) -> DeviceTensor:
    """Copy into `out`, with a cast and with broadcasting."""
    names = {torch.float32: "float", torch.int64: "long", torch.bool: "bool"}
    if source.dtype == out.dtype:
        kernel = {"float": "copy", "long": "copy_long", "bool": "copy_bool"}[names[out.dtype]]
    else:
        kernel = f"cast_{names[source.dtype]}_{names[out.dtype]}"
    return apply(dev, kernel, out, (source,))


def fill(dev: "OpenCLDevice", out: DeviceTensor, value: Any) -> DeviceTensor:
    """Set all elements."""
    if out.dtype == torch.float32:
        return apply(dev, "fill", out, (), float(value))
    return apply(dev, "fill_long" if out.dtype == torch.int64 else "fill_bool", out, (), int(value))


def cast(dev: "OpenCLDevice", tensor: DeviceTensor, dtype: Any) -> DeviceTensor:
    """The tensor in a dtype; itself if it is."""
    return tensor if tensor.dtype == dtype else copy(dev, tensor, dev.empty(tensor.shape, dtype))


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _binary(name: str) -> Any:
    def call(a: Any, b: Any) -> Any:
        return (name, (a, b)) if _is_tensor(b) else (f"{name}_scalar", (a,), b)

    return call


def _add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return ("add", (a, b), alpha) if _is_tensor(b) else ("add_scalar", (a,), b * alpha)


def _pow(a: Any, exponent: Any) -> Any:
    simple = {2: "square", 0.5: "sqrt", -1: "reciprocal", -0.5: "rsqrt"}
    if exponent == 1:
        return "copy", (a,)
    return (_formula_kernel(simple[exponent], "x"), (a,)) if exponent in simple else ("pow_scalar", (a,), exponent)


def _clamp(a: Any, low: Any = None, high: Any = None) -> Any:
    ends = float("-inf") if low is None else low, float("inf") if high is None else high
    return "clamp_both", (a,), min(ends), ends[1]  # with the ends exchanged all becomes the upper one, as in torch


_PAIRED = ("maximum", "minimum")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGIC = {"bitwise_and": "both", "logical_and": "both", "bitwise_or": "either", "logical_or": "either"}
_LONGS = ("add", "add_scalar", "sub", "mul", "mul_scalar", *_COMPARE, *(f"{name}_scalar" for name in _COMPARE))
"""Kernels that have a twin for int64."""

_FORMS: dict[str, Any] = {
    "add": _add, "mul": _binary("mul"), "div": _binary("div"), "pow": _pow,
    "sub": lambda a, b, *, alpha=1: ("sub", (a, b), alpha) if _is_tensor(b) else ("add_scalar", (a,), -b * alpha),
    "rsub": lambda a, b, alpha=1: ("sub", (b, a), alpha) if _is_tensor(b) else ("rsub_scalar", (a,), float(b), alpha),
    "lerp": lambda a, end, by: ("lerp_tensor", (a, end, by)) if _is_tensor(by) else ("lerp", (a, end), by),
    "clamp": _clamp, "clamp_min": lambda a, low: _clamp(a, low), "clamp_max": lambda a, high: _clamp(a, None, high),
    "hardtanh": lambda a, low=-1.0, high=1.0: _clamp(a, low, high),
    "addcmul": lambda a, b, c, *, value=1: ("addcmul", (a, b, c), value),
    "addcdiv": lambda a, b, c, *, value=1: ("addcdiv", (a, b, c), value),
    "where": lambda c, a, b: ("select_by", (a, b, c)),
    **{name: (lambda a, b, name=name: (name, (a, b))) for name in _PAIRED},
    **{name: _binary(name) for name in _COMPARE},
    **{name: (lambda a, b, kernel=kernel: (kernel, (a, b))) for name, kernel in _LOGIC.items()},
    "bitwise_not": lambda a: ("no", (a,)), "logical_not": lambda a: ("no", (a,)),
}  # fmt: skip
"""Aten name: from its arguments to a kernel, its tensors and two scalars."""


def _kind(kernel: str, tensors: tuple[Any, ...], scalars: tuple[Any, ...]) -> tuple[str, Any, Any] | None:
    """The kernel for the operands' dtypes, their common dtype and that of the result; None if there is none."""
    dtypes = {tensor.dtype for tensor in tensors}
    if kernel in ("both", "either", "no"):
        return (kernel, torch.bool, torch.bool) if dtypes == {torch.bool} else None
    if kernel == "clamp_both" and torch.float32 not in dtypes:
        return None  # its open ends are floats, whatever it clamps
    tests = kernel.removesuffix("_scalar") in _COMPARE
    if torch.float32 in dtypes or any(isinstance(value, float) for value in scalars):
        return kernel, torch.float32, torch.bool if tests else torch.float32
    if kernel == "div":
        return kernel, torch.float32, torch.float32
    if kernel in _LONGS and torch.int64 in dtypes:
        return f"{kernel}_long", torch.int64, torch.bool if tests else torch.int64
    return None


def _form(name: str) -> tuple[Any, Any]:
    form = _FORMS[name]

    def run(dev: "OpenCLDevice", out: DeviceTensor | None, *args: Any, **kwargs: Any) -> DeviceTensor:
        kernel, tensors, *scalars = form(*args, **kwargs)
        kind = _kind(kernel, tensors, tuple(scalars))
        assert kind is not None, f"{name} is not covered for these dtypes"
        kernel, common, result = kind
        target = out if out is not None and out.dtype == result else _result(dev, tensors, result)
        converted = tuple(tensor if tensor.dtype == common else cast(dev, tensor, common) for tensor in tensors)
        file, _, kernel = kernel.rpartition(":")
        apply(dev, kernel, target, converted, *scalars, file=file or "elementwise")
        return target if out is None or out is target else copy(dev, target, out)

    def check(*args: Any, **kwargs: Any) -> bool:
        kernel, tensors, *scalars = form(*args, **kwargs)
        plain = all(isinstance(value, (int, float)) for value in scalars)
        known = plain and all(map(_is_tensor, tensors)) and _kind(kernel, tensors, tuple(scalars)) is not None
        return known and _is_torch_s(name, args)

    return run, check


_FLOATS_ONLY = ("lerp",)


def _is_torch_s(name: str, args: tuple[Any, ...]) -> bool:
    """Whether torch takes operands of these dtypes too."""
    dtypes = {value.dtype for value in args if _is_tensor(value)}
    if name in _FLOATS_ONLY:
        return dtypes == {torch.float32}
    if name in ("sub", "rsub"):
        return torch.bool not in dtypes
    return name != "where" or args[0].dtype == torch.bool


def _formula_kernel(name: str, pattern: str, option: str = "") -> str:
    """The kernel of an operator's formula, as `file:kernel`, whose operands come from these slots."""
    met = find(name)
    assert met is not None
    formula = formula_of(met.captured, option)
    assert formula is not None
    return f"formulas:{print_kernel('_'.join(filter(None, (name.strip('_'), option, pattern))), formula, pattern)}"


def by_formula(name: str) -> tuple[Any, Any] | None:
    """An operator that its entry has a formula for, and the check of its arguments; None if there is no formula."""
    met = find(name)
    if met is None or met.captured.formula is None:
        return None
    packet = getattr(torch.ops.aten, name)
    overload = next((known for known in ("default", "Tensor") if known in packet.overloads()), packet.overloads()[0])
    schema = getattr(packet, overload)._schema

    def form(*args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...], list[Any]] | None:
        given = {argument.name: argument.default_value for argument in schema.arguments}
        given |= dict(zip(given, args, strict=False)) | kwargs
        option = next((value for value in given.values() if isinstance(value, str)), "")
        values = [value for value in given.values() if not isinstance(value, str)]
        formula = formula_of(met.captured, option)
        if formula is None or len(values) != len(operands(formula)) or not is_printable(compile_formula(formula)):
            return None
        tensors, numbers = [value for value in values if _is_tensor(value)], []
        slots = {"tensor": iter("xyz"), "number": iter("st")}
        pattern = ""
        for value in values:
            if not _is_tensor(value):
                numbers.append(float(value))
            pattern += next(slots["tensor" if _is_tensor(value) else "number"], "?")
        if "?" in pattern or any(tensor.dtype != torch.float32 for tensor in tensors):
            return None
        return _formula_kernel(name, pattern, option), tuple(tensors), numbers

    def run(dev: "OpenCLDevice", out: DeviceTensor | None, *args: Any, **kwargs: Any) -> DeviceTensor:
        found = form(*args, **kwargs)
        assert found is not None, f"{name} is not covered for these arguments"
        kernel, tensors, numbers = found
        target = _result(dev, tensors, torch.float32) if out is None else out
        return apply(dev, kernel.removeprefix("formulas:"), target, tensors, *numbers, file="formulas")

    return run, lambda *args, **kwargs: form(*args, **kwargs) is not None


def _result(dev: "OpenCLDevice", tensors: tuple[DeviceTensor, ...], dtype: Any) -> DeviceTensor:
    first = tensors[0]
    if any(tensor.shape != first.shape for tensor in tensors[1:]):
        return dev.empty(tuple(torch.broadcast_shapes(*(tensor.shape for tensor in tensors))), dtype)  # type: ignore[no-untyped-call]
    return like(dev, first, dtype)


def like(dev: "OpenCLDevice", tensor: DeviceTensor, dtype: Any = None) -> DeviceTensor:
    """An empty tensor of the same shape, with permuted dimensions if the tensor is dense and has them, as in torch."""
    order = sorted(range(tensor.ndim), key=lambda axis: (-tensor.strides[axis], axis))
    dense = contiguous_strides(tuple(tensor.shape[axis] for axis in order))
    strides = tuple(dense[order.index(axis)] for axis in range(tensor.ndim))
    fits = all(side == 1 or mine == its for side, mine, its in zip(tensor.shape, strides, tensor.strides, strict=True))
    return dev.empty(tensor.shape, tensor.dtype if dtype is None else dtype, strides if fits else None)


def _clone(dev: "OpenCLDevice", out: None, tensor: DeviceTensor, *, memory_format: Any = None) -> DeviceTensor:
    fresh = dev.empty(tensor.shape, tensor.dtype) if memory_format == torch.contiguous_format else like(dev, tensor)
    return copy(dev, tensor, fresh)


def _masked_fill(dev: "OpenCLDevice", out: DeviceTensor | None, a: Any, mask: Any, value: Any) -> DeviceTensor:
    target = like(dev, a) if out is None else out
    mask = cast(dev, mask, torch.float32)
    if _is_tensor(value):
        return apply(dev, "select_by", target, (value, a, mask))
    return apply(dev, "masked_fill", target, (a, mask), value)


def _constant(value: Any) -> Any:
    def run(dev: "OpenCLDevice", out: Any, tensor: Any, *args: Any, dtype: Any = None, **_: Any) -> DeviceTensor:
        fresh = like(dev, tensor, dtype)
        return fresh if value is None else fill(dev, fresh, args[0] if value == "given" else value)

    return run


def _sized(value: Any) -> Any:
    """Creation from sizes; `new_*` have a tensor before them, of which only the dtype counts."""

    def run(dev: "OpenCLDevice", out: Any, *args: Any, dtype: Any = None, **_: Any) -> DeviceTensor:
        if _is_tensor(args[0]):
            dtype, args = dtype or args[0].dtype, args[1:]
        if dtype is None and value == "given" and not isinstance(args[1], float):
            dtype = torch.bool if isinstance(args[1], bool) else torch.int64
        fresh = dev.empty(tuple(args[0]), dtype)
        return fresh if value is None else fill(dev, fresh, args[1] if value == "given" else value)

    return run


def _cat(dev: "OpenCLDevice", out: None, tensors: Any, dim: int = 0) -> DeviceTensor:
    first = tensors[0]
    dim %= first.ndim
    total = sum(tensor.shape[dim] for tensor in tensors)
    joined = dev.empty((*first.shape[:dim], total, *first.shape[dim + 1 :]), first.dtype)
    start = 0
    for tensor in tensors:
        copy(dev, tensor, joined.view(tensor.shape, joined.strides, start * joined.strides[dim]))
        start += tensor.shape[dim]
    return joined


def _stack(dev: "OpenCLDevice", out: None, tensors: Any, dim: int = 0) -> DeviceTensor:
    dim %= tensors[0].ndim + 1
    shape = tensors[0].shape
    sides = (*shape[:dim], 1, *shape[dim:])
    return _cat(dev, None, [t.view(sides, (*t.strides[:dim], 0, *t.strides[dim:]), t.offset) for t in tensors], dim)


def _scattered(view: str) -> Any:
    """Gradient of a view: zeros of the source's shape with the gradient in the viewed part."""

    def run(dev: "OpenCLDevice", out: None, grad: DeviceTensor, sizes: Any, *where: Any) -> DeviceTensor:
        full = fill(dev, dev.empty(tuple(sizes), grad.dtype), 0)
        packet, overload = view.split(".")
        part = dev.run(getattr(getattr(torch.ops.aten, packet), overload), (full, *where), {})
        copy(dev, grad, part)
        return full

    return run


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def is_float(a: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether the first argument of a call is a float32 tensor."""
    return bool(a.dtype == torch.float32)


def _mse(dev: "OpenCLDevice", out: None, grad: Any, a: Any, b: Any, reduction: int) -> DeviceTensor:
    return apply(dev, "mse_backward", like(dev, a), (grad, a, b), 2 / a.numel() if reduction == 1 else 2)


OPS: dict[str, Any] = {
    **{name: _form(name) for name in _FORMS},
    "clone": (_clone, _always),
    "_to_copy": (
        lambda dev, out, tensor, *, dtype=None, **_: copy(dev, tensor, like(dev, tensor, dtype)),
        lambda a, *, device=None, **_: device is None or str(device) in ("cpu", "meta"),
    ),
    "copy": (lambda dev, out, target, source, non_blocking=False: copy(dev, source, out), _always),
    "masked_fill": (
        _masked_fill,
        lambda a, mask, value: (
            a.dtype == torch.float32
            and mask.dtype == torch.bool
            and not (_is_tensor(value) and (value.dtype != torch.float32 or value.ndim))
        ),
    ),
    "fill": (
        lambda dev, out, target, value: copy(dev, value, out) if _is_tensor(value) else fill(dev, out, value),
        _always,
    ),
    "zero": (lambda dev, out, target: fill(dev, out, 0), _always),
    "zeros_like": (_constant(0), _always),
    "ones_like": (_constant(1), _always),
    "empty_like": (_constant(None), _always),
    "full_like": (_constant("given"), _always),
    **{f"{new}zeros": (_sized(0), _always) for new in ("", "new_")},
    **{f"{new}ones": (_sized(1), _always) for new in ("", "new_")},
    **{f"{new}empty": (_sized(None), _always) for new in ("", "new_")},
    **{f"{new}full": (_sized("given"), _always) for new in ("", "new_")},
    "cat": (_cat, lambda tensors, dim=0: len({tensor.dtype for tensor in tensors}) == 1),
    "stack": (_stack, lambda tensors, dim=0: len({t.dtype for t in tensors}) == 1 and len(tensors[0].shape) < 6),
    "slice_backward": (_scattered("slice.Tensor"), is_float),
    "select_backward": (_scattered("select.int"), is_float),
    "mse_loss_backward": (_mse, is_float),
}
