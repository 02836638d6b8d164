"""Formulas in steps: their values are those of the language, and their gradients those of the side that was chosen."""

import math
from contextlib import nullcontext

import pytest
import torch
from tests import scaled_bessel

from presilicon.emulation.steps.formulas import run_formula
from presilicon.emulation.steps.lines import Line
from presilicon.emulation.steps.primitives import RoundedSteps
from presilicon.formats import Key
from presilicon.ops import compile_formula, operands
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
