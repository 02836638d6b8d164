"""What the language means: the Python function itself is the oracle."""

import copy
import math
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presilicon.base import ConfigError
from presilicon.formats import parse
from presilicon.ops import load_operator, operator
from presilicon.ops.custom.rounding import step_rounding
from presilicon.programs.reference import evaluate

SLOPE = 0.25
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1e-310, 2.0, -2.0, 0.5, -0.5, 1.0, -1.0, 1e308]


def make_scaled(factor):
    @operator("tanh")
    def scaled(x):
        return factor * x

    return scaled


@operator("tanh")
def early_returns(x: float) -> float:
    """The seed's kind of function."""
    size = abs(x)
    if size < 2:
        return x * (1 - size * SLOPE)
    return 1.0 if x > 0 else -1.0


@operator("sigmoid")
def branches(x):
    if x <= -4:
        y = 0.0
    elif -4 < x < 4:
        y: float = 0.5 + 0.125 * x
        y += 0.25 if x == 1 else 0.0
    else:
        y = 1.0
    return y


@operator("tanh")
def switch(x):
    match abs(x):
        case 0:
            return x
        case 1 | 2 | 0.5:
            y = 0.75
        case size if size < 1.5:
            y = size / 2
        case _ if x > 3 or not x > -3:
            return 1.0 if x > 0 else -1.0
        case _:
            y = 0.9
    return y if x >= 0 else -y


@operator("tanh")
def mixed_paths(x):
    inside = -1 < x < 1 and x != 0.25
    if x > 2:
        if x > 5:
            return 7.0
        y = 3
    else:
        y = x
        if not inside:
            y -= 1
    z = y * 2
    if z > 3 or inside:
        z = -z
    return z + y


@operator("exp")
def functions(x):
    a = min(x, 3, -x)
    b = max(abs(x), 0.5)
    c = math.floor(x * 4) / 4
    return math.sqrt(b) + a - c * max(-x, x) + math.fabs(x)


@operator("tanh")
def constants(x, slope=0.5, offset: float = 1 / 3):
    return x * slope + offset * math.pi + (1 - 2 / 3) * x


@operator("tanh")
def inlined(x):
    return early_returns(branches(x)) + constants(x, offset=x) - constants(x, 2)


ALL = [early_returns, branches, switch, mixed_paths, functions, constants, make_scaled(3)]


def bits(value: float) -> bytes:
    return struct.pack("d", math.nan if math.isnan(value) else value)


def agree(chosen, x: float) -> None:
    try:
        wanted = float(chosen.function(x))
    except (OverflowError, ZeroDivisionError, ValueError):
        return  # Python raises where IEEE 754 has a result
    assert bits(chosen(x)) == bits(wanted), x


@pytest.mark.parametrize("chosen", ALL, ids=lambda each: each.name)
@pytest.mark.parametrize("x", EDGES)
def test_edges_are_those_of_python(chosen, x: float) -> None:
    agree(chosen, x)


@pytest.mark.parametrize("chosen", ALL, ids=lambda each: each.name)
@given(st.floats() | st.floats(-8, 8) | st.integers(-8, 8).map(lambda n: n / 4))
def test_numbers_are_those_of_python(chosen, x: float) -> None:
    agree(chosen, x)


@given(st.floats(-8, 8))
def test_other_operators_are_inlined(x: float) -> None:
    def plain(x):
        return early_returns.function(branches.function(x)) + constants.function(x, offset=x) - constants.function(x, 2)

    assert inlined(x) == plain(x)


def test_ieee_where_python_raises() -> None:
    @operator("tanh")
    def reciprocal(x):
        return 1 / x

    @operator("tanh")
    def others(x):
        return math.log(x) + math.exp(x * 1000) + math.sqrt(x)

    assert reciprocal(0.0) == math.inf
    assert reciprocal(-0.0) == -math.inf
    assert math.isnan(others(-1.0))
    assert others(0.0) == -math.inf
    assert others(1.0) == math.inf


def test_powers_are_repeated_squares() -> None:
    @operator("tanh")
    def powers(x):
        return x**5 + x**-2 - x**0

    assert powers(3.0) == 243 + 1 / 9 - 1
    assert powers.cost.multipliers == 3
    assert powers.cost.special == 1


