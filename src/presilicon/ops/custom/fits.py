"""Ready-made operators: tables and piecewise-linear fits of any function."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from presilicon.base import ConfigError, did_you_mean, np
from presilicon.formats import Format
from presilicon.ops.custom.operator import Backward, Operator, check_options
from presilicon.ops.lookup import exact, exact_functions
from presilicon.programs import Builder

Interpolation = Literal["nearest", "linear"]
Fit = Literal["uniform", "minimax"]
Outside = Literal["clamp", "extend"]
Function = Callable[[float], float] | str

_SAMPLES = 1024
MOST = 1 << 16
"""The most entries of a table or pieces of a fit."""


def table(
    function: Function,
    low: float,
    high: float,
    entries: int,
    interpolation: Interpolation = "nearest",
    *,
    replaces: str | None = None,
    backward: Backward | None = None,
    format: Format | str | None = None,
    cycles: int | None = None,
    pipelined: bool = False,
) -> Operator:
    """A function read from a table of values at equal distances, `low` and `high` included.

    Outside the range the nearest end's value is taken; a NaN stays a NaN.

    Args:
        function: the name of a function that can be replaced, or any function of a number.
        low: the input of the first entry.
        high: the input of the last entry.
        entries: the number of entries, 2 or more.
        interpolation: "nearest" entry, or "linear" between two (which needs the difference of each two in the table).
        replaces: the function that it replaces; by default `function`.
        backward: as in `operator`. By default "derived" for "linear" and "exact" for "nearest", whose own derivative is
            0 everywhere, so that nothing would be learnt through it.
        format: the format of its numbers.
        cycles: cycles per result, instead of the counted ones.
        pipelined: whether it takes a new number in every cycle.

    >>> halves = table("sigmoid", -8, 8, entries=33, interpolation="linear")
    >>> round(halves(0.2), 4), round(halves.largest_error().error, 4), halves.cost.entries
    (0.549, 0.003, 65)
    """
    if interpolation not in ("nearest", "linear"):
        raise ConfigError(f'interpolation="{interpolation}": {did_you_mean(str(interpolation), ["nearest", "linear"])}')
    target, name = _function(function, replaces)
    _check_range(low, high, entries, "entries", least=2)
    if backward is None:
        backward = "exact" if interpolation == "nearest" else "derived"
    options = check_options(name, backward, format, cycles, pipelined)
    step = (high - low) / (entries - 1)
    values = tuple(float(target(low + step * index)) for index in range(entries))
    builder = Builder()
    x = builder.input()
    position = _position(builder, _clamped(builder, x, low, high), low, step)
    if interpolation == "nearest":
        nearest = builder.emit("floor", builder.emit("add", position, builder.constant(0.5)))
        read = builder.emit("lookup", nearest, table=values)
        result = builder.emit("select", builder.emit("ne", x, x), x, read)
    else:
        # The last entry has no successor: at the upper end the whole last difference is added.
        below = builder.emit("min", builder.emit("floor", position), builder.constant(entries - 2.0))
        part = builder.emit("sub", position, below)
        rises = tuple(after - before for before, after in pairwise(values))
        rise = builder.emit("mul", builder.emit("lookup", below, table=rises), part)
        result = builder.emit("add", builder.emit("lookup", below, table=values), rise)
    return Operator(
        name=f"table_{name.replace('.', '_')}", program=builder.finish(result), domain=(low, high), **options
    )


def piecewise_linear(
    function: Function,
    low: float,
    high: float,
    pieces: int | None = None,
    fit: Fit = "uniform",
    *,
    breakpoints: Sequence[float] | None = None,
    outside: Outside = "clamp",
    replaces: str | None = None,
    backward: Backward = "derived",
    format: Format | str | None = None,
    cycles: int | None = None,
    pipelined: bool = False,
) -> Operator:
    """A function as straight pieces: a slope and an offset from a table, one multiplication, one addition.

    Args:
        function: the name of a function that can be replaced, or any function of a number.
        low: where the first piece begins.
        high: where the last piece ends.
        pieces: the number of pieces; not needed with `breakpoints`.
        fit: "uniform": pieces of equal width that meet on the function. "minimax": pieces of the widths and lines that
            make the largest error smallest; they need not meet, and a comparator per breakpoint finds the piece.
        breakpoints: where pieces meet, between `low` and `high`, in place of `fit`; they meet on the function.
        outside: "clamp" keeps the value at the end of the range, "extend" goes on with the end's piece (for gelu).
        replaces: the function that it replaces; by default `function`.
        backward: as in `operator`.
        format: the format of its numbers.
        cycles: cycles per result, instead of the counted ones.
        pipelined: whether it takes a new number in every cycle.

    >>> fits = [piecewise_linear("tanh", -4, 4, 16, fit=fit) for fit in ("uniform", "minimax")]
    >>> [round(each.largest_error(-4, 4).error, 4) for each in fits]
    [0.0233, 0.0028]
    """
    for option, choice, allowed in (("fit", fit, ["uniform", "minimax"]), ("outside", outside, ["clamp", "extend"])):
        if choice not in allowed:
            raise ConfigError(f'{option}="{choice}": {did_you_mean(str(choice), allowed)}')
    target, name = _function(function, replaces)
    inner = None if breakpoints is None else [float(point) for point in breakpoints]
    if inner is not None:
        if pieces not in (None, len(inner) + 1):
            raise ConfigError(f"pieces={pieces}, but {len(inner)} breakpoints make {len(inner) + 1} pieces; give one")
        pieces = len(inner) + 1
    _check_range(low, high, pieces, "pieces", least=1)
    assert pieces is not None
    bounds = [low, *(inner or ()), high]
    if any(not a < b for a, b in pairwise(bounds)):
        raise ConfigError(f"breakpoints must rise between {low} and {high}, not {breakpoints}")
    options = check_options(name, backward, format, cycles, pipelined)
    if inner is None and fit == "minimax":
        bounds, lines = _minimax(target, low, high, pieces)
    else:
        if inner is None:
            bounds = [low + (high - low) * index / pieces for index in range(pieces + 1)]
        lines = [_chord(target, a, b) for a, b in pairwise(bounds)]
    builder = Builder()
    x = builder.input()
    inside = _clamped(builder, x, low, high)
    if inner is None and fit == "uniform":
        piece = builder.emit("floor", _position(builder, inside, low, (high - low) / pieces))
    else:
        piece = builder.emit("locate", inside, table=tuple(bounds[1:-1]))
    slope = builder.emit("lookup", piece, table=tuple(line[0] for line in lines))
    offset = builder.emit("lookup", piece, table=tuple(line[1] for line in lines))
    along = inside if outside == "clamp" else x
    result = builder.emit("add", builder.emit("mul", slope, along), offset)
    label = f"piecewise_linear_{name.replace('.', '_')}"
    return Operator(name=label, program=builder.finish(result), domain=(low, high), **options)


def _function(function: Function, replaces: str | None) -> tuple[Callable[[float], float], str]:
    name = replaces or (function if isinstance(function, str) else None)
    if name is None:
        known = next((known for known, own in exact_functions().items() if own is function), None)
        if known is None:
            raise ConfigError('replaces must name the function to replace, as replaces="tanh"')
        name = known
    return (exact(function) if isinstance(function, str) else function), name


def _check_range(low: float, high: float, count: int | None, what: str, least: int) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"low must be below high and both finite, not low={low}, high={high}")
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= MOST:
        raise ConfigError(f"{what} must be a whole number from {least} to {MOST}, not {count!r}")


def _clamped(builder: Builder, x: int, low: float, high: float) -> int:
    """`x` clamped to the range; NaN stays NaN."""
    return builder.emit("min", builder.emit("max", x, builder.constant(low)), builder.constant(high))


def _position(builder: Builder, x: int, low: float, step: float) -> int:
    """How many steps `x` lies above `low`."""
    above = builder.emit("sub", x, builder.constant(low))
    return builder.emit("mul", above, builder.constant(1 / step))


def _chord(target: Callable[[float], float], a: float, b: float) -> tuple[float, float]:
    slope = (target(b) - target(a)) / (b - a)
    return slope, target(a) - slope * a


def _minimax(
    target: Callable[[float], float], low: float, high: float, pieces: int
) -> tuple[list[float], list[tuple[float, float]]]:
    """Bounds and lines of the fit whose largest error is smallest, among breakpoints on a fine grid.

    A piece that is made longer has no smaller error, so for a given error every piece is taken as long as it can be;
    the error is then bisected until the pieces just suffice.
    """
    count = max(_SAMPLES, 8 * pieces)
    xs = np.linspace(low, high, count + 1)
    ys = np.array([target(x) for x in xs.tolist()])

    def line(first: int, last: int) -> tuple[float, float, float]:
        """Slope, offset and largest error of the best line over samples: the narrowest strip that holds them."""
        x, y = xs[first : last + 1], ys[first : last + 1]
        slopes = np.diff(y) / np.diff(x)
        under, over = float(slopes.min()), float(slopes.max())
        for _ in range(40):
            slope = (under + over) / 2
            rest = y - slope * x
            # The width of the strip is convex in the slope; its highest and lowest points say which way is down.
            if x[int(rest.argmax())] > x[int(rest.argmin())]:
                under = slope
            else:
                over = slope
        rest = y - slope * x
        return slope, float(rest.max() + rest.min()) / 2, float(rest.max() - rest.min()) / 2

    def cuts(error: float) -> list[int] | None:
        """Ends of the longest pieces within an error; None if there are too many."""
        ends = [0]
        while ends[-1] < count:
            if len(ends) > pieces:
                return None
            good, bad = ends[-1] + 1, count + 1
            reach = 1
            while good + reach < bad and line(ends[-1], good + reach)[2] <= error:
                good, reach = good + reach, reach * 2
            bad = min(bad, good + reach)
            while bad - good > 1:
                middle = (good + bad) // 2
                if line(ends[-1], middle)[2] <= error:
                    good = middle
                else:
                    bad = middle
            ends.append(good)
        return ends

    below, above = 0.0, line(0, count)[2]
    best = [0, count]
    for _ in range(16):
        middle = (below + above) / 2
        ends = cuts(middle)
        if ends is None:
            below = middle
        else:
            above, best = middle, ends
    while len(best) <= pieces:  # fewer pieces suffice: halve the longest
        widths = [b - a for a, b in pairwise(best)]
        longest = widths.index(max(widths))
        best.insert(longest + 1, best[longest] + widths[longest] // 2)
    fitted = [line(a, b)[:2] for a, b in pairwise(best)]
    return [float(xs[end]) for end in best], fitted
