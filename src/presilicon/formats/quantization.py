"""`quantize`: a tensor with every element on a format's values."""

from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from presilicon.base.errors import FormatError
from presilicon.formats.block import BlockFloat, Mx, Nvfp4
from presilicon.formats.fixed import Fixed, Integer
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.grid import Grid, grid_of
from presilicon.formats.listed import Logarithmic, Table
from presilicon.formats.posit import Posit
from presilicon.formats.rounding import Key, Rounding, Stochastic, check_rounding
from presilicon.formats.user import UserFormat

if TYPE_CHECKING:
    from torch import Tensor


def quantize(
    x: "Tensor",
    fmt: Format,
    *,
    rounding: Rounding | Stochastic | None = None,
    key: Key | None = None,
    out: "Tensor | None" = None,
) -> "Tensor":
    """`x` with every element rounded, once, to a value of `fmt`.

    Args:
        x: A float32 tensor of any shape and strides on the CPU or a CUDA device. float64 is rounded from its own
            value and gives float64; float16 and bfloat16 are widened exactly and give float32.
        fmt: The format, as `parse` gives it.
        rounding: A mode's name, or a `Stochastic` with its random bits and source. None is nearest-even, or a user
            format's own `convert`.
        key: Seed, step and tensor of stochastic rounding; None is `Key()`. The random word of an element depends on
            the key and its row-major index only.
        out: Where to write, of the result's shape and type; `out=x` works in place. Reusing an output saves more
            time than the arithmetic takes.

    Returns:
        `out`, or a new tensor. It carries no gradient: emulation adds its own.

    Raises:
        FormatError: An integer or complex tensor, a device that is neither CPU nor CUDA, an unfit `out`, a tensor
            that lacks a block format's axis.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> quantize(torch.tensor([1.1, 1.2, -70000.0, float("nan")]), parse("e5m2"))
    tensor([1.0000, 1.2500,   -inf,    nan])
    """
    mode = check_rounding(rounding)
    x = check_input(x, fmt)
    if out is not None:
        _check_output(out, x, fmt)
        out = out.detach()
    key = key or Key()
    if not isinstance(key, Key):
        raise FormatError(f"{fmt}: a key is a Key(seed, step, tensor), not {key!r}")
    match fmt:
        case Float():
            return _on_grid(x, grid_of(fmt), mode, key, out)
        case Fixed():
            return _fixed(x, fmt, mode, key, out)
        case BlockFloat() | Mx():
            return _blocks(x, fmt, mode, key, out)
        case Integer(scale=1.0):
            return _on_grid(x, grid_of(fmt.codes), mode, key, out)
    asked = None if rounding is None else mode
    passes = _listed_passes(x, mode)
    if passes is not None:
        result = _compiled(passes, x, fmt, asked, key, out)
        if result is not None:
            return result
    return _deliver(_composed(x, fmt, asked, key), out)


@lru_cache(maxsize=1)
def numba_is_here() -> bool:
    """Whether the compiled CPU kernels can be used; without Numba the torch ones do the same work slowly."""
    return find_spec("numba") is not None


@lru_cache(maxsize=1)
def triton_is_here() -> bool:
    """Whether the compiled GPU kernels can be used."""
    return find_spec("triton") is not None


def check_input(x: "Tensor", fmt: Format) -> "Tensor":
    """`x` as a strided tensor of float32 or float64 without gradient, or a `FormatError` that says what is wrong."""
    import torch

    if not isinstance(fmt, Format):
        raise FormatError(f"a format is needed, not {fmt!r}; try parse({fmt!r})")
    if not isinstance(x, torch.Tensor):
        raise FormatError(f"{fmt}: a torch tensor is needed, not {type(x).__name__}; try torch.as_tensor(...)")
    if x.device.type not in ("cpu", "cuda") or x.layout != torch.strided:
        place = f"on device {x.device}" if x.layout == torch.strided else f"of layout {x.layout}"
        raise FormatError(
            f"{fmt}: a tensor of shape {tuple(x.shape)} {place} cannot be quantised; "
            "allowed: strided tensors on cpu, cuda"
        )
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.detach().to(torch.float32)
    if x.dtype not in (torch.float32, torch.float64):
        raise FormatError(
            f"{fmt}: a tensor of shape {tuple(x.shape)} and type {x.dtype} cannot be quantised; "
            "allowed: float32, float64, float16, bfloat16; try x.float()"
        )
    return x.detach()


def _check_output(out: "Tensor", x: "Tensor", fmt: Format) -> None:
    if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device):
        raise FormatError(
            f"{fmt}: out is {tuple(out.shape)} {out.dtype} on {out.device}; "
            f"needed: {tuple(x.shape)} {x.dtype} on {x.device}"
        )


def _deliver(result: "Tensor", out: "Tensor | None") -> "Tensor":
    return result if out is None else out.copy_(result)


def _passes(x: "Tensor") -> ModuleType | None:
    """The compiled passes that take `x`; None where plain torch does the work, slowly."""
    import torch

    if x.dtype != torch.float32:
        return None
    if x.device.type == "cpu" and numba_is_here():
        from presilicon.formats import cpu_passes

        return cpu_passes
    if x.device.type == "cuda" and triton_is_here():
        from presilicon.formats import gpu_passes

        return gpu_passes
    return None


def _listed_passes(x: "Tensor", mode: str | Stochastic) -> ModuleType | None:
    """The compiled passes for lists of values and for scales that are numbers: those of the CPU."""
    if x.device.type != "cpu" or x.numel() == 0 or (isinstance(mode, Stochastic) and x.numel() > 2**32):
        return None
    return _passes(x)


