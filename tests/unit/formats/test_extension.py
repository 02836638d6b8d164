"""A family of number formats that another package adds, in one file."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interpreter import Interpreter

TOY = '''
from dataclasses import dataclass
from typing import ClassVar

from presilicon.formats import Format


@dataclass(frozen=True)
class Toy(Format):
    """Sign and magnitude, with powers of the square root of 2."""

    kind: ClassVar[str] = "toy"

    bits: int

    @classmethod
    def names(cls):
        return {"toy4": cls(4)}

    def code_values(self):
        half = 1 << self.bits - 1
        magnitudes = [0.0, *(2 ** ((code - half // 2) / 2) for code in range(1, half))]
        return [*magnitudes, *(-value for value in magnitudes)]
'''

ROUNDINGS = """
import torch
from presilicon.formats import decode, encode, parse, quantize, quantize_value
fmt, x = parse("toy(5)"), torch.randn(500, generator=torch.Generator().manual_seed(0)) * 4
for mode in ("nearest-even", "nearest-away", "toward-zero", "up", "down", "stochastic"):
    expected = torch.tensor([quantize_value(number, fmt, mode, index=i) for i, number in enumerate(x.tolist())])
    compiled = quantize(x, fmt, rounding=mode)
    assert torch.equal(compiled, expected), mode
    assert torch.equal(quantize(x.double(), fmt, rounding=mode).float(), expected), mode
    assert torch.equal(decode(encode(x, fmt, rounding=mode), fmt), expected), mode
assert (fmt.significand_bits, fmt.exponent_bits, str(parse("toy4")), str(parse("toy(4)"))) == (24, 3, "toy4", "toy4")
print("equal")
"""


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    """A process where the package of the family is installed."""
    folder = tmp_path_factory.mktemp("toy")
    metadata = folder / "toy-0.1.dist-info"
    metadata.mkdir()
    (folder / "toy.py").write_text(TOY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[presilicon.formats]\ntoy = toy:Toy\nmisnamed = toy:Toy\n")
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    with Interpreter(os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}) as interpreter:
        yield interpreter


def test_commands_take_a_family_of_another_package(interpreter: Interpreter, tmp_path: Path) -> None:
    def document(*words: str) -> dict[str, object]:
        outcome = interpreter.presilicon(*words, "--json")
        assert outcome.status == 0, outcome
        return json.loads(outcome.out)  # type: ignore[no-any-return]

    quantised = document("quantize", "toy(3)", "0.3", "1.7")
    assert quantised["format"] == "toy(bits=3)"
    assert [value["code"] for value in quantised["values"]] == [0, 3]  # type: ignore[attr-defined]
    listed = document("list", "formats")
    assert listed["families"]["toy"] == ["bits"]  # type: ignore[index]
    assert listed["formats"][-1] == {"name": "toy4", "bits_per_element": 4.0, "description": "toy(bits=4)"}  # type: ignore[index]
    weight = ("--set", "numerics.weight=toy(3)")
    gemm = ("simulate", "bf16-systolic", "--gemm", "8x8x8")
    (toy,), (plain,) = (document(*gemm, *settings)["designs"] for settings in (weight, ()))  # type: ignore[misc]
    assert toy["bytes_dram"] < plain["bytes_dram"]
    runs = ("--seeds", "2", "--jobs", "2", "--out", str(tmp_path / "runs"))
    steps = ("--max-steps", "6", "--evaluate-every", "2")
    evaluated = document("evaluate", "bf16-systolic", "--workload", "digits-mlp", *weight, *runs, *steps)
    assert "toy(bits=3)" in json.dumps(evaluated)


def test_a_family_must_be_registered_under_its_own_kind(interpreter: Interpreter) -> None:
    outcome = interpreter.presilicon("quantize", "misnamed(3)", "1")
    assert outcome.status == 2
    assert 'the class Toy must have kind = "misnamed"' in outcome.err


def test_a_list_of_values_is_enough_for_all_roundings(interpreter: Interpreter) -> None:
    outcome = interpreter.run(ROUNDINGS)
    assert (outcome.status, outcome.out.strip()) == (0, "equal")
