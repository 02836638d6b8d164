"""Operators: functions of numbers and tensors, with their derivative and their hardware."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from msgspec.structs import replace

from presilicon.base import ConfigError, did_you_mean
from presilicon.formats import Format, parse
from presilicon.ops.custom.functions import check_function
from presilicon.ops.custom.pricing import price
from presilicon.ops.custom.rounding import step_rounding
from presilicon.ops.lookup import exact, exact_functions
from presilicon.programs import (
    Builder,
    FunctionSource,
    Program,
    SizesNeeded,
    TensorAxis,
    bind_sizes,
    compile_function,
    compile_tensors,
    evaluate,
    find_breakpoints,
    gradients,
    parse_axes,
    with_slope,
)
from presilicon.records import OperatorCost

Backward = Literal["derived", "exact", "straight-through", "none"]
ELEMENTS = (TensorAxis("_"),)
"""The axes of an operand that is taken element by element."""
Constants = tuple[tuple[str, Any], ...]


class LargestError(NamedTuple):
    """The largest difference between an operator and the function that it replaces."""

    error: float
    at: float


@dataclass(frozen=True, eq=False)
class Operator:
    """A function that a model calls, or that replaces one of torch's.

    Called with numbers, it computes as the reference does: in float64, or in `format`. Called with tensors, it is an op
    of torch with a derivative, on CPU and GPU.
    """

    name: str
    replaces: str | None
    """The function that it replaces: a name as `softmax`, or a pattern of layers and a name, as `blocks.*.softmax`."""
    program: Program
    backward: Backward = "derived"
    """`derived`: the derivative of the approximation, piece by piece. `exact`: that of the function that it replaces.
    `straight-through`: 1. `none`: it has none."""
    format: Format | None = None
    """The format of the argument, of every constant and of every intermediate result; None: that of the tensor."""
    cycles: int | None = None
    """Cycles per result for both passes, instead of the counted ones."""
    pipelined: bool = False
    function: Callable[..., Any] | None = field(default=None, repr=False)
    """The Python function that it was compiled from."""
    source: FunctionSource | None = field(default=None, repr=False)
    domain: tuple[float, float] = (-8.0, 8.0)
    """The default range of `largest_error` and `breakpoints`."""
    operands: Mapping[str, tuple[TensorAxis, ...]] = field(default_factory=lambda: {"x": ELEMENTS})
    result: tuple[TensorAxis, ...] = ELEMENTS
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Arguments with a default: each value that they are called with makes a program of its own."""
    custom_backward: Mapping[str, "Operator"] = field(default_factory=dict)
    """By operand, the operator of its gradient from the error and all operands."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function's value: of numbers a number, of tensors a tensor."""
        operands, constants = self.bound(arguments, named)
        if self.is_elementwise and all(isinstance(value, int | float) for value in operands.values()):
            program = self.specialized(constants)
            return evaluate(program, operands, step_rounding(self.format))[0]
        from presilicon.ops.custom.calls import call

        return call(self, operands, constants)

    def __reduce__(self) -> Any:
        # Without the Python function: its name in its module is this operator, so it cannot be saved by name.
        if self._sized:
            raise ConfigError(f"{self.where} cannot be saved: its loops are written out for every shape")
        parts = (self.name, self.replaces, self.program, self.backward, self.format, self.cycles, self.pipelined)
        shapes = (dict(self.operands), self.result, dict(self.constants), dict(self.custom_backward))
        return Operator, (*parts, None, None, self.domain, *shapes)

    def __deepcopy__(self, memo: Any) -> "Operator":
        return self

    @property
    def is_elementwise(self) -> bool:
        """Whether it is a function of numbers, which tensors are taken through element by element."""
        return self.result == ELEMENTS and all(axes == ELEMENTS for axes in self.operands.values())

    @property
    def is_inner(self) -> bool:
        """Whether it replaces a function of one number, also inside others, and not a whole function of torch."""
        return self.replaces in exact_functions() and self.is_elementwise and len(self.operands) == 1

    @property
    def where(self) -> str:
        """File, line and name, for messages."""
        if self.source is None:
            return self.name
        return f"{Path(self.source.file).name}, line {self.source.tree.lineno}: {self.name}"

    def bound(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], Constants]:
        """The operands and the constants of a call.

        Raises:
            ConfigError: there are too many or too few, or one is not known.
        """
        names = [*self.operands, *self.constants]
        wrong = [name for name in named if name not in names[len(arguments) :]]
        values = {**dict(zip(names, arguments, strict=False)), **named}
        missing = [name for name in self.operands if name not in values]
        if len(arguments) > len(names) or wrong or missing:
            spelled = ", ".join([*self.operands, *(f"{name}={value!r}" for name, value in self.constants.items())])
            given = f"no {missing[0]}" if missing else f"{wrong[0]}=" if wrong else f"{len(arguments)} arguments"
            raise ConfigError(f"{self.where} takes ({spelled}), but was given {given}")
        constants = tuple(
            (name, self._constant(name, values.get(name, default))) for name, default in self.constants.items()
        )
        return {name: values[name] for name in self.operands}, constants

    def sizes(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """The size of every axis.

        Raises:
            ConfigError: the shapes do not meet; the message names the axis and both sizes.
        """
        return bind_sizes(self.where, self.operands, shapes)

    def specialized(self, constants: Constants = (), sizes: Mapping[str, int] | None = None) -> Program:
        """The program for given constants, and sizes where its loops are written out."""
        own = tuple(self.constants.items())
        is_own = not constants or repr(constants) == repr(own)  # not by value: 0.0 == -0.0
        if self.source is None and not is_own:
            raise ConfigError(f"{self.name} was saved without its source, so its constants cannot change")
        if self.source is None or (is_own and not (self._sized and sizes)):
            return self.program
        given = sizes or dict.fromkeys(_axis_names(self.operands), 2)
        chosen = constants or own
        return _specialize(self, chosen, repr(chosen), tuple(sorted(given.items())) if self._sized else ())

    def gradient_program(self, program: Program, wanted: Sequence[str]) -> Program:
        """The program of the gradients of some operands, from all operands and the error of the result."""
        return _gradients(self, program, tuple(wanted))

    @cached_property
    def _sized(self) -> bool:
        """Whether its loops are written out, so that every shape has a program of its own."""
        if self.source is None:
            return False
        try:
            compile_tensors(self.source, self.operands, self.result, self.constants)
        except SizesNeeded:
            return True
        return False

    def derivative(self, x: float) -> float:
        """The derivative of a function of one number at `x`, whatever `backward` is."""
        return evaluate(self.both, x, step_rounding(self.format))[1]

    @cached_property
    def both(self) -> Program:
        """The program of value and derivative, of a function of one number."""
        return with_slope(self.program)

    @cached_property
    def cost(self) -> OperatorCost:
        """The hardware of the forward pass: counted, except for what the user states."""
        return self._stated(price(self.program, self.format))

    @cached_property
    def backward_cost(self) -> OperatorCost | None:
        """The hardware of the backward pass; None if torch's own derivative is used.

        The derivative is computed from the input again, and multiplied with the error.
        """
        if self.backward != "derived":
            return None
        program = self.gradient_program(self.program, tuple(self.operands))
        return self._stated(price(program, self.format))

    def largest_error(self, low: float | None = None, high: float | None = None, points: int = 4001) -> LargestError:
        """The largest difference from the exact function on a grid of points; NaN if either is NaN at a point.

        >>> from presilicon.ops import table
        >>> table("tanh", -4, 4, entries=9).largest_error(points=801)
        LargestError(error=0.46211715726000974, at=-0.5)
        """
        first, last = (asked if asked is not None else own for asked, own in zip((low, high), self.domain, strict=True))
        truth = exact(self.replaces or "")
        worst = LargestError(0.0, first)
        for step in range(points):
            x = first + (last - first) * step / (points - 1)
            difference = abs(self(x) - truth(x))
            if math.isnan(difference):
                return LargestError(difference, x)
            if difference > worst.error:
                worst = LargestError(difference, x)
        return worst

    def breakpoints(self, low: float | None = None, high: float | None = None) -> list[float]:
        """The inputs at which one piece ends and the next begins; see `find_breakpoints` for the search."""
        first, last = (asked if asked is not None else own for asked, own in zip((low, high), self.domain, strict=True))
        if len(self.operands) > 1 or self.program.has_reductions:
            raise ConfigError(f"{self.where} has no breakpoints: it is not a function of one number without sums")
        return find_breakpoints(self.program, first, last)

    def replacing(self, name: str) -> "Operator":
        """The same approximation as a replacement of another function, such as `softmax.exp` instead of `exp`."""
        check_function(name)
        return replace_fields(self, replaces=name)

    def inline(self, builder: Builder, arguments: Sequence[int], named: Mapping[str, int]) -> int:
        """The register of its result on the arguments of a call, as a part of another program."""
        if not self.is_elementwise:
            raise TypeError(f"{self.name} is a function of tensors; only operators of numbers are called by others")
        names = [*self.operands, *self.constants]
        wrong = [name for name in named if name not in names[len(arguments) :]]
        values: dict[str, int] = dict(zip(names, arguments, strict=False)) | dict(named)
        if wrong or len(arguments) > len(names) or any(name not in values for name in self.operands):
            raise TypeError(f"{self.name} takes ({', '.join(names)})")
        if self.source is None:
            registers = {name: builder.number(value) for name, value in values.items()}
            return self.program.splice(builder, registers)[0]
        constants = {name: value for name, value in self.constants.items() if name not in values}
        return compile_function(self.source, builder, values, constants)

    def describe(self) -> dict[str, Any]:
        """Everything that its results depend on, as plain data."""
        # Where loops are written out, the program is that of one size, and the source says what others do.
        meaning = self.source.meaning() if self._sized and self.source is not None else ""
        digest = sha256(repr((self.program.instructions, self.program.results, meaning)).encode()).hexdigest()[:16]
        fmt = None if self.format is None else str(self.format)
        custom = {name: own.describe() for name, own in self.custom_backward.items()}
        described = {"replaces": self.replaces, "program": digest, "backward": self.backward, "format": fmt}
        return described | ({"custom_backward": custom} if custom else {})

    def describe_price(self) -> dict[str, Any]:
        """Everything that its results and its price depend on."""
        return self.describe() | {"cycles": self.cycles, "pipelined": self.pipelined}

    @property
    def reference(self) -> str:
        """The file and name that a design file refers to it by, as `my_ops.py:approximate_tanh`."""
        if self.source is None:
            raise ConfigError(f"{self.name} is not in a file; give its kind in the design, as kind = 'table'")
        return f"{Path(self.source.file)}:{self.name}"

    def _constant(self, name: str, value: Any) -> Any:
        try:
            return _constant(value, self.constants[name])
        except ConfigError as error:
            raise ConfigError(f"{self.where}, {name}: {error}") from None

    def _stated(self, cost: OperatorCost) -> OperatorCost:
        return replace(cost, cycles=cost.cycles if self.cycles is None else self.cycles, pipelined=self.pipelined)


def operator(
    replaces: str | Callable[..., Any] | None = None,
    *,
    backward: Backward = "derived",
    custom_backward: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
    format: Format | str | None = None,
    cycles: int | None = None,
    pipelined: bool = False,
) -> Any:
    """A decorator that compiles a Python function to an `Operator`.

    The function says what one number of the result is. Plain arguments are numbers, and tensors are taken through it
    element by element, broadcast as torch does. An argument that is annotated with axes, as `x: "r n"`, is a tensor
    that is read by index; the annotation of the result names its axes, which are also the index of the element. Axes
    in capitals are sizes.

    The function is not called: its source is compiled for CPU and GPU, differentiated, and priced. It may use
    arithmetic, comparisons, `if`, `match`, `for k in range(N)`, local variables, early returns, `abs`, `min`, `max`,
    sums and extremes of generator expressions over ranges, functions of `math`, numbers and tables of the enclosing
    scopes (as they are now) and other operators.

    Args:
        replaces: the function that it replaces: "tanh", "softmax", "conv2d", "softmax.exp", ..., with a pattern of
            layers in front where it replaces it there only, as "blocks.*.softmax". Without one (`@operator`) it is
            a new op, which models call.
        backward: "derived" from the same source, "exact" for the derivative of the function that it replaces,
            "straight-through", or "none".
        custom_backward: a function of the error and all operands that gives an element of the gradient, or one for each
            operand by its name; others are derived.
        format: the format that every intermediate result is rounded to.
        cycles: cycles per result, instead of the counted ones.
        pipelined: whether the unit takes a new number in every cycle.

    Raises:
        ConfigError: there is no such function to replace, or the function uses something that the language does not
            have; the message has the file, the line and its text.

    >>> @operator("tanh")
    ... def hard_tanh(x):
    ...     return max(-1.0, min(x, 1.0))
    >>> hard_tanh(0.25), hard_tanh.derivative(0.25), hard_tanh.derivative(3.0), hard_tanh.breakpoints()
    (0.25, 1.0, 0.0, [-1.0, 1.0])
    >>> @operator
    ... def row_sums(x: "r n") -> "r":
    ...     return sum(x[r, j] for j in range(N))
    """
    if callable(replaces):
        return operator()(replaces)
    options = check_options(replaces, backward, format, cycles, pipelined)

    def decorate(function: Callable[..., Any]) -> Operator:
        source = FunctionSource(function)
        operands, result, constants = _signature(source)
        try:
            program = compile_tensors(source, operands, result, constants)
        except SizesNeeded:
            names = _axis_names(operands)
            program = compile_tensors(source, operands, result, constants, dict.fromkeys(names, 2))
        made = Operator(
            name=function.__name__, program=program, function=function, source=source,
            operands=operands, result=result, constants=constants, **options,
        )  # fmt: skip
        return replace_fields(made, custom_backward=_custom(made, custom_backward)) if custom_backward else made

    return decorate


def _axis_names(operands: Mapping[str, tuple[TensorAxis, ...]]) -> set[str]:
    return {axis.name for axes in operands.values() for axis in axes if not axis.name.isdigit()}


def _signature(
    source: FunctionSource,
) -> tuple[dict[str, tuple[TensorAxis, ...]], tuple[TensorAxis, ...], dict[str, Any]]:
    """Operands with their axes, the axes of the result, and constants with their defaults."""
    spec, allowed = source.tree.args, "operands as x or x: 'r n', then constants as slope=0.5"
    for node in (spec.vararg, spec.kwarg):
        if node is not None:
            raise source.error(node, f'the argument "{node.arg}" is not positional', allowed)
    positional = [*spec.posonlyargs, *spec.args]
    defaults = source.function.__defaults__ or ()
    split = len(positional) - len(defaults)
    constants = dict(zip([node.arg for node in positional[split:]], defaults, strict=True))
    for node in spec.kwonlyargs:
        if node.arg not in (source.function.__kwdefaults__ or {}):
            raise source.error(node, f'the argument "{node.arg}" is neither an operand nor a constant', allowed)
    constants |= source.function.__kwdefaults__ or {}
    for name, value in constants.items():
        entries = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(entry, int | float) for entry in entries):
            kind = type(value).__name__
            raise source.error(source.tree, f'the default of "{name}" is a {kind}, no number', allowed)
        constants[name] = _constant(value, value)
    if not split:
        raise source.error(source.tree, f"{source.name} has no operand", allowed)
    axes = {node.arg: parse_axes(source, node.annotation) for node in positional[:split]}
    result = parse_axes(source, source.tree.returns, is_result=True)
    if all(own is None for own in axes.values()) and result is None:
        return dict.fromkeys(axes, ELEMENTS), ELEMENTS, constants
    if result is None:
        raise source.error(
            source.tree, f"{source.name} does not name the axes of its result", 'axes, as -> "r n"; -> ""'
        )
    operands = {name: own or () for name, own in axes.items()}
    used = {axis.name for own in (*operands.values(), result) for axis in own}
    clash = sorted(used & {*operands, *constants} | {name.upper() for name in used} & {*operands, *constants})
    if clash:
        raise source.error(source.tree, f'"{clash[0]}" is both an argument and an axis', "different names")
    if "_" in {axis.name for axis in result} and not any(own[:1] == ELEMENTS for own in operands.values()):
        raise source.error(source.tree, 'the result has leading axes ("...") that no operand has', 'x: "... n"')
    return operands, result, constants


