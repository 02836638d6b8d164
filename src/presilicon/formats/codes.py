"""`encode` and `decode`: values as the integer codes that hardware stores."""

from dataclasses import dataclass, replace

from presilicon.base import FormatError, torch
from presilicon.formats.format import Format
from presilicon.formats.quantization import check_input
from presilicon.formats.rounding import Key, Rounding, Stochastic, check_rounding


@dataclass(frozen=True, slots=True, eq=False)
class BlockCodes:
    """The codes of a tensor in a format with shared scales."""

    elements: "torch.Tensor"
    """Codes of the elements, in the tensor's shape."""
    scales: "torch.Tensor"
    """Codes of the groups' exponents or scales: the tensor's shape with the axis counted in groups and moved last
    (rows and columns of tiles for square groups). For scaled integers and floats, the float32 scales themselves."""
    tensor_scale: float = 1.0
    """A factor of the whole tensor: the power of two of exponent code 0, or NVFP4's scale."""


def encode(
    x: "torch.Tensor", fmt: Format, *, rounding: Rounding | Stochastic | None = None, key: Key | None = None
) -> "torch.Tensor | BlockCodes":
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
    x = check_input(x, fmt)
    mode = fmt.own_rounding if rounding is None else check_rounding(rounding)
    codes, dtype = fmt.encode_tensor(x, mode, key or Key()), code_type(fmt.bits)
    if isinstance(codes, BlockCodes):
        return replace(codes, elements=codes.elements.to(dtype))
    return codes.to(dtype)


def decode(codes: "torch.Tensor | BlockCodes", fmt: Format) -> "torch.Tensor":
    """The float32 values of codes.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> decode(torch.tensor([60, 190, 124]), parse("e5m2"))
    tensor([ 1.0000, -1.5000,     inf])

    Raises `FormatError` for codes outside the format's width, or of the wrong kind.
    """
    if fmt.has_shared_scales != isinstance(codes, BlockCodes):
        wanted = "the BlockCodes that encode gives" if fmt.has_shared_scales else "a tensor of codes"
        raise FormatError(f"{fmt}: decode needs {wanted}, not a {type(codes).__name__}")
    elements = codes.elements if isinstance(codes, BlockCodes) else codes
    if not isinstance(elements, torch.Tensor) or elements.is_floating_point() or elements.is_complex():
        kind = elements.dtype if isinstance(elements, torch.Tensor) else type(elements).__name__
        raise FormatError(f"{fmt}: codes must be a tensor of integers, not {kind}")
    wide = elements.to(torch.int64)
    most = (1 << fmt.bits) - 1
    if wide.numel() and (int(wide.min()) < 0 or int(wide.max()) > most):
        raise FormatError(f"{fmt}: codes must be from 0 to {most} in a tensor of shape {tuple(wide.shape)}")
    whole = replace(codes, elements=wide) if isinstance(codes, BlockCodes) else wide
    return fmt.decode_tensor(whole).to(torch.float32)


def code_type(bits: int) -> "torch.dtype":
    """The torch type that holds codes of so many bits."""
    return torch.uint8 if bits <= 8 else torch.int32 if bits <= 31 else torch.int64
