"""Matrix products on the tensor cores of a Hopper GPU, with the sums of `tensor_core`'s units."""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from presilicon.formats.format import Format
from presilicon.formats.kernels.gpu_launch import aligned, launches, remember
from presilicon.formats.mac import triton_kernels
from presilicon.formats.mac.factored import Factored, as_factored
from presilicon.formats.mac.matmul import as_batches, operand_types, result_shape
from presilicon.formats.mac.patches import Patches
from presilicon.formats.mac.tensor_core import INSTRUCTIONS, TensorCoreInstruction, holds, tensor_core
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.quantization import quantize
from presilicon.formats.rounding import Key, Mode, check_rounding

_TYPES = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
}
GROUP = 8
"""Row tiles whose programs run side by side."""


_units: dict[int, tuple[MacUnit, tuple[TensorCoreInstruction, TensorCoreInstruction] | None]] = {}
"""Units by their identity, since products ask again and again, and hashing one takes as long as starting a kernel."""
MOST_UNITS = 1024


def instructions_of(mac: MacUnit) -> tuple[TensorCoreInstruction, TensorCoreInstruction] | None:
    """The operands of a unit that a Hopper GPU has; None for all others."""
    entry = _units.get(id(mac))
    if entry is None:
        if len(_units) >= MOST_UNITS:
            _units.clear()
            launches.clear()
        entry = _units[id(mac)] = (mac, _find_instructions(mac))
    return entry[1]


def _find_instructions(mac: MacUnit) -> tuple[TensorCoreInstruction, TensorCoreInstruction] | None:
    left, right = (next((i for i in INSTRUCTIONS if i.operand == fmt), None) for fmt in (mac.left, mac.right))
    if left is None or right is None or (mac.chunk is not None and mac.chunk % least_depth(left)):
        return None
    same = tensor_core(left.operand, right.operand, split=mac.chunk, promotion=mac.chunk)
    return (left, right) if mac == same else None


def operand_type(instruction: TensorCoreInstruction) -> torch.dtype:
    """The type of the tensors that an instruction reads."""
    return _TYPES[instruction.name]


def typed_operand(x: Tensor, fmt: Format, mode: Mode | None, key: Key | None) -> Tensor | None:
    """A float32 tensor in a format, as numbers of the type that tensor cores read; None if no instruction holds it."""
    instruction = _instruction_of(fmt)
    if instruction is None or instruction.name == "tf32" or x.dtype is not torch.float32 or x.numel() == 0:
        return None
    dtype = operand_type(instruction)
    if fmt == instruction.operand and mode in (None, "nearest-even") and not instruction.is_fp8:
        return x.to(dtype)
    out = torch.empty_like(x, dtype=dtype)
    return fmt.round_tensor(x, fmt.own_rounding if mode is None else check_rounding(mode), key or Key(), out)


def type_of(fmt: Format | None) -> torch.dtype | None:
    """The type that tensor cores read for numbers of a format, float32 excepted."""
    instruction = None if fmt is None else _instruction_of(fmt)
    return None if instruction is None or instruction.name == "tf32" else operand_type(instruction)


@lru_cache(maxsize=256)
def _instruction_of(fmt: Format) -> TensorCoreInstruction | None:
    return next((entry for entry in INSTRUCTIONS if holds(entry, fmt)), None)


def multiply(
    a: Tensor | Patches | Factored, b: Tensor | Patches | Factored, mac: MacUnit, bias: Tensor | None
) -> Tensor | None:
    """`matmul` for what tensor cores multiply; None for all else, and for operands that do not fit together."""
    if isinstance(a, Patches) or isinstance(b, Patches):
        return convolve(a, b, mac, bias)
    scales = None
    if isinstance(a, Factored) or isinstance(b, Factored):
        left, right = as_factored(a).along(0), as_factored(b).along(1)
        a, b, scales = left.codes, right.codes, (left.scales, right.scales)
    if a.device != b.device or not a.dim() > 1 < b.dim() or a.shape[-1] != b.shape[-2]:
        return None
    if not {a.dtype, b.dtype} <= operand_types() or (bias is not None and bias.shape != b.shape[-1:]):
        return None
    return product(a, b, mac, bias, scales)