def _constant(value: Any, default: Any) -> Any:
    """A constant argument as its default is: a tuple where that is one, a number where all of its entries are equal."""
    if isinstance(default, tuple):
        return tuple(value) if isinstance(value, list | tuple) else (value,) * len(default)
    if isinstance(value, list | tuple):
        if len(set(value)) != 1:
            raise ConfigError(f"a constant must be one number, not {value}; give it a tuple as its default")
        value = value[0]
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | float):
        raise ConfigError(f"a constant must be a number, not {value!r}")
    return value


def _custom(made: Operator, custom: Callable[..., Any] | Mapping[str, Callable[..., Any]]) -> dict[str, Operator]:
    """The operators of the gradients that the user gives."""
    if not isinstance(custom, Mapping):
        if len(made.operands) > 1:
            names = ", ".join(made.operands)
            raise ConfigError(f"{made.where}: custom_backward must name an operand, as {{...: function}}: {names}")
        custom = {next(iter(made.operands)): custom}
    built = {}
    for operand, function in custom.items():
        if operand not in made.operands:
            raise ConfigError(f'{made.where}: custom_backward of "{operand}": {did_you_mean(operand, made.operands)}')
        own = function if isinstance(function, Operator) else operator(backward="none")(function)
        error = made.result if not made.is_elementwise else ELEMENTS
        shapes = [tuple(axis.name for axis in axes) for axes in (*own.operands.values(), own.result)]
        wanted = [
            tuple(axis.name for axis in axes) for axes in (error, *made.operands.values(), made.operands[operand])
        ]
        if shapes != wanted:
            spelled = ["..." if axes == ("_",) else " ".join(axes) for axes in wanted]
            raise ConfigError(
                f"{own.where}: the gradient of {operand} must take the error and all operands, with the axes "
                f"{spelled[:-1]}, and return {spelled[-1]!r}"
            )
        built[operand] = own
    return built


