"""The language: Python about numbers, codes and elements of tensors, compiled from its source to a program.

Formats and processing units compile functions on codes (`compile_scalars`), operators functions of numbers and tensors
(`compile_function`, `compile_tensors`). What functions may contain is the same.
"""

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from presilicon.base import ConfigError
from presilicon.programs.axes import TensorAxis
from presilicon.programs.expressions import LocalTuple, OperandTensor, Scope
from presilicon.programs.loops import Loops
from presilicon.programs.program import Builder, Kind, Program, ProgramResult
from presilicon.programs.source import FunctionSource, LanguageError, source_of


@dataclass(frozen=True)
class Lanes:
    """An argument that is several whole numbers, read by their number."""

    count: int


Argument = Kind | Lanes


def operand_names(arguments: Sequence[Argument]) -> list[str]:
    """The names that the program of a function on codes reads, in the order of its arguments."""
    return [
        name
        for place, argument in enumerate(arguments)
        for name in (
            [f"x{place}_{lane}" for lane in range(argument.count)] if isinstance(argument, Lanes) else [f"x{place}"]
        )
    ]


def compile_function(
    source: FunctionSource, builder: Builder, registers: Mapping[str, int], constants: Mapping[str, Any] | None = None
) -> int:
    """The result of a function of numbers, added to a program; the other arguments are constants.

    Raises:
        LanguageError: the function uses something that the language does not have.
    """
    compiler = _Compiler(source, builder, returns_number=True)
    register: int = compiler.checked(lambda: compiler.compile(compiler.bound(constants or {}) | dict(registers)))
    return register


def compile_scalars(
    function: Callable[..., Any], arguments: Sequence[Argument], results: Sequence[Kind] = ("integer",)
) -> Program:
    """The program of a function on codes, with results of given kinds. It reads x0, x1, ..., and x0_1 for a lane of x0.

    Sums are added in their order, whole numbers have 64 bits, and an index outside of a table is an error.

    Raises:
        LanguageError: the function uses something that the language does not have.

    >>> def carry(a, b):
    ...     total = a + b
    ...     return total & 15, total >> 4
    >>> from presilicon.programs.reference import evaluate
    >>> evaluate(compile_scalars(carry, ["integer", "integer"], ["integer", "integer"]), {"x0": 9, "x1": 8})
    [1, 1]
    """
    source, builder = source_of(function), Builder(is_exact=True)
    compiler = _Compiler(source, builder)

    def compile() -> Program:
        spec = source.tree.args
        names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
        if len(names) < len(arguments) or spec.vararg or spec.kwarg:
            raise source.error(source.tree, f"{source.name} takes {len(names)} arguments", f"{len(arguments)}")
        defaults = source.function.__defaults__ or ()
        scope = compiler.bound(dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)))
        for place, (name, kind) in enumerate(zip(names, arguments, strict=False)):
            if isinstance(kind, Lanes):
                lanes = [builder.input(f"x{place}_{lane}", "integer") for lane in range(kind.count)]
                scope[name] = LocalTuple(lanes)
            else:
                scope[name] = builder.input(f"x{place}", kind)
        value = compiler.compile(scope)
        parts = value if isinstance(value, LocalTuple) else (value,)
        if len(parts) != len(results) or not all(isinstance(part, int) for part in parts):
            what = f"{source.name} returns {len(parts)} values"
            raise source.error(source.tree, what, f"{len(results)}")
        return builder.finish(
            *(
                builder.number(part) if kind == "number" else builder.emit("whole", builder.whole(part))
                for part, kind in zip(parts, results, strict=True)
            )
        )

    program: Program = compiler.checked(compile)
    return program


def compile_tensors(
    source: FunctionSource,
    operands: Mapping[str, tuple[TensorAxis, ...]],
    result: tuple[TensorAxis, ...],
    constants: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
) -> Program:
    """The program of a function that computes an element of a tensor.

    Raises:
        LanguageError: the function uses something that the language does not have.
        SizesNeeded: a loop is to be written out that is as long as a size, and `sizes` has none.
    """
    builder = Builder(sizes)
    compiler = _Compiler(source, builder, returns_number=True)

    def compile() -> Program:
        scope = compiler.bound(constants)
        # In order, and not as a set: the order is part of the program, and so of the operator's identity.
        named = dict.fromkeys(axis.name for axes in operands.values() for axis in axes if not axis.name.isdigit())
        scope |= {name.upper(): builder.size(name) for name in named}
        axes = [compiler.axis(axis, scope, named) for axis in result]
        scope |= {axis.name: register for axis, register in zip(result, axes, strict=True)}
        for name, own in operands.items():
            tensor = OperandTensor(name, own)
            is_number = not own or own == (TensorAxis("_"),)
            scope[name] = compiler.read(source.tree, tensor, (), scope) if is_number else tensor
        value = compiler.compile(scope)
        assert isinstance(value, int)
        return builder.finish(results=[ProgramResult("", tuple(axes), value)])

    program: Program = compiler.checked(compile)
    return program


class _Compiler(Loops):
    """Compiles one function: its arguments, its statements, and what it returns."""

    def checked(self, compile: Any) -> Any:
        """The result of `compile`; errors that know no line get that of the function."""
        self.builder.truth(True)  # the first instruction of every program: the condition of its first statement
        try:
            return compile()
        except RecursionError:
            name = self.source.name
            raise self.source.error(self.source.tree, f"the branches of {name} go too deep", "a few hundred") from None
        except ConfigError as error:
            if isinstance(error, LanguageError):
                raise
            raise self.source.error(self.source.tree, str(error), "smaller functions") from None

    def axis(self, axis: TensorAxis, scope: Scope, named: Collection[str]) -> int:
        """The index variable of an axis of the result."""
        if axis.extent is not None:
            for node in ast.walk(axis.extent):
                ast.copy_location(node, self.source.tree.returns or self.source.tree)
            extent = self.plain(axis.extent, scope)
            if self.builder.kinds[extent] != "integer" or self.builder.free[extent]:
                raise self.source.error(
                    self.source.tree, f"the size of axis {axis.name}", "whole numbers and sizes as N"
                )
            scope[axis.name.upper()] = extent
            return self.builder.axis(axis.name, extent)
        if axis.name.isdigit():
            return self.builder.axis(axis.name, self.builder.integer(int(axis.name)))
        if axis.name not in named:
            what = f'the result has an axis "{axis.name}" that no operand has'
            allowed = f"axes of operands, or a size, as {axis.name}=(N + 1)//2"
            raise self.source.error(self.source.tree.returns or self.source.tree, what, allowed)
        return self.builder.axis(axis.name, self.builder.size(axis.name))
