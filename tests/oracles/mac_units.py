"""Slow, obvious scalar MAC units with exact fractions: the reference for every kernel.

Every multiply and add happens in the stated order; each result is exact until it is rounded, once.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from presilicon.formats.kernels.grid import Grid, value_of_bits
from presilicon.formats.kernels.reference import floor_log2, points_away, round_integer
from presilicon.formats.mac.plan import MacPlan, plan_of
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.rounding import Key, Stochastic, random_word

_NONE = -(10**6)
_ZERO_EXPONENT = -133
"""The exponent that a tensor core gives a zero: that of the smallest subnormal bfloat16 number."""
_LEAST_SUM_EXPONENT = -126
"""Subnormal float32 sums are aligned as the smallest normal ones."""
_SUM_LIMIT = 2.0**128

Exact = Fraction | float
"""A number that is not rounded: a fraction, or a float for zeros (which have a sign), infinities and NaN."""


def multiply_matrices(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], mac: MacUnit, key: Key | None = None
) -> list[list[float]]:
    """The product of an M x K and a K x N matrix of float32 values, as `mac` computes it.

    >>> multiply_matrices([[1.0, 2.0]], [[3.0], [4.0]], MacUnit())
    [[11.0]]
    """
    plan, columns = plan_of(mac), list(zip(*b, strict=True))
    outputs = len(a) * len(columns)
    elements = iter(range(outputs))
    return [[_dot(row, column, plan, _Draws(key, next(elements), outputs)) for column in columns] for row in a]


class _Draws:
    """The random words of one output: rounding t draws the word of index t x outputs + output."""

    def __init__(self, key: Key | None, element: int, outputs: int) -> None:
        self.key = key or Key()
        self.index = element
        self.stride = outputs

    def round(self, x: Exact, grid: Grid, mode: str | Stochastic) -> float:
        word = random_word(self.key, self.index, mode.source) if isinstance(mode, Stochastic) else 0
        self.index += self.stride
        return round_exact(x, grid, mode, word)


def _dot(row: Sequence[float], column: Sequence[float], plan: MacPlan, draws: _Draws) -> float:
    size = plan.chunk_size(len(row))
    total: float | None = None
    for start in range(0, len(row), size):
        pairs = list(zip(row[start : start + size], column[start : start + size], strict=True))
        match plan.order:
            case "lanes":
                part = _add_in_lanes(pairs, plan, draws)
            case "pairwise":
                part = _add_in_tree([_product(x, y, plan, draws) for x, y in pairs], plan, draws)
            case "aligned":
                part = _add_aligned(pairs, plan, draws)
        exact = part if total is None else add(_exact(total), part, plan.total_mode)
        total = draws.round(exact, plan.total, plan.total_mode)
    return 0.0 if total is None else total


def _product(x: float, y: float, plan: MacPlan, draws: _Draws) -> Exact:
    product = multiply(_exact(x), _exact(y))
    return product if plan.product is None else _exact(draws.round(product, plan.product, plan.product_mode))


def _add_in_lanes(pairs: list[tuple[float, float]], plan: MacPlan, draws: _Draws) -> Exact:
    lanes: list[Exact] = [0.0] * min(plan.width, len(pairs))
    for k, (x, y) in enumerate(pairs):
        lane = k % plan.width
        exact = add(lanes[lane], _product(x, y, plan, draws), plan.partial_mode)
        lanes[lane] = _exact(draws.round(exact, plan.partial, plan.partial_mode))
    return lanes[0] if len(lanes) == 1 else _add_in_tree(lanes, plan, draws)


def _add_in_tree(terms: list[Exact], plan: MacPlan, draws: _Draws) -> Exact:
    if len(terms) == 1:
        return _exact(draws.round(terms[0], plan.partial, plan.partial_mode))
    while len(terms) > 1:
        left_over = terms[-1:] if len(terms) % 2 else []
        sums = [add(x, y, plan.partial_mode) for x, y in zip(terms[::2], terms[1::2], strict=False)]
        terms = [_exact(draws.round(x, plan.partial, plan.partial_mode)) for x in sums] + left_over
    return terms[0]


def _add_aligned(pairs: list[tuple[float, float]], plan: MacPlan, draws: _Draws) -> Exact:
    total: Exact = 0.0
    for group in _groups(pairs, plan.width):
        left, right = plan.floors or (_NONE, _NONE)
        terms = [(_product(x, y, plan, draws), max(_exponent(x), left) + max(_exponent(y), right)) for x, y in group]
        terms.append((total, _exponent(total) if plan.floors is None else max(_exponent(total), _LEAST_SUM_EXPONENT)))
        special = [float(term) for term, _ in terms if not isinstance(term, Fraction) and term != 0]
        exponents = [exponent for term, exponent in terms if isinstance(term, Fraction)]
        if plan.floors is not None and len(exponents) < plan.width + 1:  # an operand or a lane without one is zero
            exponents.append(_ZERO_EXPONENT)
        exact: Exact = 0.0
        if special:
            exact = sum(special)
        elif exponents:
            step = Fraction(2) ** (max(exponents) - plan.align_bits)
            units = sum(math.trunc(term / step) for term, _ in terms if isinstance(term, Fraction))
            exact = units * step if units else 0.0
            if plan.floors is not None and abs(float(exact)) >= _SUM_LIMIT:
                exact = math.copysign(math.inf, exact)
        total = _exact(draws.round(exact, plan.partial, plan.partial_mode))
        if plan.floors is not None and total == 0:
            total = 0.0  # a tensor core has no negative zero
    return total


def _groups(pairs: list[tuple[float, float]], width: int) -> Iterator[list[tuple[float, float]]]:
    for start in range(0, len(pairs), width):
        yield pairs[start : start + width]


def multiply(x: Exact, y: Exact) -> Exact:
    """The exact product."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    return _stand_in(x) * _stand_in(y)


