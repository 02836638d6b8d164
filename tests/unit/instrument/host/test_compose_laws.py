"""Taps in turns on one chip compute what each computes on a chip of its own, whatever each keeps between frames."""

import random

import numpy as np

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import FastModel, Firmware, compile_firmware, to_words
from presilicon.instrument.host.taps import compose
from presilicon.instrument.host.tensors import cut_tensor

HARDWARE = Hardware(
    lanes=4, ranges=4, taps=4, element=parse("float32"), accumulator_bits=32, chains=32, range_rows=8,
    scratchpad_rows=32,
)  # fmt: skip
KINDS = ("total", "largest", "passing", "within a frame")


def some_firmware(draw: random.Random) -> tuple[Firmware, frozenset[int]]:
    """Chains that each keep a row of their own from frame to frame, or use one within a frame; and the kept rows."""
    firmware, kept = Firmware(), set()
    for row in draw.sample(range(6), draw.randint(1, 4)):
        kind = draw.choice(KINDS)
        with firmware.chain():
            if kind == "total":
                firmware.add(row)
                firmware.cache(row)
            elif kind == "largest":
                firmware.max(row)
                firmware.cache(row)
            elif kind == "within a frame":
                firmware.add(row, "notfirst")
                firmware.cache(row)
            firmware.commit("N", "last")
        kept |= {row} if kind in ("total", "largest") else set()
    return firmware, frozenset(kept)


def test_taps_together_compute_what_each_does_alone() -> None:
    draw, numbers, most = random.Random(11), np.random.default_rng(11), 0
    for _ in range(25):
        drawn = {tap: some_firmware(draw) for tap in range(draw.randint(2, 4))}
        if draw.random() < 0.3:  # two with the same firmware
            drawn[0] = drawn[1]
        firmwares = {tap: firmware for tap, (firmware, _) in drawn.items()}
        most = max(most, *(len(kept) for _, kept in drawn.values()))
        together = FastModel(HARDWARE)
        together.load(compile_firmware(compose(firmwares, HARDWARE).firmware, HARDWARE))
        alone = {}
        for tap, firmware in firmwares.items():
            alone[tap] = FastModel(HARDWARE)
            alone[tap].load(compile_firmware(firmware, HARDWARE))
        for tap in draw.choices(list(firmwares), k=12):
            words, last = cut_tensor(to_words(HARDWARE, numbers.normal(size=(3, 4))), 4)
            mine, theirs = together.feed(words, last, tap), alone[tap].feed(words, last, tap)
            assert [block.words.tolist() for block in mine] == [block.words.tolist() for block in theirs]
    assert most > 2
