"""Matrix products on the tensor cores of a Hopper GPU, with the sums of `tensor_core`'s units."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from presilicon.formats.format import Format
from presilicon.formats.mac import triton_kernels
from presilicon.formats.mac.tensor_core import INSTRUCTIONS, Instruction, holds, tensor_core
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.quantization import quantize
from presilicon.formats.rounding import Key, Stochastic

_TYPES = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
}
GROUP = 8
"""Row tiles whose programs run side by side."""


@lru_cache(maxsize=256)
def instructions_of(mac: MacUnit) -> tuple[Instruction, Instruction] | None:
    """The operands of a unit that a Hopper GPU has; None for all others."""
    left, right = (next((i for i in INSTRUCTIONS if i.operand == fmt), None) for fmt in (mac.left, mac.right))
    if left is None or right is None:
        return None
    depth = _depth(left)
    if mac.chunk is not None and mac.chunk % depth:
        return None
    return (
        (left, right) if mac == tensor_core(left.operand, right.operand, split=mac.chunk, promotion=mac.chunk) else None
    )


def operand_type(instruction: Instruction) -> torch.dtype:
    """The type of the tensors that an instruction reads."""
    return _TYPES[instruction.name]


def typed_operand(x: Tensor, fmt: Format, mode: str | Stochastic | None, key: Key | None) -> Tensor | None:
    """A float32 tensor in a format, as numbers of the type that tensor cores read; None if no instruction holds it."""
    instruction = _instruction_of(fmt)
    if instruction is None or instruction.name == "tf32" or x.dtype is not torch.float32 or x.numel() == 0:
        return None
    dtype = operand_type(instruction)
    if fmt == instruction.operand and mode in (None, "nearest-even") and not instruction.is_fp8:
        return x.to(dtype)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    return fmt.round_tensor(x, fmt.own_rounding if mode is None else mode, key or Key(), out)


@lru_cache(maxsize=256)
def _instruction_of(fmt: Format) -> Instruction | None:
    return next((entry for entry in INSTRUCTIONS if holds(entry, fmt)), None)


def multiply(a: Tensor, b: Tensor, mac: MacUnit, instructions: tuple[Instruction, Instruction]) -> Tensor:
    """The product of (batches, stacks, M, K) and (batches, stacks, K, N) tensors, as an instruction adds it up."""
    left, right = _enter(a, instructions[0]), _enter(b, instructions[1])
    if instructions[0].operand.bits != 16:  # only 16-bit operands may lie along rows or columns
        left, right = left.contiguous(), right.mT.contiguous().mT
    batches, stacks, rows, depth = left.shape
    matrices, columns = batches * stacks, right.shape[3]
    out = torch.empty(matrices, rows, columns, device=a.device)
    if out.numel() == 0 or depth == 0:
        return out.zero_()
    is_fp8 = instructions[0].is_fp8
    chunk = depth if is_fp8 or mac.chunk is None else min(mac.chunk, depth)
    splits = math.ceil(depth / chunk)
    parts = out if splits == 1 else torch.empty(splits, *out.shape, device=a.device)
    tile_rows, tile_columns, warps, stages = _tile(rows, columns, matrices * splits, instructions[0])
    tile_depth = _depth(instructions[0])
    even = not (rows % tile_rows or columns % tile_columns or chunk % tile_depth or depth % chunk)
    tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
    triton_kernels.dot_kernel[(tiles * matrices * splits,)](
        left, right, parts, rows, columns, depth, chunk, splits, stacks, *left.stride(), *right.stride(), out.numel(),
        rows * columns, PROMOTION=mac.chunk if is_fp8 else None, EVEN=even, ROWS=tile_rows, COLUMNS=tile_columns,
        DEPTH=tile_depth, GROUP=GROUP, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        block = 1024
        triton_kernels.add_chunks_kernel[(math.ceil(out.numel() / block),)](
            parts, out, out.numel(), splits, BLOCK=block
        )
    return out


def _enter(x: Tensor, instruction: Instruction) -> Tensor:
    """An operand as the instruction reads it: in its type, or on tf32's grid, to which the hardware would truncate."""
    return quantize(x, instruction.operand) if instruction.name == "tf32" else x.to(operand_type(instruction))


def _depth(instruction: Instruction) -> int:
    """Steps of the reduction per tile: 128 bytes of an operand."""
    return 128 if instruction.is_fp8 else 32 if instruction.name == "tf32" else 64


def _tile(rows: int, columns: int, copies: int, instruction: Instruction) -> tuple[int, int, int, int]:
    """Rows and columns of a program's outputs, its warps and stages: large tiles unless they leave the chip idle."""
    for tile_rows, tile_columns, warps, stages in ((128, 256, 8, 3), (128, 128, 4, 4), (64, 128, 4, 4)):
        if math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns) * copies >= 132:
            return tile_rows, tile_columns, warps, stages
    return 64, 64, 4, 4
