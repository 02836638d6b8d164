"""Formulas: functions of numbers in the language of user arithmetic that say what one element of a result is."""

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any

from presilicon.ops.entry import Captured
from presilicon.programs import Builder, FunctionSource, Program, compile_function


@lru_cache(maxsize=1024)
def compile_formula(formula: Callable[..., Any]) -> Program:
    """The program of a formula, whose operands are its arguments.

    Raises:
        LanguageError: the formula uses something that the language does not have.

    >>> def halved(x):
    ...     return x / 2 if x > 0 else 0.0
    >>> from presilicon.programs import evaluate
    >>> evaluate(compile_formula(halved), 3.0)
    [1.5]
    """
    source, builder = FunctionSource(formula), Builder()
    return builder.finish(compile_function(source, builder, {name: builder.input(name) for name in operands(formula)}))


def operands(formula: Callable[..., Any]) -> list[str]:
    """The names of a formula's arguments."""
    return list(signature(formula).parameters)


def formula_of(captured: Captured, option: str = "") -> Callable[..., Any] | None:
    """The formula of an operator, by the value of the option that chooses among several; None if there is none."""
    own = captured.formula
    return own if own is None or callable(own) else own.get(option or next(iter(own)))
