"""Matrix products on the tensor cores of a Hopper GPU, with the sums of `tensor_core`'s units."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from presilicon.formats.format import Format
from presilicon.formats.mac import triton_kernels
from presilicon.formats.mac.matmul import as_batches
from presilicon.formats.mac.patches import Patches
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
    out = torch.empty_like(x, dtype=dtype)
    return fmt.round_tensor(x, fmt.own_rounding if mode is None else mode, key or Key(), out)


@lru_cache(maxsize=256)
def _instruction_of(fmt: Format) -> Instruction | None:
    return next((entry for entry in INSTRUCTIONS if holds(entry, fmt)), None)


def product(a: Tensor, b: Tensor, mac: MacUnit, bias: Tensor | None) -> Tensor | None:
    """The product of (..., M, K) and (..., K, N) with a bias, as an instruction adds it up; None if there is none."""
    instructions = instructions_of(mac)
    if instructions is None:
        return None
    left, right = _enter(a, instructions[0]), _enter(b, instructions[1])
    if left.shape[:-2] != right.shape[:-2] or not 2 <= left.dim() <= 4:
        left, right = as_batches(left, right)
    if instructions[0].operand.bits != 16:  # only 16-bit operands may lie along rows or columns
        left, right = left.contiguous(), right.mT.contiguous().mT
    *leading, rows, depth = left.shape
    columns, matrices, stacks = right.shape[-1], math.prod(leading), leading[-1] if leading else 1
    out = torch.empty(*leading, rows, columns, device=a.device)
    if out.numel() == 0 or depth == 0:
        return out.zero_() if bias is None else out.copy_(bias)
    outer = (0,) * (2 - len(leading))
    is_fp8 = instructions[0].is_fp8
    chunk = depth if is_fp8 or mac.chunk is None else min(mac.chunk, depth)
    splits = math.ceil(depth / chunk)
    parts = out if splits == 1 else torch.empty(splits, *out.shape, device=a.device)
    tile_rows, tile_columns, warps, stages = _tile(rows, columns, matrices * splits)
    tile_depth = _depth(instructions[0])
    even = not (rows % tile_rows or columns % tile_columns or chunk % tile_depth or depth % chunk)
    tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
    triton_kernels.dot_kernel[(tiles * matrices * splits,)](
        left, right, parts, bias, rows, columns, depth, chunk, splits, stacks, *outer, *left.stride(), *outer,
        *right.stride(), out.numel(), rows * columns, HAS_BIAS=bias is not None and splits == 1,
        PROMOTION=mac.chunk if is_fp8 else None, EVEN=even, ROWS=tile_rows, COLUMNS=tile_columns, DEPTH=tile_depth,
        GROUP=GROUP, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        _add_chunks(parts, out, bias)
    return out


def convolve(a: Tensor | Patches, b: Tensor | Patches, mac: MacUnit, bias: Tensor | None) -> Tensor | None:
    """The product of the patches of pictures and a tensor (groups, K, N) or (groups, M, K), patches read in place.

    None if the patches must be in memory: more than two spatial axes, operands of tf32, and FP8 operands that are
    reduced along positions, which do not follow one another in memory.
    """
    instructions, on_right = instructions_of(mac), isinstance(b, Patches)
    patches, other = (b, a) if isinstance(b, Patches) else (a, b)
    assert isinstance(patches, Patches)
    assert isinstance(other, Tensor)
    if instructions is None or instructions[0].name == "tf32" or len(patches.kernel) > 2:
        return None
    if instructions[0].is_fp8 and on_right:
        return None
    patches = patches.in_two_dimensions()
    x = _enter(patches.x, instructions[on_right])
    x = x if x.stride(1) == 1 else x.contiguous(memory_format=torch.channels_last)
    other = _enter(other, instructions[not on_right])
    other = other.mT.contiguous().mT if instructions[0].is_fp8 and other.stride(1) != 1 else other
    groups, positions, taps = patches.shape
    rows, columns, depth = (other.shape[1], taps, positions) if on_right else (positions, other.shape[2], taps)
    channels = x.shape[1] // groups
    # A plain convolution's results are written with the channels of all groups side by side.
    out = torch.empty((groups, rows, columns) if on_right else (rows, groups, columns), device=x.device)
    if out.numel() == 0 or depth == 0:
        out = out.zero_() if bias is None else out.copy_(bias)
        return out if on_right else out.transpose(0, 1)
    is_fp8 = instructions[0].is_fp8
    chunk = depth if is_fp8 or mac.chunk is None else min(mac.chunk, depth)
    splits = math.ceil(depth / chunk)
    parts = out if splits == 1 else torch.empty(splits, *out.shape, device=x.device)
    tile_rows, tile_columns, warps, stages = _tile(rows, columns, groups * splits)
    tile_depth = _depth(instructions[0])
    if on_right:
        tile_columns = math.gcd(channels, tile_columns) if channels % 32 == 0 else tile_columns
        is_uniform = channels % tile_columns == 0
    else:
        tile_depth = math.gcd(channels, tile_depth) if channels % 32 == 0 else tile_depth
        is_uniform = channels % tile_depth == 0
    tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
    outer, inner = (other.stride(1), other.stride(2)) if on_right else (other.stride(2), other.stride(1))
    triton_kernels.convolution_kernel[(tiles * groups * splits,)](
        x, other, parts, bias, rows, columns, depth, chunk, splits, channels, *x.shape[2:], *patches.positions[::-1],
        patches.kernel[1], *x.stride(), other.stride(0), outer, inner, out.numel(),
        rows * columns if on_right else columns, columns if on_right else groups * columns,
        *patches.step, *patches.padding, *patches.dilation, GAP_Y=patches.gap[0], GAP_X=patches.gap[1],
        ON_RIGHT=on_right, UNIFORM=is_uniform, HAS_BIAS=bias is not None and splits == 1,
        PROMOTION=mac.chunk if is_fp8 else None, ROWS=tile_rows, COLUMNS=tile_columns, DEPTH=tile_depth,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        _add_chunks(parts, out, bias)
    return out if on_right else out.transpose(0, 1)


def _add_chunks(parts: Tensor, out: Tensor, bias: Tensor | None) -> None:
    block = 1024
    triton_kernels.add_chunks_kernel[(math.ceil(out.numel() / block),)](
        parts, out, bias, out.numel(), out.shape[-1], len(parts), HAS_BIAS=bias is not None, BLOCK=block
    )


def _enter(x: Tensor, instruction: Instruction) -> Tensor:
    """An operand as the instruction reads it: in its type, or on tf32's grid, to which the hardware would truncate."""
    dtype = operand_type(instruction)
    if instruction.name == "tf32":
        return quantize(x, instruction.operand)
    return x if x.dtype is dtype else x.to(dtype)


def _depth(instruction: Instruction) -> int:
    """Steps of the reduction per tile: 128 bytes of an operand."""
    return 128 if instruction.is_fp8 else 32 if instruction.name == "tf32" else 64


def _tile(rows: int, columns: int, copies: int) -> tuple[int, int, int, int]:
    """Rows and columns of a program's outputs, its warps and stages: large tiles unless they leave the chip idle."""
    for tile_rows, tile_columns, warps, stages in ((128, 256, 8, 3), (128, 128, 4, 4), (64, 128, 4, 4)):
        if math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns) * copies >= 132:
            return tile_rows, tile_columns, warps, stages
    return 64, 64, 4, 4
