"""Random functions of the operator language: plain Python, the reference, torch and Numba agree bit for bit.

Numbers are written as floats, and `floor` is left out: Python's integers have no -0, and the language has only floats.
"""

import math
import struct
from random import Random

import pytest
import torch

from presilicon.formats import parse
from presilicon.ops import load_operator
from presilicon.ops.custom.rounding import step_rounding
from presilicon.programs.executions.numba_execution import run_numba
from presilicon.programs.executions.torch_execution import run_torch
from presilicon.programs.reference import evaluate

CONSTANTS = ["0.5", "1.0", "2.0", "-1.0", "0.25", "3.0", "-0.0", "1e-3", "K"]
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, 0.5, -0.5, 1e-310, 5e-324]
HEAD = 'import math\nfrom presilicon.ops import operator\nK = 0.75\n\n@operator("tanh")\ndef f(x):\n'


class Writer:
    """Writes a function that assigns, branches and returns at random."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []

    def number(self, names: list[str], depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.15:
            return self.random.choice([*names, *names, *CONSTANTS])
        a, b, c = (self.number(names, depth - 1) for _ in range(3))
        forms = [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / (1.0 + abs({b})))", f"({a} / 3.0)", f"(-{a})"]
        forms += [f"abs({a})", f"min({a}, {b})", f"max({a}, {b}, {c})", f"math.sqrt(abs({a}))"]
        forms += [f"({a} if {self.condition(names, depth - 1)} else {b})"]
        return self.random.choice(forms)

    def condition(self, names: list[str], depth: int) -> str:
        a, b, c = (self.number(names, depth - 1) for _ in range(3))
        forms = [f"{a} {self.random.choice(['<', '<=', '>', '>=', '==', '!='])} {b}", f"{a} < {b} <= {c}"]
        if depth > 0:
            one, other = self.condition(names, depth - 1), self.condition(names, depth - 1)
            forms += [f"({one} and {other})", f"({one} or {other})", f"(not {one})"]
        return self.random.choice(forms)

    def block(self, names: list[str], indent: int, depth: int) -> None:
        names, pad = list(names), "    " * indent
        for _ in range(self.random.randrange(1, 4)):
            match self.random.randrange(6):
                case 0 | 1:
                    name = self.random.choice("abcd")
                    self.lines.append(f"{pad}{name} = {self.number(names, 3)}")
                    names.append(name)
                case 2 if depth:
                    for word in ("if", "elif"):
                        self.lines.append(f"{pad}{word} {self.condition(names, 2)}:")
                        self.block(names, indent + 1, depth - 1)
                    if self.random.random() < 0.5:
                        self.lines.append(f"{pad}else:")
                        self.block(names, indent + 1, depth - 1)
                case 3 if depth:
                    self.lines.append(f"{pad}match {self.number(names, 2)}:")
                    guard = f"w if w < {self.number(names, 1)}"
                    for pattern in ("0.0", "1.0 | 2 | -0.5", guard, f"_ if {self.condition(names, 2)}", "_"):
                        self.lines.append(f"{pad}    case {pattern}:")
                        self.block(names, indent + 2, depth - 1)
                case 4 if indent > 1:
                    self.lines.append(f"{pad}return {self.number(names, 3)}")
                    return
                case _:
                    self.lines.append(f"{pad}{self.random.choice(names)} += {self.number(names, 2)}")

    def function(self) -> str:
        self.block(["x"], 1, 2)
        self.lines.append(f"    return {self.number(['x'], 4)}")
        return HEAD + "\n".join(self.lines) + "\n"


def bits(value: float) -> bytes:
    return struct.pack("d", math.nan if math.isnan(value) else value)


@pytest.mark.parametrize("seed", range(40))
def test_all_executions_agree(tmp_path, seed: int) -> None:
    (tmp_path / "random_ops.py").write_text(Writer(seed).function())
    chosen = load_operator(f"{tmp_path / 'random_ops.py'}:f")
    inputs = [*EDGES, *(Random(seed).uniform(-4, 4) for _ in range(30))]
    for x in inputs:
        try:
            wanted = float(chosen.function(x))  # type: ignore[misc]
        except (OverflowError, ValueError, ZeroDivisionError):
            continue
        assert bits(chosen(x)) == bits(wanted), x
    for dtype, fmt in ((torch.float64, None), (torch.float32, parse("float32"))):
        x = torch.tensor(inputs, dtype=dtype)
        rows = [evaluate(chosen.both, value, step_rounding(fmt)) for value in x.tolist()]
        for run in (run_torch, run_numba) if seed % 4 == 0 else (run_torch,):  # compiling takes a second
            for place, got in enumerate(run(chosen.both, {"x": x}, {"_": len(x)})):
                expected = torch.tensor([row[place] for row in rows], dtype=dtype)
                same = (got == expected) & (got.signbit() == expected.signbit())
                assert bool((same | (got.isnan() & expected.isnan())).all()), (run, place)
