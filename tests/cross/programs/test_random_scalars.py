"""Random functions on codes: Python itself is the oracle of the reference, of torch and of Numba."""

import importlib.util
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import torch

from presilicon.programs import compile_scalars, evaluate, numba_function, run_torch

HEAD = """import math
TABLE = [3, -1, 4, 1, 5, -9, 2, 6]


def helper(p, q):
    if p > q:
        return p - q, q & 7
    return q, (p ^ q) & 15


"""


class Writer:
    """Writes statements about whole numbers that are small enough never to wrap around."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.loops = 0

    def number(self, names: list[str], depth: int = 0) -> str:
        pick = self.random.choice
        if depth > 2 or self.random.random() < 0.3:
            return pick([*names, str(self.random.randint(-9, 99))])
        one, other = (self.number(names, depth + 1) for _ in range(2))
        return pick([
            f"({one} + {other})", f"({one} - {other})", f"({one} * 3)", f"({one} & {other})", f"({one} | {other})",
            f"({one} ^ {other})", f"({one} >> ({other} & 7))", f"(({one} & 255) << 2)", f"({one} // 5)",
            f"({one} % (1 + ({other} & 15)))", f"({one} // (1 + ({other} & 31)))", f"min({one}, {other})", f"~{one}",
            f"max({one}, {other})", f"abs({one})", f"TABLE[{one} & 7]", f"TABLE[-1 - ({one} & 7)]",
            f"({one} if {self.test(names, depth + 1)} else {other})", f"int({one} / 7)", f"round({one} * 0.5)",
            f"int(math.sqrt(abs({one})))", f"({one} > {other})", f"helper({one}, {other})[{self.random.randint(0, 1)}]",
            f"(TABLE[{one}] if 0 <= {one} < 8 else {other})", f"math.floor({one} * 0.75)", f"({one} and {other})",
        ])  # fmt: skip

    def test(self, names: list[str], depth: int = 0) -> str:
        one, other = self.number(names, depth + 1), self.number(names, depth + 1)
        return self.random.choice([
            f"{one} < {other}", f"{one} == {other}", f"{one} & 4", f"not {one}", f"{one} <= {other} < 90",
            f"({one} > 3 or {other} < 2)", f"({one} & 1 and {other} > 0)",
        ])  # fmt: skip

    def block(self, names: list[str], depth: int, in_loop: bool) -> None:
        pad = "    " * depth
        self.lines.append(f"{pad}pass")
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.random()
            if kind < 0.4 or depth > 4:
                target = self.random.choice(["u", "v", "w"])
                self.lines.append(f"{pad}{target} = ({self.number(names)}) & 0xFFFF")
            elif kind < 0.5:
                self.lines.append(f"{pad}u, v = helper({self.number(names)}, v)")
            elif kind < 0.7:
                self.lines.append(f"{pad}if {self.test(names)}:")
                self.block(names, depth + 1, in_loop)
                if self.random.random() < 0.5:
                    self.lines.append(f"{pad}else:")
                    self.block(names, depth + 1, in_loop)
            elif kind < 0.9 and self.loops < 3:
                self.loops += 1
                counter = f"k{self.loops}"
                if self.random.random() < 0.5:
                    bound = self.random.choice(["4", "2, 11, 3", "5, -1, -2", f"({self.number(names)}) % 6", "70"])
                    self.lines.append(f"{pad}for {counter} in range({bound}):")
                else:
                    self.lines += [f"{pad}{counter} = u & 7", f"{pad}while {counter} > 0:"]
                    self.lines.append(f"{pad}    {counter} -= 1")
                self.block([*names, counter], depth + 1, in_loop=True)
            elif in_loop:
                word = self.random.choice(["break", "continue", f"return {self.number(names)}"])
                self.lines += [f"{pad}if {self.test(names)}:", f"{pad}    {word}"]
            elif self.random.random() < 0.3:
                self.lines += [f"{pad}if {self.test(names)}:", f"{pad}    return {self.number(names)}"]

    def function(self) -> str:
        self.lines = ["def f(a, b):", "    u, v, w = a, b, 1"]
        self.block(["a", "b", "u", "v", "w"], 1, in_loop=False)
        self.lines.append("    return u + 3 * v - w")
        return "\n".join(self.lines) + "\n"


def load(path: Path, text: str) -> ModuleType:
    path.write_text(HEAD + text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 400))])
def test_all_executions_have_the_results_of_python(tmp_path: Path, seed: int) -> None:
    text = Writer(seed).function()
    function = load(tmp_path / f"codes{seed}.py", text).f
    program = compile_scalars(function, ["integer", "integer"])
    random = Random(seed)
    pairs = [(random.randrange(256), random.randrange(256)) for _ in range(25)] + [(0, 0), (255, 1)]
    wanted = [int(function(a, b)) for a, b in pairs]
    assert [evaluate(program, {"x0": a, "x1": b})[0] for a, b in pairs] == wanted, text
    a, b = torch.tensor(pairs).double().T
    assert run_torch(program, {"x0": a, "x1": b}, {"_": len(pairs)})[0].tolist() == wanted, text
    if seed % 4 == 0:  # a compilation takes a second
        compiled = numba_function(program, ["integer", "integer"])
        assert [compiled(a, b) for a, b in pairs] == wanted, text


def test_the_writer_uses_every_construct() -> None:
    written = "".join(Writer(seed).function() for seed in range(20))
    for word in ("while", "break", "continue", "for k", "return", "helper", "TABLE[-1", "math.floor", "if ", "70"):
        assert word in written
