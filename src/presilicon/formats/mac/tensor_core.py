"""The tensor cores of NVIDIA's Hopper GPUs as MAC units, instruction by instruction.

An instruction multiplies exactly, aligns its products and the running sum to the largest exponent among them, cuts them
toward zero and adds: 25 bits below that exponent and a float32 sum for bf16, fp16 and tf32 operands, 13 bits and a sum
of 13 mantissa bits for FP8 (`wgmma`). A kernel feeds instructions along the reduction axis one after another. FP8 sums
are moved to float32 sums ("promoted") every so many products, as CUTLASS and DeepSeek-V3 do. Long reductions are split
in chunks whose sums are added in float32, one after another.

The figures are those of MMA-Sim (P. Xie et al., 2025), and an H200 agrees: benchmarks/tensor_cores.py compares 10^9 dot
products per instruction.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from presilicon.base import FormatError, torch
from presilicon.formats.families.block import PowerBlocks
from presilicon.formats.families.float import Float
from presilicon.formats.format import Format
from presilicon.formats.kernels.passes import has_triton
from presilicon.formats.mac.factored import block_of, code_format
from presilicon.formats.mac.unit import FLOAT32, MacUnit

if TYPE_CHECKING:
    from presilicon.formats.rounding import Key, Rounding, Stochastic

_HOPPER = (9, 0)
SPLIT = 4096
"""Products per chunk of a long reduction."""
PROMOTION = 128
"""Products whose FP8 sum is kept in the tensor core."""

_FP8_SUM = Float(8, 13)


class TensorCoreInstruction(NamedTuple):
    """A kind of operand that the tensor core multiplies."""

    name: str
    operand: Float
    width: int
    """Products that are added at once."""
    align_bits: int
    is_fp8: bool = False


INSTRUCTIONS: tuple[TensorCoreInstruction, ...] = (
    TensorCoreInstruction("e4m3", Float(4, 3, specials="fn"), 32, 13, True),
    TensorCoreInstruction("e5m2", Float(5, 2), 32, 13, True),
    TensorCoreInstruction("bf16", Float(8, 7), 16, 25),
    TensorCoreInstruction("fp16", Float(5, 10), 16, 25),
    TensorCoreInstruction("tf32", Float(8, 10), 8, 25),
)
"""The instructions of a Hopper GPU, the narrowest operands first."""


@lru_cache(maxsize=256)
def tensor_core(
    left: Format,
    right: Format,
    *,
    split: int | None = SPLIT,
    promotion: int | None = PROMOTION,
    accumulate: Format = FLOAT32,
    rounding: str = "nearest-even",
) -> MacUnit:
    """The unit that multiplies numbers of two formats on a Hopper GPU.

    Two FP8 formats have an instruction of their own; other pairs take the narrowest of bf16, fp16 and tf32 that holds
    both exactly. `split` and `promotion` are the products per chunk and per FP8 sum; None does neither. The sums of
    chunks are added in the format `accumulate`, with `rounding`. Of formats with float32 scales the unit multiplies the
    codes (see `Factored`), and a chunk is a block that shares a scale.

    >>> from presilicon.formats import parse
    >>> str(tensor_core(parse("bfloat16"), parse("e4m3fn"), split=None))
    'float32, aligned(width=16, align_bits=25), operands bfloat16 by bfloat16, toward-zero'

    Raises:
        FormatError: no instruction holds both formats, or there are no chunks whose sums could be rounded.
    """
    blocks = {block_of(fmt) for fmt in (left, right)} - {0}
    if len(blocks) > 1:
        raise FormatError(f"no tensor core scales the sums of {left} by {right}: their blocks differ")
    if blocks:
        split = promotion = blocks.pop()
    left, right = code_format(left) or left, code_format(right) or right
    one, other = instruction_of(left), instruction_of(right)
    if one.is_fp8 != other.is_fp8 or (not one.is_fp8 and one != other):
        shared = [entry for entry in INSTRUCTIONS if not entry.is_fp8 and holds(entry, left) and holds(entry, right)]
        if not shared:
            raise FormatError(f"no instruction of a tensor core holds both {left} and {right}")
        one = other = shared[0]
    sums: dict[str, Any] = {
        "width": one.width,
        "align_bits": one.align_bits,
        "left": one.operand,
        "right": other.operand,
    }
    partial, chunk = (_FP8_SUM, promotion) if one.is_fp8 else (FLOAT32, split)
    if chunk is None:
        if (accumulate, rounding) != (FLOAT32, "nearest-even"):
            name = "promotion" if one.is_fp8 else "split"
            raise FormatError(f"accumulate and rounding are those of the sums of chunks, which need {name}, as 64")
        return MacUnit(order="aligned", accumulate=partial, rounding="toward-zero", **sums)
    sums |= {"partial": partial, "partial_rounding": "toward-zero", "chunk": chunk}
    return MacUnit(order="aligned", accumulate=accumulate, rounding=rounding, **sums)


@lru_cache(maxsize=32)
def has_tensor_cores(device: "torch.device") -> bool:
    """Whether a device has the tensor cores that are modelled."""
    return device.type == "cuda" and has_triton() and torch.cuda.get_device_capability(device) == _HOPPER


def typed_operand(
    x: "torch.Tensor", fmt: Format, mode: "Rounding | Stochastic | None", key: "Key | None"
) -> "torch.Tensor | None":
    """A tensor on a GPU with tensor cores in a format, as numbers of the type that they read.

    None if no instruction holds the format, or only tf32, whose operands are float32.
    """
    from presilicon.formats.mac import tensor_core_gpu

    return tensor_core_gpu.typed_operand(x, fmt, mode, key)


def instruction_of(fmt: Format) -> TensorCoreInstruction:
    """The instruction with the narrowest operands that hold every number of a format exactly.

    Raises:
        FormatError: there is none.
    """
    for instruction in INSTRUCTIONS:
        if holds(instruction, fmt):
            return instruction
    raise FormatError(
        f"no instruction of a tensor core holds {fmt}: it has {fmt.significand_bits} significant bits, and tf32 has 11"
    )


@lru_cache(maxsize=1024)
def holds(instruction: TensorCoreInstruction, fmt: Format) -> bool:
    """Whether an instruction's operands have every finite number of a format.

    Those of a block format with power-of-two scales are held down to the smallest numbers of bf16 and tf32.
    """
    grid, operand = fmt.grid(), instruction.operand
    if isinstance(fmt, PowerBlocks):  # scales move numbers through the whole range of float32
        return operand.exponent == 8 and fmt.unit_format().significand_bits <= operand.significand_bits
    if grid is None or fmt.is_blocked:
        return False
    own = operand.grid()
    assert own is not None
    last, its_last = grid.low - grid.mantissa, own.low - own.mantissa
    largest = max(grid.max_positive, grid.max_negative)
    return grid.mantissa <= own.mantissa and last >= its_last and largest <= own.max_positive
