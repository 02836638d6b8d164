"""Energy of MAC units with the operands of a training: measured on the operands that training multiplies."""

import pytest
import torch
from click.testing import CliRunner
from msgspec.structs import replace
from torch import nn
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.cli.rtl import command
from presilicon.designs import Override, RoleFormat, load_design
from presilicon.formats import parse
from presilicon.rtl import mac_energy_pj
from presilicon.study import operand_energies
from presilicon.study.operand_energy import _matrix
from presilicon.workloads import load_workload

NARROW = load_design("fp8-systolic", ["numerics.mac.accumulate=float(5, 4)", "numerics.mac.order=chunked",
                                      "numerics.mac.chunk=64"])  # fmt: skip
"""A small unit, soon synthesized."""


def test_every_product_of_a_layer_has_an_energy_below_that_of_random_operands() -> None:
    results = operand_energies(load_workload("digits-mlp"), NARROW, [0, 2], layers=["hidden1", "output"])
    assert [(result.step, result.layer, result.product) for result in results] == [
        (step, layer, product)
        for step in (0, 2)
        for layer, products in (
            ("hidden1", ("forward", "weight_grad")),
            ("output", ("forward", "input_grad", "weight_grad")),
        )
        for product in products
    ], "the first layer has no input gradient"
    by_product = {(result.step, result.layer, result.product): result for result in results}
    # Pixels are zero or more, and half of the hidden units are zero.
    assert by_product[0, "output", "weight_grad"].pj < 0.9 * by_product[0, "output", "weight_grad"].random_pj
    unit = NARROW.numerics.mac
    zeros = mac_energy_pj(parse("e4m3"), parse("e4m3"), unit, torch.zeros(4, 64), torch.zeros(4, 64))
    assert all(zeros < result.pj for result in results)


def test_the_last_layer_is_measured_in_its_own_formats() -> None:
    last = Override(layers="last", activation=RoleFormat(parse("float(4, 2)")))
    design = replace(NARROW, numerics=replace(NARROW.numerics, overrides=(last,)))
    results = operand_energies(load_workload("digits-mlp"), design, [0], layers=["hidden1", "output"])
    forward = {result.layer: result.left for result in results if result.product == "forward"}
    assert forward == {"hidden1": "e4m3", "output": "float(exponent=4, mantissa=2)"}


def test_operands_of_convolutions_are_the_matrices_that_are_multiplied() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False)
    x = torch.randn(2, 3, 7, 7)
    y = functional.conv2d(x, layer.weight, stride=2, padding=1)
    patches, weights = _matrix(x, "activation", layer), _matrix(layer.weight.detach(), "weight", layer)
    torch.testing.assert_close(patches @ weights.T, _matrix(y.detach(), "error", layer))


def test_bad_input_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"steps must be numbers of at least 0, not \[-1\]"):
        operand_energies(load_workload("digits-mlp"), NARROW, [-1])
    with pytest.raises(ConfigError, match='layer "hiden1": did you mean "hidden1"'):
        operand_energies(load_workload("digits-mlp"), NARROW, [0], layers=["hiden1"])


def test_the_command_refuses_what_is_no_step() -> None:
    arguments = ["energy", "fp8-systolic", "--workload", "digits-mlp", "--steps", "0,x"]
    with pytest.raises(ConfigError, match="whole numbers, as in 0,100, not '0,x'"):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
