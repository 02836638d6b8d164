"""Execution of programs on tensors in plain torch: any device, any format."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from presilicon.formats import Format, quantize
from presilicon.operators import CONDITIONS, Program, ProgramInstruction


def run_torch(program: Program, x: Tensor, fmt: Format | None = None) -> list[Tensor]:
    """The results of a program for every element of `x`, in the type of `x`: float32 arithmetic, or float64.

    With a format, the argument, constants and results are each rounded to it once. No gradient is recorded.
    """
    with torch.no_grad():
        wide = x if fmt is None else x.to(_working_type(fmt))
        values: list[Tensor] = []
        for instruction in program.instructions:
            if instruction.operation == "input":
                result = wide
            elif instruction.operation == "truth":
                result = torch.full((), bool(instruction.value), device=x.device)
            elif instruction.operation == "constant":
                # A tensor, because on a GPU torch divides by a Python number through its reciprocal.
                result = torch.full((), instruction.value, dtype=wide.dtype, device=x.device)
            else:
                result = _apply(instruction, [values[argument] for argument in instruction.arguments], wide)
            if fmt is not None and instruction.operation not in CONDITIONS and instruction.operation != "locate":
                result = quantize(result, fmt)
            values.append(result)
        return [_shaped(values[output], x) for output in program.outputs]


def _working_type(fmt: Format) -> torch.dtype:
    """float32 if rounding its results again is harmless (2p + 2 of 24 bits), else float64."""
    return torch.float32 if fmt.is_float and fmt.significand_bits <= 11 else torch.float64


def _shaped(value: Tensor, x: Tensor) -> Tensor:
    value = value.to(x.dtype)
    if value.shape != x.shape or value.data_ptr() == x.data_ptr():
        return value.expand(x.shape).clone()
    return value


def _apply(instruction: ProgramInstruction, arguments: list[Tensor], like: Tensor) -> Tensor:
    if instruction.operation == "lookup":
        table = torch.tensor(instruction.table, dtype=torch.float64, device=like.device).to(like.dtype)
        # Clamped before it is truncated, so that a NaN becomes the first entry.
        index = arguments[0].nan_to_num(0.0).clamp(0, len(table) - 1).to(torch.int64)
        return table[index]
    if instruction.operation == "locate":
        bounds = torch.tensor(instruction.table, dtype=torch.float64, device=like.device).to(like.dtype)
        counted = torch.bucketize(arguments[0].contiguous(), bounds, right=True).to(like.dtype)
        return counted.masked_fill(arguments[0].isnan(), 0.0)
    result: Tensor = _RULES[instruction.operation](*arguments)
    return result


def _square_root(a: Tensor) -> Tensor:
    """The correctly rounded square root: on the CPU torch's is sometimes off by one ulp, numpy's is not."""
    if a.device.type != "cpu" or _get_current_dispatch_mode() is not None:
        return torch.sqrt(a)
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(a.numpy())))


_RULES: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "abs": torch.abs,
    "min": lambda a, b: torch.where(b < a, b, a),
    "max": lambda a, b: torch.where(b > a, b, a),
    "floor": lambda a: torch.floor(a) + 0.0,  # -0 becomes 0
    "sqrt": _square_root,
    "exp": torch.exp,
    "log": torch.log,
    "select": torch.where,
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
}
