"""Execution of programs on tensors, compiled by Numba: one pass over the memory."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.formats import split_over_threads
from presilicon.operators import Program, ProgramInstruction

_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


def run_numba(program: Program, x: Tensor) -> list[Tensor]:
    """The results of a program for every element of a float32 or float64 tensor on the CPU, in its own type."""
    source = x.detach().contiguous()
    results = [torch.empty_like(source) for _ in program.outputs]
    kernel = _kernel(program, source.dtype)
    flat = source.view(-1).numpy()
    targets = tuple(result.view(-1).numpy() for result in results)
    split_over_threads(
        lambda start, stop: kernel(flat[start:stop], *(target[start:stop] for target in targets)), flat.size
    )
    return results


@lru_cache(maxsize=256)
def _kernel(program: Program, dtype: torch.dtype) -> Callable[..., None]:
    import numba

    number = _NUMPY[dtype]
    space: dict[str, Any] = {"math": math, "np": np}
    lines = []
    for index, instruction in enumerate(program.instructions):
        if instruction.operation == "constant":
            space[f"c{index}"] = number(instruction.value)
        elif instruction.table:
            space[f"table{index}"] = np.array(instruction.table, dtype=number)
            space[f"last{index}"] = len(instruction.table) - 1
        lines.append(f"        v{index} = {_expression(index, instruction)}")
    outputs = [f"out{index}" for index in range(len(program.outputs))]
    lines += [f"        {name}[i] = v{output}" for name, output in zip(outputs, program.outputs, strict=True)]
    text = "\n".join([f"def kernel(source, {', '.join(outputs)}):", "    for i in range(source.size):", *lines])
    space["locate"] = numba.njit(nogil=True)(_locate)
    space |= {"number": number, "zero": number(0)}
    exec(compile(text, "<operator>", "exec"), space)
    # With the error model of numpy, a division by zero follows IEEE 754 and does not raise.
    compiled: Callable[..., None] = numba.njit(nogil=True, error_model="numpy")(space["kernel"])
    return compiled


def _expression(index: int, instruction: ProgramInstruction) -> str:
    """An instruction as Python, in variables v0, v1, ..."""
    arguments = [f"v{argument}" for argument in instruction.arguments]
    match instruction.operation:
        case "input":
            return "source[i]"
        case "constant":
            return f"c{index}"
        case "truth":
            return str(bool(instruction.value))
        case "lookup":
            # Written so that a NaN, which is not above 0, reads the first entry.
            x, last = arguments[0], f"last{index}"
            return f"table{index}[({last} if {x} >= {last} else int({x})) if {x} > 0 else 0]"
        case "locate":
            return f"number(locate(table{index}, {arguments[0]}))"
    return _TEXTS[instruction.operation].format(*arguments)


def _locate(bounds: Any, x: Any) -> int:
    """Number of bounds that are at most `x`; 0 for a NaN."""
    low, high = 0, bounds.size
    if x != x:
        return 0
    while low < high:
        middle = (low + high) // 2
        if x < bounds[middle]:
            high = middle
        else:
            low = middle + 1
    return low


_TEXTS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "abs({0})",
    "min": "{1} if {1} < {0} else {0}",
    "max": "{1} if {1} > {0} else {0}",
    "floor": "np.floor({0}) + zero",
    "sqrt": "np.sqrt({0})",
    "exp": "math.exp({0})",
    "log": "np.log({0})",
    "select": "{1} if {0} else {2}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} and {1}",
    "or": "{0} or {1}",
    "not": "not {0}",
}
