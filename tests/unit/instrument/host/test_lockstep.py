"""A fault in one of two engines is named: tap, step, element, and what either side has."""

from typing import Any

import numpy as np
import pytest

from presilicon.designs import Hardware, Instrument
from presilicon.formats import parse
from presilicon.instrument import FastModel, Firmware, Reference, compile_firmware, to_words
from presilicon.instrument.host.lockstep import LockstepEngine, compare_streams, frames_of
from presilicon.instrument.model.chip import Chip, whole

HARDWARE = Hardware(lanes=4, ranges=4, taps=2, element=parse("fixed(8, 8)"), accumulator_bits=24)


def image() -> bytes:
    fw = Firmware()
    with fw.chain():  # the sum of each lane
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.commit("N", "last")
    with fw.chain():  # the largest of all
        fw.max(1, "notfirst")
        fw.cache(1)
        fw.reduce_to("max")
        fw.commit(1, "last")
    return compile_firmware(fw, HARDWARE).to_bytes()


class Faulty(Reference):
    """A circuit with a fault: a lane that is stuck at 0 from some frame on, or one word of a block that is flipped."""

    def __init__(self, *, stuck_lane: int | None = None, flip: tuple[int, int] | None = None, at: int = 5) -> None:
        super().__init__(HARDWARE)
        self.stuck_lane, self.flip, self.at = stuck_lane, flip, at
        self.frames = 0

    def feed(self, words: Any, last: Any, tap: int = 0) -> Any:
        words = np.array(words)
        is_due = self.frames >= self.at
        self.frames += 1
        if is_due and self.stuck_lane is not None:
            words[:, self.stuck_lane] = 0
        blocks = list(super().feed(words, last, tap))
        if is_due and self.flip is not None:
            element, bit = self.flip
            block = blocks[element // HARDWARE.lanes]
            block.words[element % HARDWARE.lanes] ^= 1 << bit
        return blocks


def vectors(step: int, tap: int) -> Any:
    numbers = np.random.default_rng([step, tap]).normal(size=(6, 4)) + 3
    return whole(to_words(HARDWARE, numbers))


def record(engine: Any, steps: int = 10) -> bytes:
    chip = Chip(Instrument(hardware=HARDWARE), engine)
    chip.receive(image())
    for step in range(steps):
        for tap in range(2):
            if isinstance(engine, LockstepEngine):
                engine.step = step
            chip.offer(tap, step, step * 1e-3 + tap * 1e-4, lambda step=step, tap=tap: vectors(step, tap))
    return chip.take()


def test_engines_that_agree() -> None:
    engine = LockstepEngine(FastModel(HARDWARE), Reference(HARDWARE))
    record(engine)
    assert engine.compared == 20
    assert engine.difference is None


def test_a_flipped_bit_is_named() -> None:
    engine = LockstepEngine(FastModel(HARDWARE), Faulty(flip=(2, 3)), names={1: "hidden"})
    record(engine)
    found = engine.difference
    assert found is not None
    assert (found.tap, found.name, found.step, found.element) == (1, "hidden", 2, 2)
    right = int(vectors(2, 1)[0][:, 2].sum())
    assert (found.here_word, found.there_word) == (right, right ^ 8)
    assert found.here == pytest.approx(right / 256)
    assert str(found).startswith("tap hidden, step 2, element 2: here ")


def test_a_stuck_lane_is_named_in_recorded_streams() -> None:
    good, bad = record(FastModel(HARDWARE)), record(Faulty(stuck_lane=3, at=8))
    found = compare_streams(good, bad, HARDWARE, names={0: "error", 1: "hidden"})
    assert found.compared == 20
    assert found.difference is not None
    difference = found.difference
    assert (difference.name, difference.step, difference.element, difference.there) == ("error", 4, 3, 0.0)


def test_frames_that_one_side_has_not_are_no_difference() -> None:
    good = record(FastModel(HARDWARE))
    damaged = bytearray(good)
    damaged[300] ^= 1
    found = compare_streams(good, bytes(damaged), HARDWARE)
    assert found.difference is None
    assert found.only_there == 0
    assert found.only_here >= 1
    assert found.compared + found.only_here == len(frames_of(good, HARDWARE))


def test_a_frame_that_ends_early_differs_at_the_first_word_that_is_missing() -> None:
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.commit("N", "last")
    shorter = compile_firmware(fw, HARDWARE).to_bytes()
    good = record(FastModel(HARDWARE))
    chip = Chip(Instrument(hardware=HARDWARE), Reference(HARDWARE))
    chip.receive(shorter)
    chip.offer(0, 0, 0.0, lambda: vectors(0, 0))
    found = compare_streams(good, chip.take(), HARDWARE).difference
    assert found is not None
    assert (found.element, found.there, found.there_word) == (4, None, None)
    assert "there nothing" in str(found)