def _compiled(
    passes: ModuleType, x: "Tensor", fmt: Format, asked: str | Stochastic | None, key: Key, out: "Tensor | None"
) -> "Tensor | None":
    """What `_composed` gives, by compiled passes; None where there is none for the format."""
    mode = check_rounding(None) if asked is None else asked
    result: Tensor
    match fmt:
        case Integer():
            axis = None if fmt.scale != "channel" or x.dim() == 0 else fmt.axis % x.dim()
            scale = integer_scale(x, fmt)
            result = passes.round_by_channel(x, scale, axis, grid_of(fmt.codes), mode, key, out)
        case Nvfp4():
            result = passes.round_nvfp4(x, fmt, _FP4, mode, key, out)
        case UserFormat() if fmt.convert is not None and asked is None:
            return None
        case Posit() | Logarithmic() | Table() | UserFormat() if fmt.bits <= 16:
            result = passes.round_steps(x, fmt, mode, key, out)
        case _:
            return None
    return result


def draw(x: "Tensor", mode: str | Stochastic, key: Key) -> "Tensor | None":
    """The random words of a tensor's elements, where the mode needs them."""
    from presilicon.formats.torch_kernels import random_words

    if not isinstance(mode, Stochastic):
        return None
    return random_words(key, mode, 0, x.numel(), x.device).view(x.shape)


def _on_grid(x: "Tensor", grid: Grid, mode: str | Stochastic, key: Key, out: "Tensor | None") -> "Tensor":
    passes = _passes(x)
    if passes is not None:
        result: Tensor = passes.round_elements(x, grid, mode, key, out)
        return result
    from presilicon.formats.torch_kernels import round_to_grid

    return _deliver(round_to_grid(x, grid, mode, draw(x, mode, key)), out)


def _fixed(x: "Tensor", fmt: Fixed, mode: str | Stochastic, key: Key, out: "Tensor | None") -> "Tensor":
    result = _on_grid(x, grid_of(fmt), mode, key, out)
    if fmt.overflow == "wrap":
        passes = _passes(x) if x.device.type == "cpu" else None
        if passes is not None:
            wrapped: Tensor = passes.wrap(result, fmt)
            return wrapped
        from presilicon.formats.torch_kernels import wrap

        return wrap(result, fmt.integer, fmt.signed)
    return result


def _blocks(x: "Tensor", fmt: BlockFloat | Mx, mode: str | Stochastic, key: Key, out: "Tensor | None") -> "Tensor":
    passes = _passes(x)
    if passes is not None and not (isinstance(mode, Stochastic) and x.numel() > 2**32):
        result: Tensor = passes.round_blocks(x, fmt, mode, key, out)
        return result
    from presilicon.formats import torch_blocks

    return _deliver(torch_blocks.round_blocks(x, fmt, mode, draw(x, mode, key)), out)


def _composed(x: "Tensor", fmt: Format, asked: str | Stochastic | None, key: Key) -> "Tensor":
    """Formats that are made of other steps than one pass; `asked` is None where no rounding was given."""
    import torch

    mode = check_rounding(None) if asked is None else asked
    match fmt:
        case Integer():
            scale = integer_scale(x, fmt)
            return _on_grid(x / scale, grid_of(fmt.codes), mode, key, None) * scale
        case Nvfp4():
            from presilicon.formats.scaled_blocks import round_scaled_blocks

            return round_scaled_blocks(x, fmt, lambda scaled: _on_grid(scaled, _FP4, mode, key, None))
        case Posit():
            from presilicon.formats.posit_codes import posit_codes, posit_values

            wide = x.to(torch.float64)
            return posit_values(posit_codes(wide, fmt, mode, draw(x, mode, key)), fmt).to(x.dtype)
        case UserFormat() if fmt.convert is not None and asked is None:
            from presilicon.formats.user_passes import user_codes, user_values

            return user_values(user_codes(x.to(torch.float64), fmt), fmt).to(x.dtype)
    from presilicon.formats.listing import round_to_list, value_list

    listed = value_list(fmt).on(x.device)
    places = round_to_list(x.to(torch.float64), listed, mode, draw(x, mode, key))
    values = torch.where(places < 0, torch.nan, listed.values[places.clamp(min=0)])
    return values.to(x.dtype)


_FP4 = grid_of(Float(2, 1, specials="none"))


def integer_scale(x: "Tensor", fmt: Integer) -> "Tensor":
    """The scale that an integer format uses for a tensor, in a shape that broadcasts over it."""
    import torch

    if not isinstance(fmt.scale, str):
        return torch.tensor(fmt.scale, dtype=torch.float32, device=x.device).to(x.dtype)
    whole = fmt.scale == "tensor" or x.dim() == 0
    if not whole and not -x.dim() <= fmt.axis < x.dim():
        raise FormatError(f"{fmt}: axis {fmt.axis} does not exist in a tensor of shape {tuple(x.shape)}")
    axis = None if whole else fmt.axis % x.dim()
    passes = _listed_passes(x, "nearest-even")
    if passes is not None:
        kept = [n if d == axis else 1 for d, n in enumerate(x.shape)]
        largest = passes.largest_by_channel(x, axis).view(() if whole else kept)
    else:
        magnitude = torch.where(torch.isfinite(x), x.abs(), 0.0)
        others = [d for d in range(x.dim()) if d != axis]
        if x.numel() == 0:
            largest = magnitude.new_zeros(()) if whole else magnitude
        else:
            largest = magnitude.amax(others, keepdim=not whole) if others else magnitude
    scale = (largest / fmt.codes.max).to(torch.float32).to(x.dtype)
    return torch.where(scale > 0, scale, 1.0)
