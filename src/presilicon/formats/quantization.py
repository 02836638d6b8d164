"""`quantize`: a tensor with every element rounded to a value of a format; `quantize_all_`: many tensors."""

from collections.abc import Sequence

from presilicon.base import FormatError, torch
from presilicon.formats.format import Format
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.passes import lists_for
from presilicon.formats.rounding import Key, Rounding, Stochastic, check_rounding


def quantize(
    x: "torch.Tensor",
    fmt: Format,
    *,
    rounding: Rounding | Stochastic | None = None,
    key: Key | None = None,
    out: "torch.Tensor | None" = None,
) -> "torch.Tensor":
    """`x` with every element rounded, once, to a value of `fmt`.

    Args:
        x: A float32 tensor of any shape and strides on the CPU or a CUDA device. float64 is rounded from its own
            value and gives float64; float16 and bfloat16 are widened exactly and give float32.
        fmt: The format, as `parse` gives it.
        rounding: A mode's name, or a `Stochastic` with its random bits and source. None is nearest-even, or a user
            format's own `convert`.
        key: Seed, step and tensor of stochastic rounding; None is `Key()`. The random word of an element depends on
            the key and its row-major index only.
        out: A tensor of the result's shape and type to write to; `out=x` works in place. Reusing an output saves more
            time than the arithmetic takes.

    Returns:
        `out`, or a new tensor. It carries no gradient: emulation adds its own.

    Raises:
        FormatError: An integer or complex tensor, a device that is neither CPU nor CUDA, an `out` that does not fit, a
            tensor without the block format's axis.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> quantize(torch.tensor([1.1, 1.2, -70000.0, float("nan")]), parse("e5m2"))
    tensor([1.0000, 1.2500,   -inf,    nan])
    """
    x = check_input(x, fmt)
    mode = fmt.own_rounding if rounding is None else check_rounding(rounding)
    if out is not None:
        _check_output(out, x, fmt)
        out = out.detach()
    key = key or Key()
    if not isinstance(key, Key):
        raise FormatError(f"{fmt}: key must be a Key(seed, step, tensor), not {key!r}")
    return fmt.round_tensor(x, mode, key, out)


def quantize_all_(
    tensors: "Sequence[torch.Tensor]",
    fmt: Format,
    *,
    rounding: Rounding | Stochastic | None = None,
    keys: Sequence[Key] | None = None,
) -> None:
    """Round tensors in place, each as `quantize(x, fmt, rounding=rounding, key=key, out=x)` does.

    On a GPU, a format without shared scales takes one launch for all row-major float32 tensors.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> weights = [torch.tensor([1.1]), torch.tensor([1.2, 3.3])]
    >>> quantize_all_(weights, parse("e5m2"))
    >>> weights
    [tensor([1.]), tensor([1.2500, 3.5000])]
    """
    mode = fmt.own_rounding if rounding is None else check_rounding(rounding)
    keys = keys or [Key()] * len(tensors)
    in_lists = lists_for(tensors, fmt)
    for device in {tensors[index].device for index in in_lists}:
        from presilicon.formats.kernels.gpu_passes import round_list

        chosen = [index for index in sorted(in_lists) if tensors[index].device == device]
        round_list([tensors[index] for index in chosen], grid_of(fmt), mode, [keys[index] for index in chosen])
    for index, (x, key) in enumerate(zip(tensors, keys, strict=True)):
        if index not in in_lists:
            quantize(x, fmt, rounding=rounding, key=key, out=x)


def check_input(x: "torch.Tensor", fmt: Format) -> "torch.Tensor":
    """`x` as float32 or float64 without gradient. Raises `FormatError` for a tensor that cannot be quantised."""
    if not isinstance(fmt, Format):
        raise FormatError(f"the format must be a Format, not {fmt!r}; try parse({fmt!r})")
    if not isinstance(x, torch.Tensor):
        raise FormatError(f"{fmt}: x must be a torch tensor, not {type(x).__name__}; try torch.as_tensor(...)")
    if x.device.type not in ("cpu", "cuda") or x.layout != torch.strided:
        storage = f"on device {x.device}" if x.layout == torch.strided else f"of layout {x.layout}"
        raise FormatError(
            f"{fmt}: x must be a strided tensor on cpu or cuda, not one of shape {tuple(x.shape)} {storage}"
        )
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.detach().to(torch.float32)
    if x.dtype not in (torch.float32, torch.float64):
        raise FormatError(
            f"{fmt}: x must be float32, float64, float16 or bfloat16, not a tensor of shape {tuple(x.shape)} and type "
            f"{x.dtype}; try x.float()"
        )
    return x.detach()


def _check_output(out: "torch.Tensor", x: "torch.Tensor", fmt: Format) -> None:
    if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device):
        raise FormatError(
            f"{fmt}: out must be {tuple(x.shape)} {x.dtype} on {x.device}, "
            f"not {tuple(out.shape)} {out.dtype} on {out.device}"
        )
