"""Kernels that are printed from formulas compute what the formula says, whatever the operator's formula was before."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from presilicon.ops import compile_formula, enter, function, withdraw
from presilicon.programs import evaluate
from presilicon.scheduling.runtime.opencl.device import OpenCLDevice
from presilicon.scheduling.runtime.opencl.printing import is_printable

pytestmark = pytest.mark.usefixtures("opencl")
aten = torch.ops.aten
POINTS = [-2.5, -1.0, 0.0, 0.5, 1.0, 3.0]


def one_more(x):
    return x + 1


def two_more(x):
    return x + 2


def whole_size(x):
    return float(abs(int(x)))


def root_of_whole(x):
    return math.sqrt(abs(int(x)))


def half_of_whole(x):
    return int(x) / 2


def smaller_whole(x):
    return float(min(int(x), 2))


def remainder(x):
    return x - 2 * math.floor(x / 2)


def all_of_mathematics(x):
    waves = math.sin(x) + math.cos(x) + math.tanh(x) + math.erf(x)
    return waves + math.exp(x) + math.exp2(x) + math.log(x + 4) + math.log2(x + 4)


def chained(x):
    return 1.0 if -1 < x <= 1 else -0.25


@pytest.fixture(scope="module")
def device(opencl: None) -> Iterator[OpenCLDevice]:
    opened = OpenCLDevice()
    opened.board.keep = False
    yield opened
    opened.close()


@pytest.fixture
def entered_names() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        withdraw(name)


def run(device: OpenCLDevice, func: Any, *tensors: torch.Tensor) -> list[float]:
    placed = tuple(map(device.put, tensors))
    assert device.covers(func, placed, {})
    return device.get(device.run(func, placed, {})).tolist()


def test_an_operators_kernel_is_that_of_its_formula_now(device: OpenCLDevice, entered_names: list[str]) -> None:
    entered_names.append("i0")
    for formula in (
        one_more, two_more, whole_size, root_of_whole, half_of_whole, smaller_whole, remainder, chained,
        all_of_mathematics, one_more,
    ):  # fmt: skip
        enter(function("i0", backward="", formula=formula))
        program = compile_formula(formula)
        assert is_printable(program)
        wanted = [evaluate(program, point)[0] for point in POINTS]
        assert run(device, aten.i0.default, torch.tensor(POINTS)) == pytest.approx(wanted, rel=1e-6), formula.__name__


def test_an_operator_without_a_default_overload_has_a_kernel(device: OpenCLDevice, entered_names: list[str]) -> None:
    def product(x, y):
        return x * y + 1

    entered_names.append("xlogy")
    enter(function("xlogy", backward="", formula=product))
    x = torch.tensor(POINTS)
    assert run(device, aten.xlogy.Tensor, x, x) == (x * x + 1).tolist()
