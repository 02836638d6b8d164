"""The one language for user arithmetic: Python about numbers, compiled from its source to a program and executed.

A program is a graph of pure operations on numbers, whole numbers and conditions. The reference, torch, Numba and Triton
execute it; its derivative is a program too. Rounding is handed in.

>>> from presilicon.programs import Builder, FunctionSource, compile_function, evaluate
>>> builder = Builder()
>>> x = builder.input()
>>> program = builder.finish(builder.emit("mul", x, builder.constant(0.5)))
>>> evaluate(program, 3.0)
[1.5]
"""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.programs.adjoint import gradients, with_slope
from presilicon.programs.axes import TensorAxis, bind_sizes, parse_axes
from presilicon.programs.breakpoints import find_breakpoints
from presilicon.programs.functions import MATHEMATICS, divide, exponential, logarithm, square_root
from presilicon.programs.language import Argument, Lanes, compile_function, compile_scalars, compile_tensors
from presilicon.programs.loops import SizesNeeded
from presilicon.programs.program import (
    CONDITIONS,
    ERROR,
    REDUCTIONS,
    Builder,
    Kind,
    Operation,
    Program,
    ProgramInstruction,
    needed_by,
)
from presilicon.programs.reference import evaluate
from presilicon.programs.rounding import StepRounding
from presilicon.programs.source import FunctionSource, LanguageError, plain_function
from presilicon.programs.stages import ProgramStage, extents_of, stages_of

if TYPE_CHECKING:
    from presilicon.programs.executions.numba_execution import run_numba
    from presilicon.programs.executions.numba_scalars import numba_function
    from presilicon.programs.executions.torch_execution import run_torch
    from presilicon.programs.executions.triton_execution import run_triton
    from presilicon.programs.executions.triton_scalars import ScalarFunction, triton_function, triton_scope

__getattr__ = deferred(__name__)

__all__ = [
    "CONDITIONS",
    "ERROR",
    "MATHEMATICS",
    "REDUCTIONS",
    "Argument",
    "Builder",
    "FunctionSource",

    "Kind",
    "Lanes",
    "LanguageError",
    "Operation",
    "Program",
    "ProgramInstruction",
    "ProgramStage",
    "ScalarFunction",
    "SizesNeeded",
    "StepRounding",
    "TensorAxis",
    "bind_sizes",
    "compile_function",
    "compile_scalars",
    "compile_tensors",
    "divide",
    "evaluate",
    "exponential",
    "extents_of",
    "find_breakpoints",
    "gradients",
    "logarithm",
    "needed_by",
    "numba_function",
    "parse_axes",
    "plain_function",
    "run_numba",
    "run_torch",
    "run_triton",
    "square_root",
    "stages_of",
    "triton_function",
    "triton_scope",
    "with_slope",
]  # fmt: skip
