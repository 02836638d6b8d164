"""Laws of derived gradients: Numba, torch and finite differences agree on random functions of tensors."""

from random import Random

import pytest
import torch

from presilicon.ops import load_operator
from presilicon.programs.executions.numba_execution import run_numba
from presilicon.programs.executions.torch_execution import run_torch
from presilicon.programs.program import ERROR

HEAD = """import math
from presilicon.ops import operator
T = (0.5, -1.25, 0.75, 2.0)
ROOTS = (-0.4, 0.1, 0.9)

"""
SIZES = (1, 7, 8, 9, 64)


class Writer:
    """Writes a function of a matrix, a vector along its rows or columns, and a number."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.result = self.random.choice(["r n", "r n", "n", "r"])
        self.along = {"r n": "n", "n": "r", "r": "n"}[self.result] if self.random.random() < 0.7 else "k"
        self.lines: list[str] = []

    def leaf(self, *, inside: bool) -> str:
        """A number: an element, a weight, a constant; `inside` of a loop over j."""
        own = {"r n": "x[r, n]", "n": "x[0, n]", "r": "x[r, 0]"}[self.result]
        choices = [own, "b", "0.7", "b"]
        if inside:
            element = {"n": "x[r, j]", "r": "x[j, n]", "k": own}[self.along]
            choices += [element, element, {"n": "a[j]", "r": "0.3", "k": "T[j]"}[self.along]]
        return self.random.choice(choices)

    def number(self, depth: int, *, inside: bool) -> str:
        if depth == 0:
            return self.leaf(inside=inside)
        one, other = (self.number(depth - 1, inside=inside) for _ in range(2))
        return self.random.choice(
            [
                f"({one} + {other})", f"({one} * {other})", f"({one} - 0.5 * {other})",
                f"math.tanh({one})", f"({one} / (2.0 + abs({other})))", f"({one} if {other} > 0.1 else 0.5 * {other})",
                f"max({one}, {other})",
            ]
        )  # fmt: skip

    def reduction(self) -> str:
        bound = {"n": "N", "r": "R", "k": "4"}[self.along]
        match self.random.randrange(7):
            case 0:
                return f"max({self.number(1, inside=True)} for j in range({bound}))"
            case 1:
                return f"min({self.number(1, inside=True)} for j in range({bound}))"
            case 2:
                return f"math.prod({self.number(1, inside=False)} - ROOTS[j] for j in range(3))"
            case 3:
                return f"math.log(1.0 + sum(math.exp(0.3 * {self.number(1, inside=True)}) for j in range({bound})))"
            case 4:
                return f"sum({self.number(1, inside=True)} + {self.leaf(inside=False)} for j in range({bound}))"
            case 5:
                return f"sum({self.leaf(inside=False)} for j in range({bound})) / {bound}"
            case _:
                return f"sum(T[j] * {self.number(1, inside=False)} for j in range(4) if j != 2)"

    def loop(self) -> None:
        bound = {"n": "N", "r": "R", "k": "4"}[self.along]
        start, update = self.random.choice(
            [
                ("1.0", "p *= 0.5 + 0.1 * {}"), ("0.0", "p += {}"), ("-9.0", "p = max(p, {})"),
                ("9.0", "p = min({}, p)"), ("0.0", "p -= {}"),
            ]
        )  # fmt: skip
        self.lines += [f"    p = {start}", f"    for j in range({bound}):"]
        if self.random.random() < 0.3:
            self.lines += [f"        if {self.leaf(inside=True)} > 0.0:", "            p += 0.1 * b"]
        else:
            self.lines.append(f"        {update.format(self.number(1, inside=True))}")

    def function(self) -> str:
        head = [f'@operator\ndef f(x: "r n", a: "n", b: "") -> "{self.result}":']
        parts = [self.reduction() for _ in range(self.random.choice([1, 1, 2]))]
        if self.random.random() < 0.5:
            self.loop()
            parts.append("p")
        self.lines.append(f"    return {' + '.join(parts)} + 0.1 * b")
        return HEAD + "\n".join([*head, *self.lines]) + "\n"


def slope_error(operator, operands, gradients, out, error) -> float:
    """The largest relative difference between gradients and finite differences, by operand, in float64."""
    worst = 0.0
    for name, gradient in gradients.items():
        direction = torch.randn(operands[name].shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        ends = [run(operator, operands | {name: operands[name] + sign * 1e-6 * direction}) for sign in (1, -1)]
        found = ((ends[0] - ends[1]) * error).sum() / 2e-6
        expected = (gradient * direction).sum()
        worst = max(worst, float(abs(found - expected) / (1 + abs(found))))
    return worst


def run(operator, operands):
    return run_torch(operator.program, operands, operator.sizes({k: v.shape for k, v in operands.items()}))[0]


def gradients_of(execution, operator, operands, error):
    """The gradients by one execution, with those of an operand in several parts added up."""
    sizes = operator.sizes({name: tuple(tensor.shape) for name, tensor in operands.items()})
    program = operator.gradient_program(operator.specialized((), sizes), tuple(operands))
    needed = {*program.operands, *(result.target for result in program.results)}
    inputs = {name: tensor for name, tensor in (operands | {ERROR: error}).items() if name in needed}
    found: dict[str, torch.Tensor] = {}
    for result, value in zip(program.results, execution(program, inputs, sizes), strict=True):
        found[result.target] = found[result.target] + value if result.target in found else value
    return found


def check(path, seed: int, sizes) -> None:
    (path / "random_ops.py").write_text(Writer(seed).function())
    operator = load_operator(f"{path / 'random_ops.py'}:f")
    for size in sizes:
        for shape in ((3, size), (size, 3)):
            generator = torch.Generator().manual_seed(seed + size)
            x, a, b = (torch.randn(s, generator=generator, dtype=torch.float64) for s in (shape, shape[1:], ()))
            operands = {"x": x, "a": a, "b": b}
            out = run(operator, operands)
            error = torch.randn(out.shape, generator=generator, dtype=torch.float64)
            fast, slow = (gradients_of(execution, operator, operands, error) for execution in (run_numba, run_torch))
            assert fast.keys() == slow.keys()
            for name in fast:
                torch.testing.assert_close(fast[name], slow[name], rtol=1e-9, atol=1e-9)
            assert slope_error(operator, operands, slow, out, error) < 1e-4, (size, shape)
            wrong = {name: 1.07 * gradient + 0.013 for name, gradient in slow.items()}
            assert slope_error(operator, operands, wrong, out, error) > 1e-4, "the comparison could not fail"


@pytest.mark.parametrize("seed", range(8))
def test_gradients_by_numba_torch_and_differences_agree(tmp_path, seed: int) -> None:
    check(tmp_path, seed, (7, 9))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 120))
def test_gradients_agree_at_all_sizes(tmp_path, seed: int) -> None:
    check(tmp_path, seed, SIZES)
