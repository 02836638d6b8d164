"""What a format makes of single numbers: value, code, fields, error, neighbours."""

import math
from dataclasses import dataclass, replace

from presilicon.formats.block import BlockFloat, Mx, Nvfp4
from presilicon.formats.fixed import Fixed, Integer
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.listed import Logarithmic
from presilicon.formats.posit import Posit
from presilicon.formats.rounding import Key, Rounding, Stochastic
from presilicon.formats.user import UserFormat


@dataclass(frozen=True, slots=True)
class Field:
    """Some bits of a code: name and binary digits."""

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
    """The shared scale, in formats that have one; the numbers given together share groups."""


def describe(
    values: list[float],
    fmt: Format,
    rounding: Rounding | Stochastic | None = None,
    key: Key | None = None,
) -> list[Description]:
    """Each number in the format, for people to look at.

    In block formats the numbers form one row, grouped as the format says, whatever its axis; each is its own channel.

    >>> description = describe([1.1], Float(5, 2))[0]
    >>> description.value, description.bits, [f"{f.name}={f.bits}" for f in description.fields]
    (1.0, '00111100', ['sign=0', 'exponent=01111', 'mantissa=00'])
    >>> description.below, description.above
    (0.875, 1.25)
    """
    import torch

    from presilicon.formats.block_codes import BlockCodes
    from presilicon.formats.codes import code_bits, decode, encode
    from presilicon.formats.quantization import quantize

    if isinstance(fmt, BlockFloat | Mx | Nvfp4):
        fmt = fmt.along(-1)
    if isinstance(fmt, Integer):
        fmt = replace(fmt, axis=0)
    x = torch.tensor(values, dtype=torch.float64).to(torch.float32)
    quantised = quantize(x, fmt, rounding=rounding, key=key)
    codes = encode(x, fmt, rounding=rounding, key=key)
    grouped = isinstance(codes, BlockCodes)
    elements = (codes.elements if isinstance(codes, BlockCodes) else codes).tolist()
    width = code_bits(fmt)
    ordered = None if grouped else _ordered_values(fmt)
    described = []
    for i, (number, value, code) in enumerate(zip(x.tolist(), quantised.tolist(), elements, strict=True)):
        scale = _scale(codes, fmt, i) if isinstance(codes, BlockCodes) else None
        ladder = ordered if ordered is not None else _block_values(fmt, scale)
        below, above = _neighbours(value, ladder, fmt)
        described.append(
            Description(
                given=number,
                value=value,
                code=code,
                bits=f"{code:0{width}b}",
                fields=_fields(code, fmt),
                error=value - number,
                below=below,
                above=above,
                scale=scale,
            )
        )
    assert grouped or torch.equal(decode(codes, fmt).nan_to_num(7.0), quantised.nan_to_num(7.0))
    return described


def _fields(code: int, fmt: Format) -> tuple[Field, ...]:
    from presilicon.formats.codes import code_bits

    element = fmt.element if isinstance(fmt, Mx) else Float(2, 1, specials="none") if isinstance(fmt, Nvfp4) else fmt
    match element:
        case Float():
            widths = [("sign", 1), ("exponent", element.exponent), ("mantissa", element.mantissa)]
        case Fixed():
            widths = [("integer", element.integer), ("fraction", element.fraction)]
        case BlockFloat():
            widths = [("sign", 1), ("mantissa", element.mantissa)]
        case Logarithmic():
            widths = [("sign", 1), ("integer", element.integer), ("fraction", element.fraction)]
        case Posit():
            widths = _posit_widths(code, element)
        case UserFormat():
            widths = list(element.fields)
        case _:
            widths = [("code", code_bits(element))]
    digits = f"{code:0{code_bits(element)}b}"
    fields, place = [], 0
    for name, width in widths:
        if width:
            fields.append(Field(name, digits[place : place + width]))
        place += width
    return tuple(fields)


