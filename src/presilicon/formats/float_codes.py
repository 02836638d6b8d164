"""Codes of floating-point and fixed-point values, by integer arithmetic on tensors."""

from functools import lru_cache

import torch
from torch import Tensor

from presilicon.formats.fixed import Fixed
from presilicon.formats.float import Float


@lru_cache(maxsize=256)
def special_codes(fmt: Float) -> tuple[int, int]:
    """The codes of infinity (without sign) and of NaN; -1 where the format has none."""
    top = (1 << fmt.exponent + fmt.mantissa) - 1
    match fmt.specials:
        case "ieee":
            infinity = top - (1 << fmt.mantissa) + 1
            return infinity, infinity + (1 << fmt.mantissa - 1)
        case "fn":
            return -1, top
        case "fnuz":
            return -1, top + 1
        case "p3109":
            return top, top + 1
        case _:
            return -1, -1


def float_codes(values: Tensor, fmt: Float) -> Tensor:
    """The codes of values of the format, as int64."""
    bits = values.to(torch.float32).view(torch.int32).to(torch.int64)
    magnitude = bits & 0x7FFFFFFF
    low = fmt.min_exponent + 127
    exponent = (magnitude >> 23).clamp(min=1)
    significand = (magnitude & 0x7FFFFF) | ((magnitude >> 23 > 0).to(torch.int64) << 23)
    top = exponent.clamp(min=low)
    code = (significand >> (23 - fmt.mantissa + top - exponent).clamp(max=62)) + ((top - low) << fmt.mantissa)
    infinity, nan = special_codes(fmt)
    code = torch.where(magnitude == 0x7F800000, infinity, code)
    code = code | ((bits < 0).to(torch.int64) << (fmt.bits - 1))
    return torch.where(magnitude > 0x7F800000, nan, code)


def float_values(codes: Tensor, fmt: Float) -> Tensor:
    """The values of codes (int64), as float64."""
    magnitude = codes & ((1 << fmt.bits - 1) - 1)
    field = magnitude >> fmt.mantissa
    significand = (magnitude & ((1 << fmt.mantissa) - 1)) | ((field > 0).to(torch.int64) << fmt.mantissa)
    scale = ((field.clamp(min=1) + (fmt.min_exponent - 1 - fmt.mantissa + 1023)) << 52).view(torch.float64)
    value = significand.to(torch.float64) * scale
    if not fmt.subnormals:
        value = torch.where(field == 0, 0.0, value)
    infinity, nan = special_codes(fmt)
    if infinity >= 0:
        value = torch.where(magnitude == infinity, torch.inf, value)
    value = torch.where(codes >> (fmt.bits - 1) == 1, -value, value)
    match fmt.specials:
        case "ieee":
            return torch.where(magnitude > infinity, torch.nan, value)
        case "fn":
            return torch.where(magnitude == nan, torch.nan, value)
        case "none":
            return value
    return torch.where(codes == nan, torch.nan, value)


def fixed_codes(values: Tensor, fmt: Fixed) -> Tensor:
    """The two's complement codes of values of the format, as int64."""
    return (values.to(torch.float64) / fmt.step).to(torch.int64) & ((1 << fmt.bits) - 1)


def fixed_values(codes: Tensor, fmt: Fixed) -> Tensor:
    """The values of codes (int64), as float64."""
    negative = (codes >> (fmt.bits - 1) == 1) & fmt.signed
    return torch.where(negative, codes - (1 << fmt.bits), codes).to(torch.float64) * fmt.step
