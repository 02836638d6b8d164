"""`encode` and `decode`: values as the integer codes that hardware stores."""

from functools import lru_cache
from typing import TYPE_CHECKING

from presilicon.base.errors import FormatError
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.quantization import quantize
from presilicon.formats.rounding import Key, Rounding, Stochastic

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def encode(
    x: "Tensor", fmt: Format, *, rounding: Rounding | Stochastic | None = None, key: Key | None = None
) -> "Tensor":
    """The codes of `x` in `fmt`, quantised first: non-negative integers, sign bit on top.

    uint8 for codes of up to 8 bits, int32 up to 31 bits, int64 for 32. NaN has one code, that with the lowest bits
    set which the format calls NaN: IEEE formats give the quiet one.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> encode(torch.tensor([1.0, -1.5, float("inf")]), parse("e5m2"))
    tensor([ 60, 190, 124], dtype=torch.uint8)
    """
    match fmt:
        case Float():
            return _encode_float(quantize(x, fmt, rounding=rounding, key=key), fmt)
        case _:
            raise FormatError(f"{fmt}: this format has no codes")


def decode(codes: "Tensor", fmt: Format) -> "Tensor":
    """The float32 values of codes.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> decode(torch.tensor([60, 190, 124]), parse("e5m2"))
    tensor([ 1.0000, -1.5000,     inf])

    Raises `FormatError` for codes outside the format's width.
    """
    import torch

    match fmt:
        case Float():
            wide = codes.to(torch.int64)
            if wide.numel() and (int(wide.min()) < 0 or int(wide.max()) >= 2**fmt.bits):
                raise FormatError(
                    f"{fmt}: codes outside 0 to {2**fmt.bits - 1} in a tensor of shape {tuple(codes.shape)}"
                )
            return _decode_float(wide, fmt)
        case _:
            raise FormatError(f"{fmt}: this format has no codes")


def code_type(bits: int) -> "torch.dtype":
    """The torch type that holds codes of so many bits."""
    import torch

    return torch.uint8 if bits <= 8 else torch.int32 if bits <= 31 else torch.int64


@lru_cache(maxsize=256)
def special_codes(fmt: Float) -> tuple[int, int]:
    """The codes, without sign, of infinity and NaN; -1 where the format has none."""
    top = 2 ** (fmt.exponent + fmt.mantissa) - 1
    match fmt.specials:
        case "ieee":
            infinity = top - 2**fmt.mantissa + 1
            return infinity, infinity + 2 ** (fmt.mantissa - 1)
        case "fn":
            return -1, top
        case "fnuz":
            return -1, top + 1
        case "p3109":
            return top, top + 1
        case _:
            return -1, -1


def _encode_float(values: "Tensor", fmt: Float) -> "Tensor":
    import torch

    bits = values.to(torch.float32).view(torch.int32).to(torch.int64)
    sign = (bits < 0).to(torch.int64)
    magnitude = bits & 0x7FFFFFFF
    low = fmt.min_exponent + 127
    exponent = (magnitude >> 23).clamp(min=1)
    significand = (magnitude & 0x7FFFFF) | ((magnitude >> 23 > 0).to(torch.int64) << 23)
    top = exponent.clamp(min=low)
    code = (significand >> (23 - fmt.mantissa + top - exponent).clamp(max=62)) + ((top - low) << fmt.mantissa)
    infinity, nan = special_codes(fmt)
    code = torch.where(magnitude == 0x7F800000, infinity, code)
    one_nan = nan >= 2 ** (fmt.exponent + fmt.mantissa)
    code = torch.where(magnitude > 0x7F800000, nan, code)
    if one_nan:
        sign = torch.where(magnitude > 0x7F800000, 0, sign)
    return (code | (sign << (fmt.bits - 1))).to(code_type(fmt.bits))


def _decode_float(codes: "Tensor", fmt: Float) -> "Tensor":
    import torch

    magnitude = codes & (2 ** (fmt.bits - 1) - 1)
    negative = codes >= 2 ** (fmt.bits - 1)
    field = magnitude >> fmt.mantissa
    significand = (magnitude & (2**fmt.mantissa - 1)) | ((field > 0).to(torch.int64) << fmt.mantissa)
    scale = ((field.clamp(min=1) + (fmt.min_exponent - 1 - fmt.mantissa + 1023)) << 52).view(torch.float64)
    value = significand.to(torch.float64) * scale
    if not fmt.subnormals:
        value = torch.where(field == 0, 0.0, value)
    infinity, nan = special_codes(fmt)
    if infinity >= 0:
        value = torch.where(magnitude == infinity, torch.inf, value)
    value = torch.where(negative, -value, value)
    if fmt.specials in ("fnuz", "p3109"):
        value = torch.where(codes == nan, torch.nan, value)
    elif fmt.specials == "ieee":
        value = torch.where(magnitude > infinity, torch.nan, value)
    elif fmt.specials == "fn":
        value = torch.where(magnitude == nan, torch.nan, value)
    return value.to(torch.float32)