def product(
    a: Tensor, b: Tensor, mac: MacUnit, bias: Tensor | None, scales: tuple[Tensor, Tensor] | None = None
) -> Tensor | None:
    """The product of (..., M, K) and (..., K, N) with a bias, as an instruction adds it up; None if there is none.

    `scales` multiply the sums: numbers of tensors, or of the rows and columns of two matrices; along the reduction
    axis, one for all or one for each chunk of the unit.
    """
    instructions = instructions_of(mac)
    if instructions is None:
        return None
    left, right = enter(a, instructions[0]), enter(b, instructions[1])
    shape: tuple[int, ...] = (*left.shape[:-1], right.shape[-1])
    if left.shape[:-2] != right.shape[:-2] or not 2 <= left.dim() <= 4:
        shape = result_shape(left, right, mac)
        left, right = as_batches(left, right)
    if instructions[0].operand.bits != 16:  # only 16-bit operands may lie along rows or columns
        left, right = along_rows(left), along_rows(right.mT).mT
    if scales is not None and not _can_scale(left, mac, instructions[0], scales):
        return None
    return _multiply(left, right, mac, instructions[0], bias, scales or ()).view(shape)


def _can_scale(left: Tensor, mac: MacUnit, instruction: TensorCoreInstruction, scales: tuple[Tensor, Tensor]) -> bool:
    """Whether the kernel can multiply sums by these scales."""
    if not any(scale.dim() for scale in scales):
        return instruction.is_fp8 or mac.chunk is None or left.shape[-1] <= mac.chunk
    if left.dim() != 2:
        return False
    if max(scale.shape[axis] if scale.dim() else 1 for scale, axis in zip(scales, (-1, -2), strict=True)) == 1:
        return instruction.is_fp8 or mac.chunk is None or left.shape[-1] <= mac.chunk
    return mac.chunk in (32, 64, 128) and instruction.name != "tf32"


def along_rows(x: Tensor) -> Tensor:
    """Matrices whose rows are contiguous in memory."""
    if x.stride(-1) == 1 and x.is_contiguous():
        return x
    if not x.mT.is_contiguous() or x.element_size() != 1:
        return x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, columns, tile = x.shape[-2], x.shape[-1], 128
    grid = (math.ceil(rows / tile) * math.ceil(columns / tile), math.prod(x.shape[:-2]))
    triton_kernels.transpose_kernel[grid](x.view(torch.uint8), out.view(torch.uint8), rows, columns, TILE=tile)
    return out


def _multiply(
    left: Tensor,
    right: Tensor,
    mac: MacUnit,
    instruction: TensorCoreInstruction,
    bias: Tensor | None,
    scales: tuple[Tensor, ...],
) -> Tensor:
    sizes = left.dtype, right.dtype, left.shape, right.shape, left.stride(), right.stride()
    shared = tuple((scale.shape, scale.stride()) for scale in scales)
    names = (id(mac), left.device.index, bias is None, shared, *sizes)
    key = aligned(names, (left, right, *scales) if bias is None else (left, right, bias, *scales))
    launch = launches.get(key)
    if launch is None:
        return _compile(left, right, mac, instruction, bias, scales, key)
    parts = torch.empty(launch.shape, device=left.device)
    launch.run(left, right, parts, bias, *(scales or _NO_SCALES), *launch.constants)
    return parts if parts.dim() == left.dim() else _add_chunks(parts, bias)


_NO_SCALES = (None, None)


