"""Programs of plain numbers as functions that Triton kernels call with blocks of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.programs.executions.numba_execution import CodeBlock, LoopWriter
from presilicon.programs.executions.triton_execution import KernelWriter, type_of_table
from presilicon.programs.language import Argument, operand_names
from presilicon.programs.program import Program, ProgramInstruction
from presilicon.programs.stages import ProgramStage

LARGEST_FUNCTION = 20_000
"""Longer programs take Triton minutes to compile."""


class ScalarKernelWriter(KernelWriter):
    """Writes a program of plain numbers as a function that kernels call with blocks of them."""

    def __init__(self, program: Program, operands: Sequence[str] = ()) -> None:
        super().__init__(program, ProgramStage((), program.outputs[0]), set(), frozenset(), "float64")
        self.shape, self._operands = "shape", operands
        self._integers: dict[str, int] = {}

    def _inner(self, rounds: Program) -> LoopWriter:
        writer = ScalarKernelWriter(rounds)
        writer.tables, writer._integers = self.tables, self._integers
        return writer

    def text(self) -> str:
        """The lines of the function `{name}`; its arguments are the operands, and then its tables."""
        operands = self._operands
        shape = " + ".join(f"({name} != {name}).to(tl.int64)" for name in operands) or "0"
        top = self._top
        results = [self._value(output, [top]) for output in self._program.outputs]
        constants = ["T: tl.constexpr = tl.float64"]
        constants += [f"{name} = tl.full((), {number}, T)" for name, number in self._globals.items()]
        constants += [f"{name} = tl.full((), {number}, tl.int64)" for name, number in self._integers.items()]
        if "shape" in "".join(top.text(0)):
            constants.append(f"shape = ({shape}) * 0")
        lines = [f"    {line}" for line in constants] + top.text(1)
        head = f"def {{name}}({', '.join([*operands, *self.tables])}):"
        return "\n".join([head, *lines, f"    return {', '.join(results)}", ""])

    def _name(self, register: int) -> str:
        instruction = self._program.instructions[register]
        if instruction.operation != "integer":
            return super()._name(register)
        name = f"{self._prefix}k{register}"
        self._integers[name] = int(instruction.value)
        return name

    def _read_element(
        self, register: int, instruction: ProgramInstruction, arguments: list[str], here: Sequence[CodeBlock]
    ) -> str:
        return instruction.name


class ScalarFunction(NamedTuple):
    """A function that kernels call: its text, with `{name}` for its name, and its constant tables by argument."""

    text: str
    tables: dict[str, Tensor]


def triton_function(program: Program, arguments: Sequence[Argument]) -> ScalarFunction:
    """A program of plain numbers as a function of blocks: numbers are float64, whole numbers have 64 bits.

    Lanes are arguments one by one. The text uses `triton`, `tl` and the functions of `triton_functions`.
    """
    if len(program.instructions) > LARGEST_FUNCTION:
        raise NotImplementedError(f"{len(program.instructions)} operations")
    writer = ScalarKernelWriter(program, operand_names(arguments))
    text = writer.text()
    tables = {
        name: torch.tensor(step.table, dtype=type_of_table(step, torch.float64)) for name, step in writer.tables.items()
    }
    return ScalarFunction(text, tables)


def triton_scope() -> dict[str, Any]:
    """The names that the text of a scalar function uses."""
    from presilicon.programs.executions import triton_functions

    return dict(vars(triton_functions))
