"""Bytes of the values of a step: those of each tensor's own format, and the same with and without memory."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from presilicon.designs import Numerics, Override, ProductNumerics, StepFormats
from presilicon.records import StepFacts
from presilicon.simulation import executed_ops
from presilicon.simulation.fusion.values import find_values
from presilicon.simulation.recent import Recent
from presilicon.workloads import capture

FORMATS = Numerics(weight="e4m3fn", activation="bfloat16", error="e5m2", gradient="float16")
NUMERICS = {
    "plain": Numerics(),
    "formats": FORMATS,
    "own layer": replace(FORMATS, overrides=(Override(layers="2", weight="float32", activation="e5m2"),)),
    "own products": replace(
        FORMATS, weight_grad=ProductNumerics(activation="float32"), input_grad=ProductNumerics(weight="bfloat16")
    ),
    "own product of a layer": replace(
        FORMATS, overrides=(Override(layers="0", input_grad=ProductNumerics(error="float32")),)
    ),
}
GRAPH = capture(
    nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 4)), torch.empty(5, 6)
)

EXECUTED = tuple(executed_ops(GRAPH, StepFormats(Numerics(), StepFacts(), GRAPH), StepFacts()))
"""One object: findings are remembered by it."""


def sized(numerics: Numerics):
    formats = StepFormats(numerics, StepFacts(), GRAPH)
    return formats, find_values(GRAPH, EXECUTED, formats)


@pytest.mark.parametrize("name", NUMERICS)
def test_every_tensor_has_the_bytes_of_its_own_format(name: str) -> None:
    formats, found = sized(NUMERICS[name])
    widths = set()
    for op, read, written in zip(EXECUTED, found.read_bytes, found.written_bytes, strict=True):
        for tensor, size in zip(op.inputs, read, strict=True):
            assert size == formats.bytes_of(tensor, op.layer, op.product_phase)
            widths.add(size / tensor.elements)
        for tensor, size in zip(op.outputs, written, strict=True):
            assert size == formats.written_bytes(tensor, op.layer)
    largest = dict.fromkeys(range(len(found.writer)), 0.0)
    for numbers, moved in zip((*found.reads, *found.writes), (*found.read_bytes, *found.written_bytes), strict=True):
        for value, size in zip(numbers, moved, strict=True):
            largest[value] = max(largest[value], size)
    assert found.size_bytes == tuple(largest.values())
    assert (len(widths) == 1) == (name == "plain")


def test_what_is_remembered_of_a_step_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = [sized(NUMERICS[name])[1] for name in (*NUMERICS, *reversed(NUMERICS))]
    assert remembered == [*remembered[: len(NUMERICS)], *reversed(remembered[: len(NUMERICS)])]
    monkeypatch.setattr(Recent, "find", lambda self, key, more, make: make())
    assert remembered[: len(NUMERICS)] == [sized(numerics)[1] for numerics in NUMERICS.values()]
