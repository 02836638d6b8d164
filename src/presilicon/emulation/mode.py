"""The function mode of an emulated model: intercepts torch functions and computes them in their formats."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial, wraps
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.emulation import losses
from presilicon.emulation.compilation import uncompiled
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.exact import EXACT, is_exact
from presilicon.emulation.monitoring.recorder import RELUS
from presilicon.emulation.ops import attention, grouped, recurrent
from presilicon.emulation.ops.arithmetic import Arithmetic
from presilicon.emulation.ops.calls import Call, readers, uncovered
from presilicon.emulation.ops.sparse import sparse_call
from presilicon.emulation.transforms import refuse_transforms
from presilicon.ops import Operator, describe_operator, follow, functions
from presilicon.workloads import tensors_in

Handler = Callable[..., Any]
"""Takes an `Arithmetic`, the torch function, and its arguments."""


@cache
def handlers() -> Mapping[Callable[..., Any], Handler]:
    """The handler of each torch function that emulation computes or warns about."""
    table: dict[Callable[..., Any], Handler] = dict.fromkeys(functions(), _vector)
    table |= dict.fromkeys([*functions("spreads"), torch.Tensor.__getitem__], _spread)
    table |= dict.fromkeys(functions("accumulates"), _accumulated)
    table |= dict.fromkeys(uncovered(), _uncovered)
    table |= dict.fromkeys(_MATRIX_PRODUCTS, _sparse_product)
    table |= dict.fromkeys(readers(), _product)
    table |= {torch.einsum: _einsum, functional.embedding: _embedding, functional.embedding_bag: _embedding_bag}
    table |= {functional.bilinear: _bilinear, torch.bilinear: _bilinear, torch.tensordot: _tensordot}
    table |= dict.fromkeys([torch.inner, torch.Tensor.inner], _inner)
    table |= dict.fromkeys([torch.dot, torch.vdot, torch.Tensor.dot, torch.Tensor.vdot], _dot)
    table[torch.linalg.vecdot] = _vecdot
    table |= dict.fromkeys([torch.chain_matmul, torch.linalg.multi_dot], _chain)
    table |= dict.fromkeys(
        [functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention],
        _decomposed(attention.scaled_dot_product),
    )
    table[functional.multi_head_attention_forward] = _decomposed(attention.multi_head)
    for name, cell in recurrent.CELLS.items():
        table[getattr(torch, name)] = _decomposed(partial(recurrent.run_layers, cell))
        table[getattr(torch, f"{name}_cell")] = _decomposed(partial(recurrent.run_cell, cell))
    table |= dict.fromkeys(_grouped_functions(), _grouped)
    table |= {functional.cross_entropy: _loss(losses.cross_entropy), functional.mse_loss: _loss(losses.mse_loss)}
    return table


def _grouped_functions() -> list[Callable[..., Any]]:
    """The grouped products of this torch version; `functional.grouped_mm` calls the first."""
    packet = getattr(torch.ops.aten, "_grouped_mm", None)
    overloads = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    functions = [getattr(torch, "_grouped_mm", None), packet, *overloads]
    return [function for function in functions if function is not None]


@cache
def product_handlers() -> Mapping[Callable[..., Any], Handler]:
    """`handlers` without the vector ops, for numerics that do not round these."""
    return {func: handler for func, handler in handlers().items() if handler not in _VECTOR}


follow(handlers.cache_clear)
follow(product_handlers.cache_clear)
_multiplying: dict[Callable[..., Any], bool] = {}
"""Whether each function that emulation does not know multiplies matrices."""


class _ProductSpy(TorchDispatchMode):
    """Notices operators that multiply two tensors and add up, or may do so."""

    multiplies = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = describe_operator(func)
        out = func(*args, **(kwargs or {}))
        if operator.multiplies and isinstance(out, torch.Tensor | list | tuple):
            results = out if isinstance(out, list | tuple) else (out,)
            self.multiplies |= any(
                isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
                for value in results
            )
        return out


class _Thread(threading.local):
    def __init__(self) -> None:
        self.modes: list[EmulationMode] = []


_thread = _Thread()
_DATA: tuple[Any, ...] = (torch.Tensor.data.__get__, torch.Tensor.data.__set__)  # type: ignore[attr-defined]


def is_emulating() -> bool:
    """Whether an emulated model is running."""
    return bool(_thread.modes)


class EmulationMode(TorchFunctionMode):
    """Intercepts every torch function inside an emulated module."""

    def __init__(self, emulation: Emulation, training: bool) -> None:
        super().__init__()
        self._emulation = emulation
        self._arithmetic = Arithmetic(emulation, training)
        self._handlers = handlers() if emulation.touches_vectors else product_handlers()

    def __enter__(self) -> "EmulationMode":
        _thread.modes.append(self)
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        _thread.modes.remove(self)
        super().__exit__(*exc)

    def leave(self) -> None:
        """End this mode, unless an interrupt has ended it in torch already."""
        if self in _get_current_function_mode_stack():
            self.__exit__(None, None, None)
        elif self in _thread.modes:
            _thread.modes.remove(self)

    @uncompiled
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        handler = self._handlers.get(func) or _named(func)
        kwargs = kwargs or {}
        if _thread.modes[-1:] != [self]:  # a module with its own emulation is running inside
            return func(*args, **kwargs)
        if func in _DATA:
            self._emulation.rounded.expose(args[0])
        if is_exact():
            with self._exact_region(func):
                out = func(*args, **kwargs)
        elif (replaced := self._replaced(func)) is not None:
            out = self._arithmetic.replace(*replaced, func, args, kwargs)
        elif handler is None:
            out = self._observe(func, args, kwargs) if _multiplying.get(func, True) else func(*args, **kwargs)
        elif self._is_plain() and not self._emulation.operators.reaches(func):
            out = func(*args, **kwargs)
        else:
            refuse_transforms(self._emulation.layer, func, (*args, *kwargs.values()))
            out = handler(self._arithmetic, func, *args, **kwargs)
        if self._emulation.recorders and func in RELUS and not is_exact():
            self._emulation.show_relu(out)
        multiplies = _multiplying.get(func, False) if handler is None else handler not in _VECTOR
        moves = handler is None and func not in functions()
        self._emulation.origins.note_result(func, args, kwargs, out, multiplies=multiplies, moves=moves)
        return out

    def _replaced(self, func: Callable[..., Any]) -> tuple[str, Operator] | None:
        """The name and the operator of a product that an operator computes instead."""
        emulation = self._emulation
        return emulation.operators.product(func, emulation.layer) if emulation.is_inside else None

    def _exact_region(self, func: Callable[..., Any]) -> AbstractContextManager[None]:
        """A context that tells coverage that a function is not emulated, by request."""
        emulation = self._emulation
        if emulation.watcher is None or not emulation.is_inside:
            return nullcontext()
        return emulation.watcher.region(emulation.layer, func.__name__, EXACT, EXACT)

    def _observe(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a function that emulation does not know; warn if it multiplies, which its first call shows."""
        multiplies = _multiplying.get(func)
        if not self._emulation.is_inside or self._is_plain():
            return func(*args, **kwargs)
        if multiplies is None:
            with _ProductSpy() as spy:
                out = func(*args, **kwargs)
            is_backward = func in (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
            multiplies = _multiplying[func] = spy.multiplies and not is_backward
        else:
            out = func(*args, **kwargs)
        if multiplies:
            self._emulation.warn(func)
        return out

    def _is_plain(self) -> bool:
        """Whether nothing is rounded or observed in the running layer."""
        emulation = self._emulation
        return not emulation.observers and not emulation.asks_what_if and self._arithmetic.plan.is_idle


def _named(func: Callable[..., Any]) -> Handler | None:
    """The handler of a registered operator that is known by its name."""
    if isinstance(func, OpOverload | OpOverloadPacket):
        name = str(func)
        return _grouped if name.startswith("transformers.grouped_mm_fallback") else None
    return None


def _with_fallback(handler: Handler) -> Handler:
    """`handler`, except that torch computes complex and sparse operands, with a warning; `out=` is written to."""

    @wraps(handler)
    def checked(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is None and len(args) == 2 and not kwargs and (call := _sparse(func, *args)) is not None:
            return do.multiply(call, func.__name__)
        if any(map(_is_unsupported, (*args, *kwargs.values()))):
            return _uncovered(do, func, *args, **kwargs)
        out = kwargs.pop("out", None)
        if out is None:
            return handler(do, func, *args, **kwargs)
        if torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in tensors_in((*args, *kwargs.values(), out))
        ):
            return func(*args, **kwargs, out=out)  # which torch refuses
        result = checked(do, func, *args, **kwargs)
        return (out if out.shape == result.shape else out.resize_(result.shape)).copy_(result)

    return checked


_MATRIX_PRODUCTS = frozenset(
    getattr(home, name)
    for home, names in (
        (torch, "mm matmul smm spmm"),
        (torch.Tensor, "mm matmul __matmul__ smm"),
        (torch.linalg, "matmul"),
        (torch.sparse, "mm"),
    )
    for name in names.split()
)
"""Functions that multiply two matrices, of which one may be sparse."""


def _sparse(func: Callable[..., Any], a: Any, b: Any) -> Call | None:
    """The call of a sparse product that is emulated."""
    tensors = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    if not tensors or func not in _MATRIX_PRODUCTS or (a.layout is torch.strided and b.layout is torch.strided):
        return None
    return None if a.is_complex() or b.is_complex() or a.dtype != b.dtype else sparse_call(a, b)


@_with_fallback
def _sparse_product(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A function of `torch.sparse` that is not a plain product of two matrices."""
    return _uncovered(do, func, *args, **kwargs)


def _is_unsupported(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_complex() or value.layout is not torch.strided
    return isinstance(value, list | tuple) and any(map(_is_unsupported, value))


@_with_fallback
def _product(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    call = readers()[func](*args, **kwargs)
    if not call.a.is_floating_point() or _types_differ(call.a, call.b):
        return func(*args, **kwargs)  # integers are not emulated; torch reports mismatched types
    if do.training and not torch.is_grad_enabled():
        do.emulation.check_custom_function(func)
    return do.multiply(call, func.__name__)


def _types_differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype != b.dtype and not torch.is_autocast_enabled(a.device.type)


def _vector(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if do.training and not torch.is_grad_enabled() and do.plan.rounds_vector("error"):
        do.emulation.check_custom_function(func)
    return do.apply(func, *args, **kwargs)


def _accumulated(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A function that moves numbers, or adds them up if it is asked to."""
    adds = kwargs.get("accumulate") or (len(args) > 3 and args[3] is True) or kwargs.get("reduce") is not None
    return do.apply(func, *args, **kwargs) if adds else func(*args, **kwargs)


def _spread(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return do.spread(func, *args, **kwargs)


def _embedding(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return do.embed(*args, **kwargs)


def _embedding_bag(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A sum of rows; with weights of the samples it is a product, which is not emulated."""
    weighted = kwargs.get("per_sample_weights") is not None or (len(args) > 8 and args[8] is not None)
    return _uncovered(do, func, *args, **kwargs) if weighted else func(*args, **kwargs)


_VECTOR = (_vector, _embedding, _spread, _accumulated)
"""Handlers of functions that are not matrix products."""


def _uncovered(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    do.emulation.warn(func)
    return func(*args, **kwargs)


def _decomposed(parts: Callable[..., Any]) -> Handler:
    def handler(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return parts(do, *args, **kwargs)

    return handler


def _loss(parts: Callable[..., Any]) -> Handler:
    """Decompose a loss only if its results are rounded; otherwise torch's own is the same and faster."""

    def handler(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if not do.plan.rounds_results:
            return func(*args, **kwargs)
        return parts(do, *args, **kwargs)

    return handler


@_with_fallback
def _grouped(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    kwargs = {{"self": "a", "mat2": "b", "input": "a", "weight": "b"}.get(key, key): kwargs[key] for key in kwargs}
    return grouped.grouped_mm(do, *args, **kwargs)


@_with_fallback
def _einsum(do: Arithmetic, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(args[0], str):
        do.emulation.warn(func)
        return func(*args, **kwargs)
    operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
    return do.einsum(args[0], *operands)


@_with_fallback
def _bilinear(
    do: Arithmetic, func: Callable[..., Any], /, input1: Any, input2: Any, weight: Any, bias: Any = None
) -> Any:
    out = do.einsum("...j,oij,...i->...o", input2, weight, input1)  # the weights as they lie in memory, as captured
    return out if bias is None else do.apply(torch.add, out, bias)


@_with_fallback
def _tensordot(do: Arithmetic, func: Callable[..., Any], /, a: Any, b: Any, dims: Any = 2) -> Any:
    if isinstance(dims, torch.Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        dims = (list(range(a.dim() - dims, a.dim())), list(range(dims)))
    left = [chr(ord("a") + axis) for axis in range(a.dim())]
    right = [chr(ord("A") + axis) for axis in range(b.dim())]
    for one, other in zip(dims[0], dims[1], strict=True):
        right[other] = left[one]
    free = [label for label in left if label not in right] + [label for label in right if label not in left]
    return do.einsum(f"{''.join(left)},{''.join(right)}->{''.join(free)}", a, b)


@_with_fallback
def _inner(do: Arithmetic, func: Callable[..., Any], /, input: Any, other: Any) -> Any:
    if input.dim() == 0 or other.dim() == 0:
        return do.apply(torch.mul, input, other)
    return _tensordot(do, func, input, other, ([-1], [-1]))


@_with_fallback
def _dot(do: Arithmetic, func: Callable[..., Any], /, input: Any, other: Any = None, **kwargs: Any) -> Any:
    return do.einsum("i,i->", input, kwargs["tensor"] if other is None else other)


@_with_fallback
def _vecdot(do: Arithmetic, func: Callable[..., Any], /, x: Any, y: Any, *, dim: int = -1) -> Any:
    rank = max(x.dim(), y.dim())  # the axis is that of the result of broadcasting
    x, y = (part.reshape(*(1,) * (rank - part.dim()), *part.shape).movedim(dim, -1) for part in (x, y))
    return do.einsum("...i,...i->...", x, y)


@_with_fallback
def _chain(do: Arithmetic, func: Callable[..., Any], /, *tensors: Any) -> Any:
    parts = list(tensors[0]) if isinstance(tensors[0], list | tuple) else list(tensors)
    out = parts[0]
    for part in parts[1:]:
        out = do.matmul(out, part)
    return out