def _compile(
    left: Tensor,
    right: Tensor,
    mac: MacUnit,
    instruction: TensorCoreInstruction,
    bias: Tensor | None,
    scales: tuple[Tensor, ...],
    key: tuple[Any, ...] | None,
) -> Tensor:
    """The product, whose kernel is kept under `key` for the next operands of the same sizes."""
    *leading, rows, depth = left.shape
    columns, matrices, stacks = right.shape[-1], math.prod(leading), leading[-1] if leading else 1
    shape = (*leading, rows, columns)
    if math.prod(shape) == 0 or depth == 0:
        out = torch.zeros(shape, device=left.device)
        return out if bias is None else out.copy_(bias)
    scale_strides = _scale_strides(*scales) if scales else (0, 0, 0, 0)
    is_scaled_by_chunk = bool(scale_strides[1] or scale_strides[2])
    outer = (0,) * (2 - len(leading))
    chunk = depth if instruction.is_fp8 or mac.chunk is None or is_scaled_by_chunk else min(mac.chunk, depth)
    splits = math.ceil(depth / chunk)
    parts = torch.empty(shape if splits == 1 else (splits, *shape), device=left.device)
    tile_rows, tile_columns, warps, stages = _tile(rows, columns, matrices * splits, instruction)
    tile_depth = mac.chunk if is_scaled_by_chunk and mac.chunk else _depth(instruction)
    even = not (rows % tile_rows or columns % tile_columns or chunk % tile_depth or depth % chunk)
    tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
    numbers = (
        rows, columns, depth, chunk, splits, stacks, *outer, *left.stride(), *outer, *right.stride(), math.prod(shape),
        rows * columns, *scale_strides,
    )  # fmt: skip
    constants = {
        "SCALES": 0 if not scales else 2 if is_scaled_by_chunk else 1, "HAS_BIAS": bias is not None and splits == 1,
        "PROMOTION": mac.chunk if instruction.is_fp8 else None, "EVEN": even, "ROWS": tile_rows,
        "COLUMNS": tile_columns, "DEPTH": tile_depth, "GROUP": GROUP,
    }  # fmt: skip
    grid = (tiles * matrices * splits, 1, 1)
    kernel = triton_kernels.dot_kernel[grid](
        left, right, parts, bias, *(scales or _NO_SCALES), *numbers, **constants, num_warps=warps, num_stages=stages,
        enable_fp_fusion=False,
    )  # fmt: skip
    remember(key, kernel, grid, (*numbers, *constants.values()), tuple(parts.shape))
    return parts if splits == 1 else _add_chunks(parts, bias)


def _scale_strides(left: Tensor, right: Tensor) -> tuple[int, ...]:
    """Distances of the scales of rows and of blocks, and of blocks and of columns; 0 where all share one."""
    strides = [
        [stride if size > 1 else 0 for size, stride in zip(scale.shape, scale.stride(), strict=True)] or [0, 0]
        for scale in (left, right)
    ]
    return (*strides[0], *strides[1])


