"""Emulated training in lockstep with the simulated circuit: they agree, and a circuit with a fault is found out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

import presilicon as ps
from presilicon.base import MissingToolError
from presilicon.designs import Hardware, Instrument, Tap
from presilicon.formats import parse
from presilicon.instrument import FastModel
from presilicon.instrument.host.lockstep import LockstepEngine
from presilicon.rtl.engine import RtlModel
from presilicon.study.instrumented import train_watched

HARDWARE = Hardware(
    lanes=2, ranges=2, element=parse("bfloat16"), accumulator_bits=32, taps=2, buffer=8, range_rows=3,
    scratchpad_rows=4, chains=8, blocks=("vector_alu", "filter_reduce", "scalar_reduce"),
)  # fmt: skip
QUICK = replace(ps.load_workload("digits-mlp"), target=1.0, max_steps=12, evaluate_every=12, sustain=1)


def design() -> ps.Design:
    taps = (
        Tap(name="into", layers="output", aggregation="gradient_norm", every=1, vectors=16),
        Tap(name="slope", layers="output", role="gradient", aggregation="sparsity", every=2, vectors=16),
    )
    return changed(ps.load_design("fp8-systolic"), instrument=Instrument(hardware=HARDWARE, taps=taps, step_s=1e-3))


def circuit() -> RtlModel:
    try:
        return RtlModel(HARDWARE, in_gap=0.2, out_gap=0.2)
    except MissingToolError as error:
        pytest.skip(str(error))


def test_they_agree_on_every_frame() -> None:
    engine = LockstepEngine(FastModel(HARDWARE), circuit())
    train_watched(QUICK, design(), engine=engine)
    assert engine.difference is None
    assert engine.compared == 12 + 6


@pytest.mark.slow
def test_a_circuit_that_gets_one_word_wrong_is_found_out() -> None:
    class Faulty:
        """The circuit, with a bit of the largest element of a tap's fourth frame flipped on its way in."""

        def __init__(self) -> None:
            self.inside, self.hardware, self.frames = circuit(), HARDWARE, 0

        def feed(self, words: Any, last: Any, tap: int = 0) -> Any:
            self.frames += tap == 0
            if self.frames == 4 and tap == 0:
                words = np.array(words)
                words[np.unravel_index(words.argmax(), words.shape)] ^= 1 << 23
            return self.inside.feed(words, last, tap)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inside, name)

    engine = LockstepEngine(FastModel(HARDWARE), Faulty(), names={0: "into"})
    train_watched(QUICK, design(), engine=engine)
    assert engine.difference is not None
    assert (engine.difference.name, engine.difference.step, engine.difference.element) == ("into", 3, 0)
