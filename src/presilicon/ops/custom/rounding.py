"""Formats as the rounding of a program's steps."""

from functools import lru_cache, partial

from presilicon.formats import Format, quantize, quantize_value
from presilicon.programs import StepRounding


@lru_cache(maxsize=256)
def step_rounding(fmt: Format | None) -> StepRounding | None:
    """The rounding of every step to a format; None without one.

    A result of float32 arithmetic is rounded once more without harm where its 24 bits are 2p + 2 or more.
    """
    if fmt is None:
        return None
    is_narrow = fmt.is_float and fmt.significand_bits <= 11
    return StepRounding(partial(quantize_value, fmt=fmt), partial(quantize, fmt=fmt), is_narrow)