def add(x: Exact, y: Exact, mode: str | Stochastic) -> Exact:
    """The exact sum; `mode` decides the sign of a zero that comes of unlike terms, as IEEE 754 has it."""
    zero = -0.0 if mode == "down" else 0.0
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x + y or zero
    if x == 0 and y == 0:
        return x if math.copysign(1, x) == math.copysign(1, y) else zero
    if x == 0 or y == 0:
        return y if x == 0 else x
    return _stand_in(x) + _stand_in(y)


def round_exact(x: Exact, grid: Grid, mode: str | Stochastic, word: int = 0) -> float:
    """An exact number on a grid.

    >>> from presilicon.formats import Float
    >>> from presilicon.formats.kernels.grid import grid_of
    >>> round_exact(Fraction(11, 10), grid_of(Float(5, 2)), "nearest-even")
    1.0
    """
    if not isinstance(x, Fraction) and math.isnan(x):
        return value_of_bits(grid.nan)
    negative = math.copysign(1, x) < 0
    magnitude = _round_magnitude(-x if negative else x, grid, mode, negative, word)
    if magnitude == 0 and not grid.negative_zero:
        return 0.0
    return -magnitude if negative else magnitude


def _round_magnitude(x: Exact, grid: Grid, mode: str | Stochastic, negative: bool, word: int) -> float:
    largest = value_of_bits(grid.max_negative if negative else grid.max_positive)
    over = value_of_bits(grid.over_negative if negative else grid.over_positive)
    if not isinstance(x, Fraction):
        return over if math.isinf(x) else 0.0
    low = grid.low - 127
    exponent = max(_exponent(x), low)
    step = Fraction(2) ** (exponent - grid.mantissa)
    ratio = x / step
    code_below = math.floor(ratio) + (exponent - low) * 2**grid.mantissa
    result = round_integer(ratio, mode, negative, bool(code_below % 2), word) * step
    if result > Fraction(largest):
        return over if points_away(mode, negative) else largest
    return 0.0 if result < Fraction(value_of_bits(grid.tiny)) else float(result)


def _exponent(x: Exact) -> int:
    """floor(log2 |x|), and 0 for what has no exponent."""
    if x == 0 or not (isinstance(x, Fraction) or math.isfinite(x)):
        return 0
    return floor_log2(abs(Fraction(x)))


def _exact(x: Exact) -> Exact:
    return Fraction(x) if math.isfinite(x) and x != 0 else x


def _stand_in(x: Exact) -> float:
    """A float that behaves like `x` next to a zero, an infinity or NaN."""
    return math.copysign(1.0, x) if isinstance(x, Fraction) else x