def test_constants_are_those_of_the_moment() -> None:
    space = {"factor": 2.0}
    factor = space["factor"]

    @operator("tanh")
    def doubled(x):
        return x * factor

    factor = 3.0
    assert doubled(1.0) == 2.0


def test_an_inlined_operator_keeps_its_own_constants_and_names(tmp_path) -> None:
    path = tmp_path / "chain.py"
    path.write_text(
        """from presilicon.ops import operator
K = 2.0

@operator("tanh")
def f(x):
    return K * x

@operator("tanh")
def g(x):
    return f(x) + 1

K = 5.0

@operator("tanh")
def f(x):
    return g(x) * 10

@operator("tanh")
def h(x):
    return f(x)
"""
    )
    assert load_operator(f"{path}:h")(1.0) == 30.0


def test_programs_grow_with_their_source_and_not_with_their_paths(tmp_path) -> None:
    path = tmp_path / "long.py"
    tests = "".join(
        f"    if x > {place}:\n        if x > {place}.5:\n            return {place}.25\n        x = x + 2\n"
        for place in range(1, 41)
    )
    head = 'from presilicon.ops import operator\n@operator("tanh")\ndef f(x):\n'
    path.write_text(f"{head}{tests}    return x\n")
    chosen = load_operator(f"{path}:f")
    assert len(chosen.program.instructions) < 800
    for x in (0.5, 1.2, 1.7, 1.4999, 30.0, -1.0):
        assert chosen(x) == chosen.function(x)
    chain = "".join(f"    elif x < {place}:\n        return {place}\n" for place in range(1, 600))
    path.write_text(f"{head}    if x < 0:\n        return 0\n{chain}    return 1\n")
    with pytest.raises(ConfigError, match="too deep"):
        load_operator(f"{path}:f")


def test_a_format_rounds_every_result() -> None:
    half = parse("float16")

    @operator("tanh", format="float16")
    def third(x):
        return x / 3 + x

    def rounded(x: float) -> float:
        return struct.unpack("e", struct.pack("e", x))[0]

    x = rounded(1.1)
    assert third(1.1) == rounded(rounded(x / 3) + x)
    assert third.cost.bits == 16
    assert evaluate(third.program, 1.1, step_rounding(half)) == [third(1.1)]


def test_an_operator_is_copied_and_saved() -> None:
    again = pickle.loads(pickle.dumps(early_returns))
    assert again(0.3) == early_returns(0.3)
    assert again.cost == early_returns.cost
    assert copy.deepcopy(early_returns) is early_returns


def test_breakpoints_are_found() -> None:
    assert early_returns.breakpoints() == [-2.0, 0.0, 2.0]
    assert branches.breakpoints() == [-4.0, 1.0, 4.0]
    found = functions.breakpoints(-1.1, 1.1)
    assert [point for point in found if point < -0.1 and point * 4 % 1 == 0] == [-1.0, -0.75, -0.5, -0.25]


def test_derivatives_by_hand() -> None:
    assert early_returns.derivative(1.0) == 1 - 2 * SLOPE
    assert early_returns.derivative(-1.0) == 1 - 2 * SLOPE
    assert early_returns.derivative(9.0) == 0
    # At a breakpoint, the branch that the source takes there.
    assert early_returns.derivative(2.0) == 0
    assert early_returns.derivative(math.nextafter(2.0, 0)) == pytest.approx(0.0, abs=1e-12)
    assert branches.derivative(1.0) == 0.125


def test_costs_are_counted() -> None:
    cost = early_returns.cost
    assert (cost.multipliers, cost.adders, cost.comparators, cost.entries) == (1, 2, 2, 0)
    assert cost.cycles == 3  # size / 4, 1 - that, and the product
    backward = early_returns.backward_cost
    assert backward is not None
    assert backward.multipliers > cost.multipliers


def test_costs_can_be_stated() -> None:
    @operator("tanh", cycles=2, pipelined=True)
    def stated(x):
        return x * x * x

    assert (stated.cost.cycles, stated.cost.pipelined, stated.cost.multipliers) == (2, True, 2)
    assert stated.cost.cycles_of(1000, lanes=10) == 101
