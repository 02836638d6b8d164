"""Aggregations of two tensors whose vectors come in turns: conditions tell the first of a pair from the last."""

import math
from typing import TYPE_CHECKING, Any

from presilicon.designs import Hardware
from presilicon.formats import Fixed, Float, Format
from presilicon.instrument.aggregation_parts import END, FRESH, Cut, Made, accumulate, named
from presilicon.instrument.firmware import Firmware

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _clear(fw: Firmware, copy: int, row: int) -> None:
    """Put zeros in a row at the begin of an outer frame; `copy` holds the input."""
    with fw.chain():
        fw.sub(copy)
        fw.cache(row, "first@1")


def _second(fw: Firmware, row: int, *, carried: bool = True) -> None:
    """Sum up what comes with the second vector of each pair, in a row that was cleared."""
    with fw.chain():
        if carried:
            fw.load()
        fw.add(row)
        fw.cache(row, "last")
        fw.total()
        fw.commit(1, END)


def _first(fw: Firmware, row: int) -> None:
    """Sum up the carried vector with the first vector of each pair."""
    with fw.chain():
        fw.load()
        fw.add(row, FRESH)
        fw.cache(row, "first")


def _send(fw: Firmware, copy: int, row: int) -> None:
    """Send the total of a row at the end: zero plus the row."""
    with fw.chain():
        fw.sub(copy)
        fw.save()
    with fw.chain():
        fw.load()
        fw.add(row)
        fw.total()
        fw.commit(1, END)


def correlation(hardware: Hardware) -> Made:
    """Sums of x, y, xy, xx and yy of two tensors in turns."""
    x, both, y, xy, yy, copy, squares = range(7)
    fw = Firmware()
    with fw.chain():
        fw.cache(x, "first")
    with fw.chain():
        fw.cache(copy)
    for row in (y, xy, yy):
        _clear(fw, copy, row)
    with fw.chain():
        fw.mul(x)
        fw.save()
    with fw.chain():
        accumulate(fw, both)
    _second(fw, y, carried=False)
    _second(fw, xy)
    with fw.chain():
        fw.mul(copy)
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, squares)
    _second(fw, yy)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        found = named(["sum of both", "sum_y", "sum_xy", "squares of both", "sum_yy"])(values, cut)
        if None in found.values():
            return dict.fromkeys(("sum_x", "sum_y", "sum_xy", "sum_xx", "sum_yy", "correlation"))
        of_both, of_y, of_xy, of_squares, of_yy = map(float, values)
        sums = {"x": of_both - of_y, "y": of_y, "xy": of_xy, "xx": of_squares - of_yy, "yy": of_yy}
        result: dict[str, Any] = {f"sum_{name}": value for name, value in sums.items()}
        return result | {"correlation": None if cut.count is None else _pearson(sums, cut.count)}

    return Made(fw, decode)


def _pearson(sums: dict[str, float], count: int) -> float | None:
    """Pearson's coefficient; None where one of the two does not vary."""
    x = count * sums["xx"] - sums["x"] ** 2
    y = count * sums["yy"] - sums["y"] ** 2
    if not (x > 0 and y > 0):
        return None
    return (count * sums["xy"] - sums["x"] * sums["y"]) / math.sqrt(x * y)


def update_ratio(hardware: Hardware) -> Made:
    """Sums of squares of updates and of weights, in turns."""
    copy, update, weight = range(3)
    fw = Firmware()
    with fw.chain():
        fw.cache(copy)
    _clear(fw, copy, weight)
    with fw.chain():
        fw.mul(copy)
        fw.save()
    _first(fw, update)
    _second(fw, weight)
    _send(fw, copy, update)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        of_weight, of_update = named(["weight", "update"])(values, cut).values()
        update_norm, weight_norm = (None if of is None else math.sqrt(of) for of in (of_update, of_weight))
        ratio = update_norm / weight_norm if weight_norm and update_norm is not None else None
        return {"update_norm": update_norm, "weight_norm": weight_norm, "ratio": ratio}

    return Made(fw, decode)


def shows_rounding(element: Format, rounded: Format) -> bool:
    """Whether an element can tell a number from what a format rounds it to.

    It cannot where it rounds the number as coarsely itself: then both are the same, and the error is 0. Formats that
    cannot be compared without the numbers pass.

    >>> from presilicon.formats import parse
    >>> elements = map(parse, ("bfloat16", "e5m2", "float16", "fixed(8, 24)"))
    >>> [shows_rounding(element, parse("bfloat16")) for element in elements]
    [False, False, True, True]
    """
    if isinstance(element, Float) and isinstance(rounded, Float):
        return element.mantissa > rounded.mantissa
    if isinstance(element, Fixed) and isinstance(rounded, Fixed):
        return element.fraction > rounded.fraction
    return element != rounded


def quantization_error(hardware: Hardware) -> Made:
    """The energy of q - x and of x, for x and q in turns."""
    x, error, errors, signal, copy = range(5)
    fw = Firmware()
    with fw.chain():
        fw.cache(x, "first")
    with fw.chain():  # 0 with x, q - x with q
        fw.sub(x)
        fw.cache(error)
        fw.save()
    with fw.chain():
        fw.load()
        fw.mul(error)
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, errors)
    with fw.chain():  # x squared with x
        fw.mul(x)
        fw.save()
    _first(fw, signal)
    with fw.chain():
        fw.cache(copy)
    _send(fw, copy, signal)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        of_error, of_signal = named(["error", "signal"])(values, cut).values()
        ratio = (
            10 * math.log10(of_signal / of_error) if of_error and of_signal and min(of_error, of_signal) > 0 else None
        )
        return {"squared_error": of_error, "squared_signal": of_signal, "signal_to_noise_db": ratio}

    return Made(fw, decode)
