"""Posit codes and values, by integer arithmetic on tensors."""

import torch
from torch import Tensor

from presilicon.formats.posit import Posit
from presilicon.formats.rounding import Stochastic
from presilicon.formats.torch_kernels import power_of_two


def posit_codes(x: Tensor, fmt: Posit, mode: str | Stochastic, words: Tensor | None) -> Tensor:
    """The codes of `x` (float64) as int64: two's complement patterns of the format's width."""
    bits = x.abs().view(torch.int64)
    scale = (bits >> 52) - 1023
    regime = scale >> fmt.es
    largest = (1 << (fmt.bits - 1)) - 1
    payload = ((scale - (regime << fmt.es)) << 52) | (bits & ((1 << 52) - 1))

    # Regime: k + 1 ones and a zero, or -k zeros and a one; what it leaves holds exponent and fraction.
    inside = regime.clamp(-(fmt.bits - 2), fmt.bits - 3)
    length = torch.where(inside >= 0, inside + 2, 1 - inside)
    room = fmt.bits - 1 - length
    lead = torch.where(inside >= 0, (torch.ones_like(inside) << inside.clamp(min=0) + 2) - 2, 1)
    drop = (52 + fmt.es - room).clamp(0, 62)
    inner = (lead << room) | torch.where(
        room > 52 + fmt.es, payload << (room - 52 - fmt.es).clamp(min=0), payload >> drop
    )
    rest = payload & ((torch.ones_like(drop) << drop) - 1)

    too_large = scale >= (fmt.bits - 2) << fmt.es
    too_small = scale < -((fmt.bits - 2) << fmt.es)
    inner = torch.where(too_large, largest, torch.where(too_small, 0, inner))
    half = (torch.ones_like(drop) << drop) >> 1
    negative = x < 0
    match mode:
        case Stochastic():
            assert words is not None
            low, high = posit_values(inner, fmt), posit_values((inner + 1).clamp(max=largest), fmt)
            share = ((x.abs() - low) / (high - low)).nan_to_num(0.0, posinf=0.0).clamp(0.0, 1.0)
            away = torch.floor(share * 2.0**24).to(torch.int64) + (words >> 8) >= 1 << 24
        case "nearest-even":
            away = (rest > half) | ((rest == half) & (half > 0) & (inner % 2 == 1)) | too_small
        case "nearest-away":
            away = ((rest >= half) & (half > 0)) | too_small
        case "toward-zero":
            away = torch.zeros_like(negative)
        case "up":
            away = ~negative & ((rest > 0) | too_small)
        case _:
            away = negative & ((rest > 0) | too_small)
    code = inner + (away & ~too_large & (inner < largest)).to(torch.int64)
    code = torch.where(negative, (1 << fmt.bits) - code, code) & ((1 << fmt.bits) - 1)
    code = torch.where(x == 0, 0, code)
    return torch.where(torch.isfinite(x), code, 1 << (fmt.bits - 1))


def posit_values(codes: Tensor, fmt: Posit) -> Tensor:
    """The values of codes (int64) as float64."""
    sign = codes >> (fmt.bits - 1) & 1
    magnitude = torch.where(sign == 1, (1 << fmt.bits) - codes, codes)
    body = magnitude << (63 - fmt.bits)  # the regime's first bit is bit 61
    ones = body >> 61 & 1
    flipped = torch.where(ones == 1, ~body & ((1 << 62) - 1), body)
    run = _leading_zeros(flipped).clamp(max=fmt.bits - 1)
    regime = torch.where(ones == 1, run - 1, -run)
    tail = (body << (run + 1).clamp(max=62)) & ((1 << 62) - 1)
    exponent = tail >> (62 - fmt.es)
    fraction = (tail << fmt.es) & ((1 << 62) - 1)
    value = (1.0 + fraction.to(torch.float64) * 2.0**-62) * power_of_two((regime << fmt.es) + exponent)
    value = torch.where(magnitude == 0, 0.0, torch.where(sign == 1, -value, value))
    return torch.where(codes == 1 << (fmt.bits - 1), torch.nan, value)


def _leading_zeros(x: Tensor) -> Tensor:
    """Zeros above the highest set bit of a 62-bit number, from the exponent of its top 31 bits as a float64."""
    top = x >> 31
    return 30 - torch.where(top > 0, torch.frexp(top.to(torch.float64)).exponent.to(torch.int64) - 1, -1)
