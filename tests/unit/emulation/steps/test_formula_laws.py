"""Formulas in steps: their values are those of the language, and their gradients those of the side that was chosen."""

import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import presilicon as ps
import scaled_bessel
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation.steps.formulas import run_formula
from presilicon.emulation.steps.lines import Line
from presilicon.emulation.steps.primitives import RoundedSteps
from presilicon.formats import Key, parse
from presilicon.ops import compile_formula, enter, function, operands, withdraw
from presilicon.programs import evaluate


def root_if_positive(x):
    return math.sqrt(x) if x > 0 else 0.0


def inverse_if_defined(x):
    return 1 / x if x != 0 else 0.0


def entropy(x):
    return -x * math.log(x) if x > 0 else 0.0


def sinhc(x):
    if abs(x) < 1e-3:
        return 1.0
    return (math.exp(x) - math.exp(-x)) / (2 * x)


def nested(x):
    if x > 0:
        return math.log(x) if x > 1 else 1 / math.sqrt(x)
    return x * x if x < -1 else x


FORMULAS = (root_if_positive, inverse_if_defined, entropy, sinhc, nested, scaled_bessel.i0e, scaled_bessel.i1e)
POINTS = (-4.0, -1.5, -0.5, 0.0, 0.5, 1.5, 4.0)


def in_steps(formula, x: torch.Tensor) -> torch.Tensor:
    line = Line(None, "activation", lambda name: Key(), lambda *args: None, nullcontext)
    return run_formula(RoundedSteps(line, line, x), compile_formula(formula), dict.fromkeys(operands(formula), x))


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.__name__)
def test_gradients_are_those_of_the_side_that_was_chosen(formula) -> None:
    """A pole on the other side, such as that of 1 / x at 0, must not reach them."""
    x = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    out = in_steps(formula, x)
    (slopes,) = torch.autograd.grad(out.sum(), x)
    width, program = 1e-6, compile_formula(formula)
    for point, value, slope in zip(POINTS, out.tolist(), slopes.tolist(), strict=True):
        assert value == pytest.approx(evaluate(program, point)[0], rel=1e-12)
        assert math.isfinite(slope)
        left, right = ((evaluate(program, point + side)[0] - value) / side for side in (-width, width))
        if abs(left) < 1e3 and left == pytest.approx(
            right, rel=1e-4, abs=1e-4
        ):  # elsewhere the formula has a corner or a jump
            assert slope == pytest.approx(left, rel=1e-4, abs=1e-4)


def always_two(x, y):
    return 2.0


def the_second(x, y):
    return y


def test_a_result_has_the_shape_of_all_operands_together() -> None:
    x, y = torch.ones(3, 1), torch.zeros(4)
    for formula, wanted in ((always_two, torch.full((3, 4), 2.0)), (the_second, torch.zeros(3, 4))):
        line = Line(None, "activation", lambda name: Key(), lambda *args: None, nullcontext)
        out = run_formula(RoundedSteps(line, line, x), compile_formula(formula), {"x": x, "y": y})
        assert torch.equal(out, wanted)


class Bessel(nn.Module):
    def __init__(self, named: bool) -> None:
        super().__init__()
        self.named = named

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.i0e(input=x) if self.named else torch.special.i0e(x)


def test_a_formula_is_used_however_its_function_is_called() -> None:
    rounded = RoleFormat(parse("e4m3"))
    steps = Numerics(activation=rounded, error=rounded, vector="round-steps")
    x = torch.linspace(-3, 3, 41)
    enter(function("i0e", aten="special_i0e", backward="", formula=scaled_bessel.i0e))
    try:
        plain, named = (ps.emulate_(Bessel(named), steps)(x) for named in (False, True))
    finally:
        withdraw("i0e")
    assert torch.equal(plain, named)
    assert not torch.equal(plain, ps.emulate_(Bessel(True), steps)(x))


def below_a_tenth(x):
    return x if x <= 0.1 else 5.0


def minus_zero(x):
    return -0.0 if x > 0 else x


@pytest.mark.parametrize("formula", [below_a_tenth, minus_zero], ids=lambda formula: formula.__name__)
def test_conditions_compare_with_exact_constants_and_zeros_keep_their_sign(formula) -> None:
    rounded = RoleFormat(parse("e4m3"))
    steps = Numerics(activation=rounded, error=rounded, vector="round-steps")
    x = torch.tensor([-1.0, 0.0, 0.1015625, 2.0])  # e4m3 has no 0.1, and rounds it to the third
    enter(function("i0e", aten="special_i0e", backward="", formula=formula))
    try:
        out = ps.emulate_(Bessel(named=False), steps)(x).tolist()
    finally:
        withdraw("i0e")
    program = compile_formula(formula)
    assert list(map(str, out)) == [str(evaluate(program, point)[0]) for point in x.tolist()]
