"""Formulas of the op table as OpenCL C: an element-wise kernel for each."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from presilicon.ops import compile_formula, operands
from presilicon.programs import MATHEMATICS, Program, ProgramInstruction

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&&",
    "or": "||",
}  # fmt: skip
_VECTORIZED = ("exp", "tanh", "erf")
"""Functions that `functions.cl` has under their name and an underscore, in arithmetic that compilers vectorize."""
_CALLS = {"abs": "fabs", "floor": "floor", "sqrt": "sqrt"} | {
    name: f"{name}_" if name in _VECTORIZED else name for name in MATHEMATICS
}
_TYPES = {"number": "float", "integer": "long", "condition": "int"}

printed: dict[str, str] = {}
"""The text of each kernel that was printed, by its name."""


@lru_cache(maxsize=1024)
def print_kernel(name: str, formula: Callable[..., Any], pattern: str) -> str:
    """Print the kernel of an operator's formula, whose operands come from the slots of `pattern`; returns its name.

    The name has a digest of the text: boards keep kernels by name, and an operator may get another formula.
    """
    program, slots = compile_formula(formula), dict(zip(operands(formula), pattern, strict=True))
    digest = sha256(print_formula(name, program, slots).encode()).hexdigest()[:8]
    kernel = f"{name}_{digest}"
    printed[kernel] = print_formula(kernel, program, slots)
    return kernel


def is_printable(program: Program) -> bool:
    """Whether a program consists of what OpenCL C has one expression for."""
    known = {*_INFIX, *_CALLS, "read", "constant", "integer", "truth", "size", "axis", "neg", "not", "select", "min"}
    known |= {"max", "number", "whole", "lookup"}
    return all(step.operation in known for step in program.instructions)


def print_formula(name: str, program: Program, slots: Mapping[str, str]) -> str:
    """A kernel line and the function that it calls; `slots` says where each operand comes from: x, y, z, s or t."""
    lines: list[str] = []
    tables: list[str] = []
    for position, step in enumerate(program.instructions):
        if step.operation in ("size", "axis"):
            continue
        if step.operation == "lookup":
            numbers = ", ".join(map(_number, step.table))
            tables.append(f"__constant float {name}_{position}[] = {{{numbers}}};")
        text = _expression(name, position, step, slots, program.kinds[position])
        lines.append(f"    {_TYPES[program.kinds[position]]} r{position} = {text};")
    body = "\n".join(lines)
    head = f"__attribute__((always_inline)) inline float {name}_(float x, float y, float z, float s, float t) {{"
    tail = f"    return r{program.outputs[0]};\n}}"
    return "\n".join([*tables, head, body, tail, f"FLOAT({name}, {name}_(x, y, z, s, t))", ""])


def _expression(name: str, position: int, step: ProgramInstruction, slots: Mapping[str, str], kind: str) -> str:
    registers = [f"r{argument}" for argument in step.arguments]
    match step.operation:
        case "read":
            return slots[step.name]
        case "constant":
            return _number(step.value)
        case "integer" | "truth":
            return str(int(step.value))
        case "neg":
            return f"-{registers[0]}"
        case "not":
            return f"!{registers[0]}"
        case "select":
            return f"{registers[0]} ? {registers[1]} : {registers[2]}"
        case "min":  # Python's: the first of equal ones, and of a NaN
            return f"{registers[1]} < {registers[0]} ? {registers[1]} : {registers[0]}"
        case "max":
            return f"{registers[1]} > {registers[0]} ? {registers[1]} : {registers[0]}"
        case "number" | "whole":
            return f"({'float' if step.operation == 'number' else 'long'}){registers[0]}"
        case "lookup":
            last = len(step.table) - 1
            return (
                f"{name}_{position}[{registers[0]} > 0 ? ({registers[0]} >= {last} ? {last} : (int){registers[0]}) : 0]"
            )
        case operation if operation in _INFIX:
            return f"{registers[0]} {_INFIX[operation]} {registers[1]}"
        case "abs" if kind == "integer":
            return f"(long)abs({registers[0]})"
        case operation:  # of a float: those of OpenCL are overloaded
            return f"{_CALLS[operation]}((float){registers[0]})"


def _number(value: float) -> str:
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{value!r}f" if "e" in repr(value) or "." in repr(value) else f"{value!r}.0f"
