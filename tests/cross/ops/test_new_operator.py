"""An operator that one file adds is known everywhere: captured, emulated in steps, fused, priced, run on a board."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat, load_design
from presilicon.emulation import coverage
from presilicon.formats import parse, quantize_value
from presilicon.ops import compile_formula, enter, is_unknown, withdraw
from presilicon.programs import StepRounding, evaluate
from presilicon.records import Op, StepGraph
from presilicon.simulation.fusion.parts import style_of
from scaled_bessel import ENTRIES

FORMAT = RoleFormat(parse("bfloat16"))
STEPS = Numerics(activation=FORMAT, error=FORMAT, vector="round-steps")
MACHINES = ("edge-bf16", "bf16-systolic", "caterpillar-small", "h200", "xeon-8t")


class Bessel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.special.i0e(self.first(x)))


@pytest.fixture
def entered() -> Iterator[None]:
    for entry in ENTRIES:
        enter(entry)
    yield
    for entry in ENTRIES:
        withdraw(entry.name)


def the_op(graph: StepGraph) -> Op:
    [op] = [op for op in graph.ops if "i0e" in op.operator]
    return op


def test_it_is_captured(entered: None) -> None:
    graph = ps.capture(Bessel(), torch.empty(32, 8))
    op = the_op(graph)
    assert (op.kind, op.phase, op.flops) == ("elementwise", "forward", 32 * 16)
    assert not any(map(is_unknown, graph.ops))


def test_it_is_computed_in_steps(entered: None) -> None:
    """Each step is rounded as the language's reference rounds it; without rounding the gradient is torch's."""
    x = torch.cat([torch.linspace(-9, 9, 41), torch.tensor([0.0, 3.75, -3.75])])
    rounding = StepRounding(lambda value: quantize_value(value, FORMAT.format), torch.Tensor.bfloat16, True)
    expected = [evaluate(compile_formula(ENTRIES[0].forward.formula), float(number), rounding)[0] for number in x]

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.i0e(x)

    model = ps.emulate_(Alone(), STEPS)
    assert model(x).tolist() == expected
    assert expected != torch.special.i0e(x).to(torch.bfloat16).tolist(), "the steps show"
    wide = RoleFormat(parse("float32"))
    leaf, exact = x.double().float().requires_grad_(), x.clone().requires_grad_()
    ps.emulate_(Alone(), Numerics(activation=wide, error=wide, vector="round-steps"))(leaf).sum().backward()
    torch.special.i0e(exact).sum().backward()
    torch.testing.assert_close(leaf.grad[:41], exact.grad[:41], rtol=1e-4, atol=2e-6)


def test_coverage_lists_its_steps(entered: None) -> None:
    listed = {op.operator for op in coverage(Bessel(), STEPS, torch.randn(4, 8)).ops if op.stage == "forward"}
    assert {"i0e.exp", "i0e.mul", "i0e.div"} <= listed


@pytest.mark.parametrize("name", MACHINES)
def test_it_is_fused_and_priced(entered: None, name: str) -> None:
    """As any other function of an element: as much as a tanh in its place, where no card has measured either."""
    graph = ps.capture(Bessel(), torch.empty(32, 8))
    op = the_op(graph)
    assert style_of(op) == "map"
    cost = ps.simulate(graph, load_design(name))
    assert cost.unknown_operators == ()
    [price] = [price for price in cost.ops if price.name == op.name]
    assert price.flops == op.flops


def test_without_its_entry_it_is_captured_and_named() -> None:
    graph = ps.capture(Bessel(), torch.empty(32, 8))
    assert the_op(graph).kind == "elementwise", "torch says so much"
    cost = ps.simulate(graph, load_design("edge-bf16"))
    assert cost.unknown_operators == ("aten.special_i0e.default", "aten.special_i1e.default")


def test_it_runs_on_a_board(entered: None) -> None:
    opencl = pytest.importorskip("presilicon.scheduling.runtime.opencl.device")
    board = opencl.OpenCLDevice()
    aten = torch.ops.aten
    x = torch.linspace(-9, 9, 1001)
    try:
        for function in (aten.special_i0e.default, aten.special_i1e.default, aten.sgn.default):
            assert board.covers(function, (x,), {})
            found = board.get(board.run(function, (board.put(x),), {}))
            torch.testing.assert_close(found, function(x), rtol=3e-6, atol=1e-6)
    finally:
        board.close()
