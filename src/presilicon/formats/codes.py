"""`encode` and `decode`: values as the integer codes that hardware stores."""

from typing import TYPE_CHECKING

from presilicon.base.errors import FormatError
from presilicon.formats.block import BlockFloat, Mx, Nvfp4
from presilicon.formats.fixed import Fixed, Integer
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.listed import Logarithmic
from presilicon.formats.posit import Posit
from presilicon.formats.quantization import draw, integer_scale, quantize
from presilicon.formats.rounding import Key, Rounding, Stochastic, check_rounding
from presilicon.formats.user import UserFormat

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from presilicon.formats.block_codes import BlockCodes


def encode(
    x: "Tensor", fmt: Format, *, rounding: Rounding | Stochastic | None = None, key: Key | None = None
) -> "Tensor | BlockCodes":
    """The codes of `x` in `fmt`, quantised first: non-negative integers with the sign bit on top.

    A tensor of `x`'s shape: uint8 for codes of up to 8 bits, int32 up to 31 bits, int64 for 32. Formats with shared
    exponents or scales that depend on the data give a `BlockCodes`: elements, scales, tensor scale. NaN has one code:
    the quiet, positive one in IEEE formats.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> encode(torch.tensor([1.0, -1.5, float("inf")]), parse("e5m2"))
    tensor([ 60, 190, 124], dtype=torch.uint8)
    >>> blocks = encode(torch.tensor([1.0, 0.5, -3.0]), parse("bfp(4)"))
    >>> blocks.elements.tolist(), blocks.scales.tolist()
    ([4, 2, 28], [128])
    """
    from dataclasses import replace

    from presilicon.formats import block_codes
    from presilicon.formats.quantization import check_input

    x = check_input(x, fmt)
    match fmt:
        case BlockFloat() | Mx():
            blocks = block_codes.encode_blocks(x, fmt, rounding, key)
        case Nvfp4():
            blocks = block_codes.encode_nvfp4(x, fmt, rounding, key)
        case Integer() if isinstance(fmt.scale, str):
            blocks = block_codes.encode_integers(x, fmt, rounding, key)
        case _:
            return _element_codes(x, fmt, rounding, key).to(code_type(code_bits(fmt)))
    return replace(blocks, elements=blocks.elements.to(code_type(code_bits(fmt))))


def decode(codes: "Tensor | BlockCodes", fmt: Format) -> "Tensor":
    """The float32 values of codes.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> decode(torch.tensor([60, 190, 124]), parse("e5m2"))
    tensor([ 1.0000, -1.5000,     inf])

    Raises `FormatError` for codes outside the format's width, or of the wrong kind.
    """
    import torch

    from presilicon.formats import block_codes

    grouped = isinstance(fmt, BlockFloat | Mx | Nvfp4) or (isinstance(fmt, Integer) and isinstance(fmt.scale, str))
    if grouped != isinstance(codes, block_codes.BlockCodes):
        raise FormatError(
            f"{fmt}: decode needs {'the BlockCodes that encode gives' if grouped else 'a tensor of codes'}"
        )
    elements = codes.elements if isinstance(codes, block_codes.BlockCodes) else codes
    if not isinstance(elements, torch.Tensor) or elements.is_floating_point() or elements.is_complex():
        given = elements.dtype if isinstance(elements, torch.Tensor) else type(elements).__name__
        raise FormatError(f"{fmt}: codes are a tensor of integers, not {given}")
    wide = elements.to(torch.int64)
    most = (1 << code_bits(fmt)) - 1
    if wide.numel() and (int(wide.min()) < 0 or int(wide.max()) > most):
        raise FormatError(f"{fmt}: codes outside 0 to {most} in a tensor of shape {tuple(wide.shape)}")
    if not isinstance(codes, block_codes.BlockCodes):
        return _element_values(wide, fmt).to(torch.float32)
    match fmt:
        case BlockFloat() | Mx():
            return block_codes.decode_blocks(codes, fmt).to(torch.float32)
        case Nvfp4():
            return block_codes.decode_nvfp4(codes, fmt)
        case _:
            assert isinstance(fmt, Integer)
            return block_codes.decode_integers(codes, fmt)


def code_bits(fmt: Format) -> int:
    """The width of an element's code."""
    return int(fmt.bits)  # type: ignore[attr-defined]


def code_type(bits: int) -> "torch.dtype":
    """The torch type that holds codes of so many bits."""
    import torch

    return torch.uint8 if bits <= 8 else torch.int32 if bits <= 31 else torch.int64


def _element_codes(x: "Tensor", fmt: Format, rounding: "Rounding | Stochastic | None", key: Key | None) -> "Tensor":
    import torch

    from presilicon.formats import float_codes

    mode = check_rounding(rounding)
    match fmt:
        case Float():
            return float_codes.float_codes(quantize(x, fmt, rounding=rounding, key=key), fmt)
        case Fixed():
            return float_codes.fixed_codes(quantize(x, fmt, rounding=rounding, key=key), fmt)
        case Integer():
            steps = x / integer_scale(x, fmt)
            return float_codes.fixed_codes(quantize(steps, fmt.codes, rounding=rounding, key=key), fmt.codes)
        case Posit():
            from presilicon.formats.posit_codes import posit_codes

            return posit_codes(x.detach().to(torch.float64), fmt, mode, draw(x, mode, key or Key()))
        case UserFormat() if fmt.convert is not None and rounding is None:
            from presilicon.formats.user_passes import user_codes

            return user_codes(x.to(torch.float64), fmt)
    from presilicon.formats.listing import round_to_list, value_list

    listed = value_list(fmt).on(x.device)
    places = round_to_list(x.detach().to(torch.float64), listed, mode, draw(x, mode, key or Key()))
    return torch.where(places < 0, listed.nan_code, listed.codes[places.clamp(min=0)])


def _element_values(codes: "Tensor", fmt: Format) -> "Tensor":
    import torch

    from presilicon.formats import float_codes

    match fmt:
        case Float():
            return float_codes.float_values(codes, fmt)
        case Fixed():
            return float_codes.fixed_values(codes, fmt)
        case Integer():
            steps = float_codes.fixed_values(codes, fmt.codes).to(torch.float32)
            return steps * integer_scale(steps, fmt)
        case Posit():
            from presilicon.formats.posit_codes import posit_values

            return posit_values(codes, fmt)
        case UserFormat():
            from presilicon.formats.user_passes import user_values

            return user_values(codes, fmt)
    from presilicon.formats.listing import value_list

    listed = value_list(fmt).on(codes.device)
    spare = 0.0 if isinstance(fmt, Logarithmic) else torch.nan
    values = torch.full((1 << code_bits(fmt),), spare, dtype=torch.float64, device=codes.device)
    values[listed.codes] = listed.values
    return values[codes]
