"""Operators as ops of torch: one custom op for all of them, with a shape function and a derivative.

torch.compile, activation checkpointing and capture see `presilicon::operator`, whose last argument says which operator
it is, and `presilicon::operator_backward`.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from presilicon.base import ConfigError
from presilicon.formats import Format, has_numba, has_triton
from presilicon.ops.custom.operator import ELEMENTS, Constants, Operator
from presilicon.ops.custom.pricing import together, work_of
from presilicon.ops.custom.rounding import step_rounding
from presilicon.ops.lookup import exact_functions, follow, functions
from presilicon.programs import ERROR, Program, extents_of, run_torch
from presilicon.records import OperatorWork


@cache
def exact_tensor(name: str) -> Callable[[Tensor], Tensor]:
    """Torch's own function for a function of one number that an operator can replace."""
    short = name.rpartition(".")[2]
    return next(function for function, own in functions().items() if own == short)


follow(exact_tensor.cache_clear)


class SlowOperatorWarning(UserWarning):
    """An operator runs in torch, because it cannot be compiled."""


class Definition(NamedTuple):
    """An operator with its constants."""

    operator: Operator
    constants: Constants

    def forward(self, sizes: Mapping[str, int]) -> Program:
        """The program of the result."""
        return self.operator.specialized(self.constants, sizes)

    def backward(self, sizes: Mapping[str, int], wanted: Sequence[str]) -> Program:
        """The program of the gradients."""
        return self.operator.gradient_program(self.forward(sizes), wanted)

    def work(self, sizes: Mapping[str, int], wanted: Sequence[str] | None = None) -> OperatorWork:
        """The operations of a call: of the forward pass, or of the gradients of some operands."""
        operator = self.operator
        stated: dict[str, Any] = {"cycles": operator.cycles, "pipelined": operator.pipelined}
        if wanted is None:
            return work_of(self.forward(sizes), sizes, operator.name, operator.format, **stated)
        name = f"{operator.name}_backward"
        derived = [operand for operand in wanted if operand not in operator.custom_backward]
        works = [
            Definition(own, _shared(own, self.constants)).work(sizes)
            for operand, own in operator.custom_backward.items()
            if operand in wanted
        ]
        if derived:
            works.append(work_of(self.backward(sizes, derived), sizes, name, operator.format, **stated))
        return together(name, works)


_definitions: dict[str, Definition] = {}


def work_of_call(function: Any, args: Sequence[Any]) -> OperatorWork | None:
    """The operations of a call that torch dispatches; None if it is no operator's."""
    if function is torch.ops.presilicon.operator.default:
        operands, definition, wanted = args[0], _definitions[args[1]], None
    elif function is torch.ops.presilicon.operator_backward.default:
        operands, definition, wanted = args[1], _definitions[args[2]], args[3].split()
    else:
        return None
    return definition.work(_bound(definition.operator, operands)[1], wanted)


def _shared(own: Operator, given: Constants) -> Constants:
    """The constants of an operator's own gradient: those of the call, where they have the same name."""
    return tuple((name, dict(given).get(name, default)) for name, default in own.constants.items())


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def key_of(operator: Operator, constants: Constants) -> str:
    """The key of an operator: the same in every process that has the same operator."""
    return _key_of(operator, constants, repr(constants))


@lru_cache(maxsize=4096)
def _key_of(operator: Operator, constants: Constants, spelled: str) -> str:
    program = operator.specialized(constants)
    described = (operator.describe_price(), spelled, program.instructions, program.results)
    key = f"{operator.name}.{sha256(repr(described).encode()).hexdigest()[:16]}"
    _definitions.setdefault(key, Definition(operator, constants))
    return key