def _posit_widths(code: int, fmt: Posit) -> list[tuple[str, int]]:
    """Sign, regime (a run of equal bits and the one that ends it), exponent and fraction, as far as they fit."""
    after = f"{code:0{fmt.bits}b}"[1:]
    regime = min(len(after) - len(after.lstrip(after[0])) + 1, len(after))
    exponent = min(fmt.es, len(after) - regime)
    return [("sign", 1), ("regime", regime), ("exponent", exponent), ("fraction", len(after) - regime - exponent)]


def _scale(codes: object, fmt: Format, index: int) -> float:
    from presilicon.formats.block_codes import BlockCodes
    from presilicon.formats.float_codes import float_values
    from presilicon.formats.scaled_blocks import SCALE_FORMAT
    from presilicon.formats.torch_blocks import group_size

    assert isinstance(codes, BlockCodes)
    if isinstance(fmt, Integer):
        flat = codes.scales.reshape(-1)
        return float(flat[index if len(flat) > 1 else 0])
    assert isinstance(fmt, BlockFloat | Mx | Nvfp4)
    place = index // group_size(fmt)
    code = codes.scales.reshape(-1)[place]
    if isinstance(fmt, Nvfp4):
        return float(float_values(code.long(), SCALE_FORMAT).float() * codes.tensor_scale)
    if isinstance(fmt, Mx) and int(code) == 255:
        return float("nan")
    return float(2.0 ** int(code)) * codes.tensor_scale


def _ordered_values(fmt: Format) -> list[float] | None:
    """All finite values in ascending order, for formats of up to 16 bits."""
    import torch

    from presilicon.formats.codes import code_bits, decode

    if code_bits(fmt) > 16:
        return None
    codes = torch.arange(1 << code_bits(fmt))
    values = decode(codes, fmt)
    return sorted(set(values[torch.isfinite(values)].add(0.0).tolist()))


def _block_values(fmt: Format, scale: float | None) -> list[float] | None:
    if scale is None or scale != scale:
        return None
    match fmt:
        case BlockFloat():
            steps = range(-(1 << fmt.mantissa) + 1, 1 << fmt.mantissa) if fmt.mantissa <= 16 else None
            return None if steps is None else [n * scale * 2.0 ** (1 - fmt.mantissa) for n in steps]
        case Mx():
            units = _ordered_values(fmt.element)
        case Nvfp4():
            units = _ordered_values(Float(2, 1, specials="none"))
        case Integer():
            units = _ordered_values(fmt.codes)
        case _:
            units = None
    if units is None or isinstance(fmt, Mx):
        return None if units is None else [v * scale for v in units]
    import torch

    return (torch.tensor(units, dtype=torch.float32) * torch.tensor(scale, dtype=torch.float32)).tolist()


def _neighbours(value: float, ordered: list[float] | None, fmt: Format) -> tuple[float | None, float | None]:
    from bisect import bisect_left, bisect_right

    if value != value:
        return None, None
    if ordered is None:
        return _wide_neighbours(value, fmt)
    below, above = bisect_left(ordered, value), bisect_right(ordered, value)
    return ordered[below - 1] if below else None, ordered[above] if above < len(ordered) else None


def _wide_neighbours(value: float, fmt: Format) -> tuple[float | None, float | None]:
    """Neighbours in formats too wide to list: what rounding down and up gives just beside the value."""
    import torch

    from presilicon.formats.quantization import quantize

    if math.isinf(value) or isinstance(fmt, BlockFloat | Mx | Nvfp4 | Integer | UserFormat):
        return None, None
    beside = torch.tensor([value], dtype=torch.float64)
    ends = torch.tensor([math.inf], dtype=torch.float64)
    down = quantize(torch.nextafter(beside, -ends), fmt, rounding="down").item()
    up = quantize(torch.nextafter(beside, ends), fmt, rounding="up").item()
    inside = [None if math.isinf(v) or v == value else v for v in (down, up)]
    return inside[0], inside[1]
