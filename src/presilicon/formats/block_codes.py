"""Codes of formats whose numbers share exponents or scales."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from presilicon.formats.block import BlockFloat, Mx, Nvfp4
from presilicon.formats.fixed import Fixed, Integer
from presilicon.formats.float_codes import fixed_codes, fixed_values, float_codes, float_values
from presilicon.formats.grid import block_grid_of
from presilicon.formats.quantization import integer_scale, quantize
from presilicon.formats.scaled_blocks import ELEMENT_FORMAT, SCALE_FORMAT, block_scales
from presilicon.formats.torch_blocks import shared_exponents, to_groups
from presilicon.formats.torch_kernels import power_of_two

if TYPE_CHECKING:
    from presilicon.formats.rounding import Key, Rounding, Stochastic


@dataclass(frozen=True, slots=True, eq=False)
class BlockCodes:
    """What is stored of a tensor in a format with shared scales."""

    elements: Tensor
    """Codes of the elements, in the tensor's shape."""
    scales: Tensor
    """Codes of the groups' exponents or scales: the tensor's shape with the axis counted in groups and moved last
    (rows and columns of tiles for square groups). For scaled integers, the float32 scales themselves."""
    tensor_scale: float = 1.0
    """A factor of the whole tensor: the power of two of exponent code 0, or NVFP4's scale."""


def encode_blocks(
    x: Tensor, fmt: BlockFloat | Mx, rounding: "Rounding | Stochastic | None", key: "Key | None"
) -> BlockCodes:
    """The codes of a block format. MX scales are E8M0, 255 for NaN."""
    grid = block_grid_of(fmt)
    blocks, back = to_groups(x.to(torch.float64), fmt)
    exponents, flushed, special = shared_exponents(blocks, grid)
    lowest = _code_zero(exponents, fmt)
    values = quantize(x, fmt, rounding=rounding, key=key).to(torch.float64)
    units = to_groups(values, fmt)[0] / power_of_two(exponents).unsqueeze(-1)
    units = torch.where((special | flushed).unsqueeze(-1), torch.copysign(torch.zeros_like(units), units), units)
    scales = torch.where(special, 255, torch.where(flushed, 0, exponents - lowest))
    return BlockCodes(back(_unit_codes(units, fmt)), scales, float(2.0**lowest))


def decode_blocks(codes: BlockCodes, fmt: BlockFloat | Mx) -> Tensor:
    """The values of block codes, as float64."""
    elements, back = to_groups(codes.elements.to(torch.int64), fmt)
    lowest = torch.tensor(codes.tensor_scale, dtype=torch.float64).log2().to(torch.int64).to(elements.device)
    units = _unit_values(elements, fmt)
    values = units * power_of_two(codes.scales.to(torch.int64) + lowest).unsqueeze(-1)
    if isinstance(fmt, Mx):
        values = torch.where((codes.scales == 255).unsqueeze(-1), torch.nan, values)
    return back(values)


def _code_zero(exponents: Tensor, fmt: BlockFloat | Mx) -> int:
    """The exponent that the scale code 0 stands for."""
    if isinstance(fmt, Mx) or (fmt.top is None and fmt.exponent == 8):
        return -127
    span = (1 << fmt.exponent) - 1
    top = fmt.top if fmt.top is not None else int(exponents.max()) if exponents.numel() else 0
    return max(top - span, -127)


def _unit_codes(units: Tensor, fmt: BlockFloat | Mx) -> Tensor:
    if isinstance(fmt, BlockFloat):
        steps = (units.abs() * 2.0 ** (fmt.mantissa - 1)).to(torch.int64)
        return steps | (torch.signbit(units).to(torch.int64) << fmt.mantissa)
    element = fmt.element
    return fixed_codes(units, element) if isinstance(element, Fixed) else float_codes(units, element)


def _unit_values(codes: Tensor, fmt: BlockFloat | Mx) -> Tensor:
    if isinstance(fmt, BlockFloat):
        steps = (codes & ((1 << fmt.mantissa) - 1)).to(torch.float64) * 2.0 ** (1 - fmt.mantissa)
        return torch.where(codes >> fmt.mantissa == 1, -steps, steps)
    element = fmt.element
    return fixed_values(codes, element) if isinstance(element, Fixed) else float_values(codes, element)


def encode_nvfp4(x: Tensor, fmt: Nvfp4, rounding: "Rounding | Stochastic | None", key: "Key | None") -> BlockCodes:
    """Codes of NVFP4: fp4_e2m1 elements, e4m3fn scales."""
    scales, tensor = block_scales(x, fmt)
    values, back = to_groups(quantize(x, fmt, rounding=rounding, key=key).to(torch.float32), fmt)
    units = torch.round(values / (scales * tensor).unsqueeze(-1) * 2) / 2
    return BlockCodes(back(float_codes(units, ELEMENT_FORMAT)), float_codes(scales, SCALE_FORMAT), float(tensor))


def decode_nvfp4(codes: BlockCodes, fmt: Nvfp4) -> Tensor:
    """The values of NVFP4 codes, as float32."""
    elements, back = to_groups(codes.elements.to(torch.int64), fmt)
    scales = float_values(codes.scales.to(torch.int64), SCALE_FORMAT).to(torch.float32)
    whole = scales * torch.tensor(codes.tensor_scale, dtype=torch.float32, device=scales.device)
    return back(float_values(elements, ELEMENT_FORMAT).to(torch.float32) * whole.unsqueeze(-1))


def encode_integers(x: Tensor, fmt: Integer, rounding: "Rounding | Stochastic | None", key: "Key | None") -> BlockCodes:
    """Codes of scaled integers, with the scales that were used."""
    scale = integer_scale(x, fmt)
    return BlockCodes(fixed_codes(quantize(x / scale, fmt.codes, rounding=rounding, key=key), fmt.codes), scale)


def decode_integers(codes: BlockCodes, fmt: Integer) -> Tensor:
    """The values of scaled integers, as float32."""
    return fixed_values(codes.elements.to(torch.int64), fmt.codes).to(torch.float32) * codes.scales