def call(operator: Operator, operands: Mapping[str, Any], constants: Constants) -> Tensor:
    """An operator of tensors; numbers among the operands are tensors without axes.

    float32 and float64 tensors are computed in their own type, narrower ones and whole numbers in float32.

    Raises:
        ConfigError: no operand is a floating-point tensor, the shapes do not meet, or an index lies outside.
    """
    tensors = [value for value in operands.values() if isinstance(value, Tensor)]
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    if not floating:
        kinds = ", ".join(
            str(value.dtype) if isinstance(value, Tensor) else type(value).__name__ for value in operands.values()
        )
        raise ConfigError(f"{operator.where} takes a floating-point tensor, not {kinds}")
    device = floating[0].device
    if any(tensor.device != device for tensor in tensors):
        devices = ", ".join(sorted({str(tensor.device) for tensor in tensors}))
        raise ConfigError(f"{operator.where}: all tensors must be on one device, not on {devices}")
    for name, value in operands.items():
        if not isinstance(value, Tensor | int | float):
            raise ConfigError(f"{operator.where}: {name} must be a tensor or a number, not {value!r:.60}")
    dtype = floating[0].dtype
    for tensor in floating[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    working = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    _check_whole(operator, operands, working)
    values = [
        value.to(working)
        if isinstance(value, Tensor)
        else torch.tensor(value, dtype=working, device=floating[0].device)
        for value in operands.values()
    ]
    values, leading = _flattened(operator, values)
    key = key_of(operator, constants)
    if not torch.compiler.is_compiling() and _is_plain() and not any(value.is_meta for value in values):
        out: Tensor = _Applied.apply(key, *values)  # type: ignore[no-untyped-call]
    else:
        out = torch.ops.presilicon.operator(values, key)
    if operator.result[:1] == ELEMENTS and len(leading) != 1:
        out = out.reshape(leading + out.shape[1:])
    return out if dtype == working else out.to(dtype)


_WIDE = (torch.int32, torch.int64, torch.uint32, torch.uint64)


def _check_whole(operator: Operator, operands: Mapping[str, Any], working: torch.dtype) -> None:
    """Refuse whole numbers that the type of the computation does not hold: an index would read a neighbour."""
    largest = 2**24 if working == torch.float32 else 2**53
    for name, value in operands.items():
        if not isinstance(value, Tensor) or value.dtype not in _WIDE or value.is_meta or not value.numel():
            continue
        if torch.compiler.is_compiling() or not _is_plain():
            continue
        low, high = (int(end) for end in value.aminmax())
        if max(high, -low) > largest:
            raise ConfigError(
                f"{operator.where}: {name} has whole numbers up to {max(high, -low):,}, but {working} holds them up to "
                f"{largest:,} only; " + ("try float64 tensors" if working == torch.float32 else "use smaller ones")
            )


def apply_operator(operator: Operator, x: Tensor) -> Tensor:
    """`operator` of every element, with the backward pass that the operator defines.

    Raises:
        ConfigError: `x` is not a floating-point tensor.

    >>> from presilicon.ops import piecewise_linear
    >>> x = torch.tensor([-9.0, 0.5], requires_grad=True)
    >>> apply_operator(piecewise_linear("tanh", -4, 4, 8), x).sum().backward()
    >>> x.grad
    tensor([0.0000, 0.7616])
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise ConfigError(f"{operator.name} takes a floating-point tensor, not {kind}")
    out: Tensor = operator(x)
    return out


def _flattened(operator: Operator, values: list[Tensor]) -> tuple[list[Tensor], torch.Size]:
    """Operands with their leading axes ("...") broadcast and joined to one; and those axes."""
    counts = [len(axes) - 1 if axes[:1] == ELEMENTS else None for axes in operator.operands.values()]
    shapes = []
    for value, count, name in zip(values, counts, operator.operands, strict=True):
        if count is not None:
            if value.dim() < count:
                raise ConfigError(
                    f"{operator.where}: {name} must have {count} axes or more, not shape {tuple(value.shape)}"
                )
            shapes.append(value.shape[: value.dim() - count])
    try:
        leading = shapes[0] if all(shape == shapes[0] for shape in shapes) else torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    except RuntimeError:
        spelled = " and ".join(str(tuple(shape)) for shape in dict.fromkeys(shapes))
        raise ConfigError(f"{operator.where}: the leading axes {spelled} do not broadcast") from None
    except IndexError:
        return values, torch.Size()
    length = leading.numel()
    flat = []
    for value, count in zip(values, counts, strict=True):
        if count is not None:
            own = value.shape[value.dim() - count :]
            value = value if value.shape == leading + own else value.expand(leading + own)
            value = value if len(leading) == 1 else value.reshape(torch.Size([length]) + own)
        flat.append(value)
    return flat, leading


def _compute(operands: Sequence[Tensor], key: str) -> Tensor:
    """The result of an operator."""
    definition = _definitions[key]
    named, sizes = _bound(definition.operator, operands)
    return _run(definition, definition.forward(sizes), named, sizes)[0]


_operator = torch.library.custom_op("presilicon::operator", _compute, mutates_args=())


@_operator.register_fake
def _(operands: Sequence[Tensor], key: str) -> Tensor:
    definition = _definitions[key]
    shapes = [tuple(int(size) for size in tensor.shape) for tensor in operands]
    sizes = definition.operator.sizes(dict(zip(definition.operator.operands, shapes, strict=True)))
    program = definition.forward(sizes)
    extents = extents_of(program, sizes)
    return operands[0].new_empty([extents[axis] for axis in program.results[0].axes])


def _compute_gradients(error: Tensor, operands: Sequence[Tensor], key: str, wanted: str) -> list[Tensor]:
    """The gradients of the operands that `wanted` names."""
    names = wanted.split()
    definition = _definitions[key]
    operator = definition.operator
    named, sizes = _bound(operator, operands)
    inputs = {**named, ERROR: error.contiguous()}
    found = {
        name: _custom_gradient(own, inputs, definition.constants)
        for name, own in operator.custom_backward.items()
        if name in names
    }
    derived = [name for name in names if name not in found]
    if derived:
        program = definition.backward(sizes, derived)
        results = _run(definition, program, inputs, sizes)
        for result, gradient in zip(program.results, results, strict=True):
            found[result.target] = found[result.target] + gradient if result.target in found else gradient
    return [found[name] if name in found else torch.zeros_like(named[name]) for name in names]


_operator_backward = torch.library.custom_op("presilicon::operator_backward", _compute_gradients, mutates_args=())


@_operator_backward.register_fake
def _(error: Tensor, operands: Sequence[Tensor], key: str, wanted: str) -> list[Tensor]:
    named = dict(zip(_definitions[key].operator.operands, operands, strict=True))
    return [torch.empty_like(named[name], memory_format=torch.contiguous_format) for name in wanted.split()]


def _save(ctx: Any, inputs: tuple[Sequence[Tensor], str], output: Tensor) -> None:
    operands, ctx.key = inputs
    operator = _definitions[ctx.key].operator
    ctx.wanted = [name for name, tensor in zip(operator.operands, operands, strict=True) if tensor.requires_grad]
    check_differentiable(_definitions[ctx.key], ctx.wanted)
    if operator.backward == "straight-through":
        operands = [tensor.new_empty(()).expand(tensor.shape) for tensor in operands]
    ctx.save_for_backward(*operands)


def _backward(ctx: Any, error: Tensor) -> tuple[list[Tensor | None], None]:
    operands = list(ctx.saved_tensors)  # read once, because activation checkpointing recomputes at every read
    operator = _definitions[ctx.key].operator
    if operator.backward == "straight-through":
        return [error for _ in operands], None
    if operator.backward == "exact" and operator.replaces not in exact_functions():
        raise ConfigError(f"{operator.where} has the exact backward pass only where it replaces {operator.replaces}")
    if operator.backward == "exact":
        return [error * _exact_slope(operator.replaces or "", x) for x in operands], None
    by_name = dict.fromkeys(_passed(_definitions[ctx.key], tuple(ctx.wanted)), error)
    rest = [name for name in ctx.wanted if name not in by_name]
    if rest:
        compute = _compute_gradients if _is_plain() else torch.ops.presilicon.operator_backward
        with torch.no_grad():
            gradients = compute(error, operands, ctx.key, " ".join(rest))
        if torch.is_grad_enabled():  # a gradient of the gradient may be wanted
            gradients = [_Once.apply(operator.where, gradient, error, *operands) for gradient in gradients]  # type: ignore[no-untyped-call]
        by_name |= dict(zip(rest, gradients, strict=True))
    return [by_name.get(name) for name in operator.operands], None


@lru_cache(maxsize=1024)
def _passed(definition: Definition, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The operands of a function of numbers whose gradient is the error itself, as that of a sum."""
    operator = definition.operator
    if not operator.is_elementwise or operator.custom_backward or operator.format is not None:
        return ()
    program = operator.gradient_program(operator.specialized(definition.constants), wanted)
    steps = [program.instructions[result.value] for result in program.results]
    plain = [step.operation == "read" and step.name == ERROR for step in steps]
    return tuple(result.target for result, is_plain in zip(program.results, plain, strict=True) if is_plain)


_operator.register_autograd(_backward, setup_context=_save)


def _is_plain() -> bool:
    """Whether nobody looks at ops: then the op is left out, whose way through torch takes a third of a millisecond."""
    return _get_current_dispatch_mode() is None and torch._C._functorch.peek_interpreter_stack() is None


class _Once(torch.autograd.Function):
    """Returns a gradient unchanged, and refuses to differentiate it again."""

    @staticmethod
    def forward(ctx: Any, where: str, gradient: Tensor, *sources: Tensor) -> Tensor:
        ctx.where = where
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Any:
        raise ConfigError(f"{ctx.where} has no second derivative")


class _Applied(torch.autograd.Function):
    """The op without torch's dispatcher."""

    @staticmethod
    def forward(ctx: Any, key: str, *operands: Tensor) -> Tensor:
        if any(ctx.needs_input_grad):
            _save(ctx, (operands, key), operands[0])
        return _compute(operands, key)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_backward(ctx, error)[0]


def check_differentiable(definition: Definition, wanted: Sequence[str]) -> None:
    """Refuse an operator without a derivative where one is needed.

    Raises:
        ConfigError: it has none, or depends on an operand only in steps.
    """
    _check_differentiable(definition, tuple(wanted))


@lru_cache(maxsize=1024)
def _check_differentiable(definition: Definition, wanted: tuple[str, ...]) -> None:
    operator = definition.operator
    missing = [name for name in wanted if name not in operator.custom_backward]
    if operator.backward == "none" and missing:
        raise ConfigError(
            f"{operator.where} has no derivative, but the gradient of {missing[0]} is needed; give custom_backward"
        )
    if operator.backward == "straight-through" and len(operator.operands) > 1:
        raise ConfigError(f"{operator.where} has several operands: backward must be derived, or custom_backward")
    if operator.backward != "derived":
        return
    program = operator.specialized(definition.constants)
    reached = {result.target for result in operator.gradient_program(program, tuple(missing)).results}
    for name in missing:
        if name not in reached and name in program.operands:
            raise ConfigError(
                f"{operator.where} depends on {name} only through tables, comparisons, floor or indices, so that its "
                "derivative is 0 everywhere, but a gradient is needed; give custom_backward, or another `backward`"
            )


def _bound(operator: Operator, operands: Sequence[Tensor]) -> tuple[dict[str, Tensor], dict[str, int]]:
    named = dict(zip(operator.operands, operands, strict=True))
    return named, operator.sizes({name: tuple(tensor.shape) for name, tensor in named.items()})


def _custom_gradient(own: Operator, inputs: Mapping[str, Tensor], given: Constants) -> Tensor:
    """The gradient that a user's function gives, from the error and the operands in order."""
    values = [inputs[ERROR], *(tensor for name, tensor in inputs.items() if name != ERROR)]
    out: Tensor = torch.ops.presilicon.operator(values, key_of(own, _shared(own, given)))
    return out


def _exact_slope(name: str, x: Tensor) -> Tensor:
    """The derivative of torch's function, which can be differentiated again where a graph of it is recorded."""
    is_recorded = torch.is_grad_enabled() and x.requires_grad
    with torch.enable_grad():
        point = x if is_recorded else x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(exact_tensor(name)(point).sum(), point, create_graph=is_recorded)
    return slope


def _run(
    definition: Definition, program: Program, operands: Mapping[str, Tensor], sizes: Mapping[str, int]
) -> list[Tensor]:
    """The results of a program by the fastest available execution, with the file and line of errors."""
    operator = definition.operator
    needed = {*program.operands, *(result.target for result in program.results)}
    used = {name: tensor for name, tensor in operands.items() if name in needed} or dict(operands)
    try:
        execution = _execution(next(iter(used.values())), program, operator.format)
        if execution is not None:
            try:
                return execution(program, used, sizes)
            except ConfigError:
                raise
            except Exception as error:
                _slow.add(program)
                _warn_slow(operator, execution.__name__.removeprefix("run_"), error)
        return run_torch(program, used, sizes, step_rounding(operator.format))
    except ConfigError as error:
        place = "" if operator.source is None else operator.where.partition(",")[0] + ", "
        raise ConfigError(f"{place}{error}") from None


def _execution(tensor: Tensor, program: Program, fmt: Format | None) -> Callable[..., list[Tensor]] | None:
    """Numba on the CPU, Triton on a GPU; None for torch."""
    if fmt is not None or program in _slow:
        return None
    if tensor.device.type == "cpu" and has_numba():
        from presilicon.programs import run_numba

        return run_numba
    is_added = any(result.indices is not None for result in program.results)
    if (
        tensor.device.type == "cuda"
        and has_triton()
        and not (is_added and torch.are_deterministic_algorithms_enabled())
    ):
        from presilicon.programs import run_triton

        return run_triton
    return None


_slow: set[Program] = set()
_warned: set[Operator] = set()


def _warn_slow(operator: Operator, execution: str, error: Exception) -> None:
    """Warn once that an operator cannot be compiled."""
    if operator in _warned:
        return
    _warned.add(operator)
    reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    warnings.warn(
        f"{operator.where} cannot be compiled by {execution} ({reason[:200]}); torch computes it, which is slower",
        SlowOperatorWarning, stacklevel=2,
    )  # fmt: skip
