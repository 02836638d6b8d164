import math

import pytest

from presilicon.base import ConfigError
from presilicon.ops import exact_functions, piecewise_linear, table


def test_a_table_holds_the_function_at_its_entries() -> None:
    for interpolation in ("nearest", "linear"):
        made = table("tanh", -4, 4, 17, interpolation)
        for entry in range(17):
            x = -4 + entry / 2
            assert made(x) == pytest.approx(math.tanh(x), abs=1e-15)
        assert made(-100.0) == made(-4.0)
        assert made(math.inf) == made(4.0)
        assert math.isnan(made(math.nan))


def test_the_nearest_entry_and_the_line_between_two() -> None:
    near, line = table("exp", 0, 4, 5), table("exp", 0, 4, 5, "linear")
    assert [near(x) for x in (0.49, 0.5, 1.49)] == [1.0, math.e, math.e]
    assert line(0.5) == pytest.approx((1 + math.e) / 2)
    assert line.derivative(0.5) == pytest.approx(math.e - 1)
    assert near.backward == "exact"
    assert near.derivative(0.3) == 0
    assert near.backward_cost is None


def test_more_entries_and_pieces_err_less() -> None:
    for made in (
        [table("sigmoid", -8, 8, count) for count in (16, 64, 256)],
        [table("sigmoid", -8, 8, count, "linear") for count in (16, 64, 256)],
        [piecewise_linear("sigmoid", -8, 8, count) for count in (8, 16, 32)],
        [piecewise_linear("sigmoid", -8, 8, count, "minimax") for count in (4, 8, 16)],
    ):
        errors = [each.largest_error().error for each in made]
        assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("pieces", [1, 2, 5, 12])
@pytest.mark.parametrize(("name", "low", "high"), [("tanh", -4.0, 4.0), ("exp", -8.0, 0.0), ("rsqrt", 0.5, 2.0)])
def test_minimax_is_never_worse_than_uniform_pieces(name: str, low: float, high: float, pieces: int) -> None:
    errors = [piecewise_linear(name, low, high, pieces, fit).largest_error().error for fit in ("uniform", "minimax")]
    assert errors[1] <= errors[0]


def test_minimax_of_one_piece_is_chebyshev_s_line() -> None:
    # Of exp on [0, 1]: slope e - 1, error (2 - e + (e - 1) log(e - 1)) / 2.
    made = piecewise_linear("exp", 0, 1, 1, "minimax")
    slope = math.e - 1
    assert made.derivative(0.5) == pytest.approx(slope, abs=1e-4)
    wanted = (2 - math.e + slope * math.log(slope)) / 2
    assert made.largest_error().error == pytest.approx(wanted, abs=1e-5)


def test_breakpoints_of_one_s_own() -> None:
    made = piecewise_linear("tanh", -4, 4, breakpoints=[-1, 0, 1])
    assert made.breakpoints(-5, 5) == [-4.0, -1.0, 0.0, 1.0, 4.0]
    assert made(1.0) == pytest.approx(math.tanh(1))
    assert made.cost.comparators == 3 + 2
    assert made.cost.entries == 8


def test_outside_the_range() -> None:
    clamped, extended = (piecewise_linear("gelu", -4, 4, 16, outside=outside) for outside in ("clamp", "extend"))
    assert clamped(100.0) == pytest.approx(4, abs=1e-3)
    assert extended(100.0) == pytest.approx(100, rel=1e-2)
    assert clamped.derivative(100.0) == 0
    assert extended.derivative(100.0) == pytest.approx(1, rel=1e-2)


def test_functions_of_one_s_own_say_what_they_replace() -> None:
    made = table(lambda x: x * x, 0, 1, 3, replaces="exp")
    assert (made.replaces, made(0.5)) == ("exp", 0.25)
    with pytest.raises(ConfigError, match='replaces="tanh"'):
        table(lambda x: x, 0, 1, 3)
    assert table(exact_functions()["tanh"], 0, 1, 3).replaces == "tanh"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: table("tanh", -4, 4, 1), "entries must be a whole number from 2 to 65536, not 1"),
        (lambda: table("tanh", 4, -4, 8), "low must be below high"),
        (lambda: table("tanh", -4, math.inf, 8), "finite"),
        (lambda: table("tanh", -4, 4, 8, "cubic"), 'interpolation="cubic"'),
        (lambda: piecewise_linear("tanh", -4, 4), "pieces must be .* not None"),
        (lambda: piecewise_linear("tanh", -4, 4, 8, "best"), 'fit="best"'),
        (lambda: piecewise_linear("tanh", -4, 4, breakpoints=[5]), "breakpoints must rise between"),
        (lambda: piecewise_linear("tanh", -4, 4, 7, breakpoints=[1, 2]), "make 3 pieces"),
        (lambda: piecewise_linear("tangent", -4, 4, 7), "unknown function"),
    ],
)
def test_figures_are_checked(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
