"""One step of arithmetic on float32 tensors: by a user's function on codes, or in float32."""

from typing import TYPE_CHECKING

from presilicon.base import torch

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.families.user import UserFormat
    from presilicon.formats.rounding import Key


def exact_step(name: str, operands: "tuple[Tensor, ...]") -> "Tensor":
    """A step in float32: add, sub, mul, div, neg, exp, log, sqrt, maximum or minimum."""
    out: Tensor = getattr(torch, name)(*operands)
    return out


def function_behind(fmt: "UserFormat", name: str) -> str | None:
    """The name of the user's function that computes a step: `compare` for a maximum; None if there is none."""
    from presilicon.formats.kernels.user_functions import code_function

    if code_function(fmt, name) is None:
        return None
    follows = {"maximum": "compare", "minimum": "compare", "sub": "add", "mul": "mad"}
    return name if getattr(fmt, name, None) is not None else follows[name]


def user_step(fmt: "UserFormat", name: str, operands: "tuple[Tensor, ...]", key: "Key | None" = None) -> "Tensor":
    """A step by the user's function of the operands' codes; without one, the float32 result, converted.

    >>> import torch
    >>> from presilicon.formats import UserFormat
    >>> def as_float(code):
    ...     return float(code)
    >>> def add(a, b):
    ...     return 0
    >>> fmt = UserFormat("tiny", (("m", 3),), as_float, add=add)
    >>> x = torch.tensor([1.0, 2.0])
    >>> user_step(fmt, "add", (x, x)), user_step(fmt, "mul", (x, x))
    (tensor([0., 0.]), tensor([1., 4.]))
    """
    from presilicon.formats.codes import encode
    from presilicon.formats.kernels.user_functions import map_codes, user_values
    from presilicon.formats.quantization import quantize

    if function_behind(fmt, name) is None:
        return quantize(exact_step(name, operands), fmt, key=key)
    shape = torch.broadcast_shapes(*(x.shape for x in operands))  # type: ignore[no-untyped-call]
    codes = tuple(encode(x, fmt).expand(shape) for x in operands)  # type: ignore[union-attr]
    return user_values(map_codes(fmt, name, codes, key), fmt)