def convolve(a: Any, b: Any, mac: MacUnit, bias: Tensor | None) -> Tensor | None:
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
    x = enter(patches.x, instructions[on_right])
    x = x if x.stride(1) == 1 else x.contiguous(memory_format=torch.channels_last)
    other = enter(other, instructions[not on_right])
    other = along_rows(other.mT).mT if instructions[0].is_fp8 else other
    groups, positions, taps = patches.shape
    rows, columns, depth = (other.shape[1], taps, positions) if on_right else (positions, other.shape[2], taps)
    channels = x.shape[1] // groups
    # A plain convolution's results are written with the channels of all groups side by side.
    shape = (groups, rows, columns) if on_right else (rows, groups, columns)
    if math.prod(shape) == 0 or depth == 0:
        out = torch.zeros(shape, device=x.device) if bias is None else bias.expand(shape).clone()
        return out if on_right else out.transpose(0, 1)
    is_fp8 = instructions[0].is_fp8
    chunk = depth if is_fp8 or mac.chunk is None else min(mac.chunk, depth)
    splits = math.ceil(depth / chunk)
    parts = torch.empty(shape if splits == 1 else (splits, *shape), device=x.device)
    tile_rows, tile_columns, warps, stages = _patch_tile(rows, columns, groups * splits, on_right)
    tile_depth = _depth(instructions[0])
    if on_right:
        tile_columns = math.gcd(channels, tile_columns) if channels % 32 == 0 else tile_columns
        is_uniform = channels % tile_columns == 0
    else:
        if channels % 32 == 0 and not is_fp8:  # FP8 sums are promoted once per tile
            tile_depth = math.gcd(channels, tile_depth)
        is_uniform = channels % tile_depth == 0
    tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
    outer, inner = (other.stride(1), other.stride(2)) if on_right else (other.stride(2), other.stride(1))
    triton_kernels.convolution_kernel[(tiles * groups * splits,)](
        x, other, parts, bias, rows, columns, depth, chunk, splits, channels, *x.shape[2:], *patches.positions[::-1],
        patches.kernel[1], *x.stride(), other.stride(0), outer, inner, math.prod(shape),
        rows * columns if on_right else columns, columns if on_right else groups * columns,
        *patches.step, *patches.padding, *patches.dilation, GAP_Y=patches.gap[0], GAP_X=patches.gap[1],
        ON_RIGHT=on_right, UNIFORM=is_uniform, HAS_BIAS=bias is not None and splits == 1,
        PROMOTION=mac.chunk if is_fp8 else None, ROWS=tile_rows, COLUMNS=tile_columns, DEPTH=tile_depth,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    out = parts if splits == 1 else _add_chunks(parts, bias)
    return out if on_right else out.transpose(0, 1)


def _add_chunks(parts: Tensor, bias: Tensor | None) -> Tensor:
    """The sums of chunks added up, with the bias."""
    out, block = torch.empty(parts.shape[1:], device=parts.device), 1024
    triton_kernels.add_chunks_kernel[(math.ceil(out.numel() / block),)](
        parts, out, bias, out.numel(), out.shape[-1], len(parts), HAS_BIAS=bias is not None, BLOCK=block
    )
    return out


def enter(x: Tensor, instruction: TensorCoreInstruction) -> Tensor:
    """An operand as the instruction reads it: in its type, or on tf32's grid, to which the hardware would truncate."""
    dtype = operand_type(instruction)
    if instruction.name == "tf32":
        return quantize(x, instruction.operand)
    return x if x.dtype is dtype else x.to(dtype)


def least_depth(instruction: TensorCoreInstruction) -> int:
    """Steps of the reduction of one instruction, at least."""
    return 32 if instruction.is_fp8 else 16


def _depth(instruction: TensorCoreInstruction) -> int:
    """Steps of the reduction per tile: 128 bytes of an operand."""
    return 128 if instruction.is_fp8 else 32 if instruction.name == "tf32" else 64


def _patch_tile(rows: int, columns: int, copies: int, on_right: bool) -> tuple[int, int, int, int]:
    """`_tile` for convolutions, as measured with those of ResNet-18."""
    if on_right:
        return (64, 64, 4, 3) if rows <= 64 else (128, 64, 4, 3)
    if columns <= 64:
        return 128, 64, 4, 3
    tiles = math.ceil(rows / 128) * math.ceil(columns / 128) * copies
    return (128, 128, 8, 3) if tiles >= 132 else (64, 128, 4, 2)


def _tile(rows: int, columns: int, copies: int, instruction: TensorCoreInstruction) -> tuple[int, int, int, int]:
    """Rows and columns of a program's outputs, its warps and stages: large tiles unless they leave the chip idle.

    FP8 sums are held twice, in the tensor core and promoted: larger tiles do not fit in registers.
    """
    large = (128, 128, 4, 3) if instruction.is_fp8 else (128, 256, 8, 3)
    for tile_rows, tile_columns, warps, stages in (large, (128, 128, 4, 4), (64, 128, 4, 4)):
        if math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns) * copies >= 132:
            return tile_rows, tile_columns, warps, stages
    return 64, 64, 4, 4
