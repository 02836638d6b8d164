"""Matrix products on the tensor cores of a Hopper GPU whose sums are rounded at chunk boundaries."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from presilicon.formats.mac import gpu, triton_kernels
from presilicon.formats.mac.plan import MacPlan
from presilicon.formats.mac.tensor_core import INSTRUCTIONS, TensorCoreInstruction, tensor_core
from presilicon.formats.mac.tensor_core_gpu import GROUP, along_rows, enter, least_depth
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.rounding import Key, Stochastic

TILES = ((128, 64, 4, 3), (64, 64, 4, 3))
"""Rows and columns of outputs per program, warps and stages; the first that keeps the chip busy."""


@lru_cache(maxsize=256)
def chunk_instructions(mac: MacUnit) -> tuple[TensorCoreInstruction, TensorCoreInstruction] | None:
    """The operands of a unit whose sums within chunks are those of an instruction; None for all others."""
    left, right = (next((i for i in INSTRUCTIONS if i.operand == fmt), None) for fmt in (mac.left, mac.right))
    if left is None or right is None or mac.chunk is None or mac.chunk % least_depth(left):
        return None
    if isinstance(mac.rounding_mode, Stochastic) and mac.rounding_mode.source == "lfsr":
        return None
    unit = tensor_core(
        left.operand,
        right.operand,
        split=mac.chunk,
        promotion=mac.chunk,
        accumulate=mac.accumulate,
        rounding=mac.rounding,
    )
    return (left, right) if mac == unit else None


def multiply(a: Tensor, b: Tensor, mac: MacUnit, plan: MacPlan, key: Key) -> Tensor | None:
    """The product of (batches, M, K) and (batches, K, N) tensors: an instruction's sums, rounded chunk by chunk.

    None if no instruction adds up as the unit does within its chunks.
    """
    instructions = chunk_instructions(mac)
    if instructions is None:
        return None
    left, right = enter(a, instructions[0]), enter(b, instructions[1])
    if instructions[0].operand.bits != 16:  # only 16-bit operands may lie along rows or columns
        left, right = along_rows(left), along_rows(right.mT).mT
    batches, rows, depth = left.shape
    columns = right.shape[2]
    out = torch.empty(batches, rows, columns, device=a.device)
    if out.numel() == 0 or depth == 0:
        return out.zero_()
    assert mac.chunk is not None
    step = _depth(mac.chunk, instructions[0])
    join = gpu.join_of(plan, out.numel() >= 2**32)
    tile_rows, tile_columns, warps, stages = _tile(rows, columns, batches, join["JOIN"] in (1, 2))
    even = not (rows % tile_rows or columns % tile_columns or depth % mac.chunk)
    tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
    keys = gpu.keys_of(plan, key, out.numel() * plan.rounding_count(depth), a.device)
    triton_kernels.chunk_kernel[(tiles * batches,)](
        left, right, out, keys, len(keys) - 1, *gpu.grids_of(plan, a.device), rows, columns, depth, out.numel(),
        *left.stride(), *right.stride(), **join, WIDTH=instructions[0].width, STEPS=mac.chunk // step,
        EVEN=even, ROWS=tile_rows, COLUMNS=tile_columns, DEPTH=step, GROUP=GROUP, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def _depth(chunk: int, instruction: TensorCoreInstruction) -> int:
    """Steps of the reduction per tile: at most 128 bytes of an operand, and a divisor of the chunk."""
    most = 128 if instruction.is_fp8 else 32 if instruction.name == "tf32" else 64
    return math.gcd(chunk, most)


def _tile(rows: int, columns: int, batches: int, is_short: bool) -> tuple[int, int, int, int]:
    """A tile that keeps the chip busy and, unless chunks are joined by a short way, leaves registers for it."""
    for tile in TILES if is_short else TILES[-1:]:
        if math.ceil(rows / tile[0]) * math.ceil(columns / tile[1]) * batches >= 132:
            return tile
    return TILES[-1]
