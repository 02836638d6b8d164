"""Descriptions of single numbers in a format: value, code, fields, error, neighbours."""

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from presilicon.base import torch
from presilicon.formats.codes import BlockCodes, decode, encode
from presilicon.formats.format import Format
from presilicon.formats.quantization import quantize
from presilicon.formats.rounding import Key, Rounding, Stochastic


@dataclass(frozen=True, slots=True)
class Field:
    """A bit field of a code: its name and binary digits."""

    name: str
    bits: str


@dataclass(frozen=True, slots=True)
class Description:
    """One number in a format."""

    given: float
    """The number, as float32."""
    value: float
    """Its value in the format."""
    code: int
    bits: str
    """The code in binary."""
    fields: tuple[Field, ...]
    error: float
    """Value minus number."""
    below: float | None
    """The nearest smaller value of the format; None where there is none."""
    above: float | None
    scale: float | None = None
    """The shared scale, in formats that have one; numbers described together share groups."""


def describe(
    values: list[float], fmt: Format, rounding: Rounding | Stochastic | None = None, key: Key | None = None
) -> list[Description]:
    """A description of each number in the format, for people to read.

    In block formats the numbers form one row, grouped as the format says, whatever its axis; in integers with a scale
    per channel each number is its own channel.

    >>> from presilicon.formats import Float
    >>> description = describe([1.1], Float(5, 2))[0]
    >>> description.value, description.bits, [f"{f.name}={f.bits}" for f in description.fields]
    (1.0, '00111100', ['sign=0', 'exponent=01111', 'mantissa=00'])
    >>> description.below, description.above
    (0.875, 1.25)
    """
    fmt = fmt.as_row()
    x = torch.tensor(values, dtype=torch.float64).to(torch.float32)
    quantised = quantize(x, fmt, rounding=rounding, key=key)
    codes = encode(x, fmt, rounding=rounding, key=key)
    if isinstance(codes, BlockCodes):
        scales: list[float | None] = [fmt.shared_scale(codes, i) for i in range(len(values))]
        elements = codes.elements.tolist()
    else:
        assert torch.equal(decode(codes, fmt).nan_to_num(7.0), quantised.nan_to_num(7.0))
        scales, elements = [None] * len(values), codes.tolist()
    ladders = {scale: _ladder(fmt, scale) for scale in set(scales)}
    described = []
    for number, value, code, scale in zip(x.tolist(), quantised.tolist(), elements, scales, strict=True):
        below, above = _neighbours(value, ladders[scale], fmt)
        described.append(
            Description(
                given=number,
                value=value,
                code=code,
                bits=f"{code:0{fmt.bits}b}",
                fields=_fields(code, fmt),
                error=value - number,
                below=below,
                above=above,
                scale=scale,
            )
        )
    return described


def special_results(fmt: Format) -> tuple[float, float, float]:
    """The values of infinity, -infinity and NaN in a format, each alone in its block.

    >>> from presilicon.formats import parse
    >>> special_results(parse("e5m2")), special_results(parse("e4m3fn")), special_results(parse("fp4_e2m1"))
    ((inf, -inf, nan), (nan, nan, nan), (6.0, -6.0, 0.0))
    """
    results = (quantize(torch.tensor([value]), fmt.as_row()).item() for value in (math.inf, -math.inf, math.nan))
    up, down, nan = results
    return up, down, nan


def _fields(code: int, fmt: Format) -> tuple[Field, ...]:
    digits = f"{code:0{fmt.bits}b}"
    fields, start = [], 0
    for name, width in fmt.code_fields(code):
        if width:
            fields.append(Field(name, digits[start : start + width]))
        start += width
    return tuple(fields)


def _ladder(fmt: Format, scale: float | None) -> list[float] | None:
    """All values in ascending order; None if they are too many to list, or all NaN."""
    from presilicon.formats.kernels.value_lists import ordered_values

    if scale is None:
        return ordered_values(fmt)
    return None if math.isnan(scale) else fmt.values_at_scale(scale)


def _neighbours(value: float, ordered: list[float] | None, fmt: Format) -> tuple[float | None, float | None]:
    if math.isnan(value):
        return None, None
    if ordered is None:
        return _wide_neighbours(value, fmt)
    below, above = bisect_left(ordered, value), bisect_right(ordered, value)
    return ordered[below - 1] if below else None, ordered[above] if above < len(ordered) else None


def _wide_neighbours(value: float, fmt: Format) -> tuple[float | None, float | None]:
    """Neighbours in formats too wide to list, by rounding down and up from just beside the value."""
    if math.isinf(value) or not fmt.has_exact_steps:
        return None, None
    beside = torch.tensor([value], dtype=torch.float64)
    infinity = torch.tensor([math.inf], dtype=torch.float64)
    down = quantize(torch.nextafter(beside, -infinity), fmt, rounding="down").item()
    up = quantize(torch.nextafter(beside, infinity), fmt, rounding="up").item()
    neighbours = [None if math.isinf(v) or v == value else v for v in (down, up)]
    return neighbours[0], neighbours[1]