@lru_cache(maxsize=1024)
def _specialize(made: Operator, constants: Constants, spelled: str, sizes: Constants) -> Program:
    """The program for constants, which are `spelled` because equal ones may differ, as 0.0 and -0.0."""
    assert made.source is not None
    return compile_tensors(made.source, made.operands, made.result, dict(constants), dict(sizes) if sizes else None)


@lru_cache(maxsize=1024)
def _gradients(made: Operator, program: Program, wanted: tuple[str, ...]) -> Program:
    shapes = {
        name: tuple(int(axis.name) if axis.name.isdigit() else axis.name for axis in made.operands[name])
        for name in wanted
    }
    return gradients(program, shapes)


def check_options(
    replaces: str | None, backward: str, format: Format | str | None, cycles: int | None, pipelined: bool
) -> dict[str, Any]:
    """The options that all kinds of operators share, checked."""
    if replaces is not None:
        check_function(replaces)
    if backward == "exact" and replaces is None:
        raise ConfigError('backward="exact" is the derivative of the function that an operator replaces; name it')
    if backward not in get_args(Backward):
        raise ConfigError(f'backward="{backward}": {did_you_mean(str(backward), get_args(Backward))}')
    parsed = parse(format) if isinstance(format, str) else format
    if parsed is not None and (not isinstance(parsed, Format) or parsed.is_blocked):
        raise ConfigError(f"format must round each number alone, as float16 does, not {format}")
    if cycles is not None and (isinstance(cycles, bool) or not isinstance(cycles, int) or cycles < 1):
        raise ConfigError(f"cycles must be a whole number of at least 1, not {cycles!r}")
    return {
        "replaces": replaces,
        "backward": backward,
        "format": parsed,
        "cycles": cycles,
        "pipelined": bool(pipelined),
    }
