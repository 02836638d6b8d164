"""The reference and the fast model agree bit by bit on random instruments, firmware and vectors."""

from itertools import pairwise

import numpy as np
import pytest
from cases import differences, random_case

from presilicon.instrument import FastModel, Reference

SEEDS = 400
MANY = 100_000


def test_random_cases() -> None:
    for seed in range(SEEDS):
        case = random_case(seed)
        found = differences(case, Reference(case.hardware), FastModel(case.hardware))
        assert not found, (seed, case.hardware, found)


def test_the_cases_are_worth_something() -> None:
    """They send blocks, fill memories, flush, use every word format, and meet every condition."""
    blocks, formats, masks, busy = 0, set(), set(), 0
    for seed in range(SEEDS):
        case = random_case(seed)
        engine = FastModel(case.hardware)
        engine.load(case.images[0])
        for tap, words, last in case.frames:
            blocks += len(engine.feed(words, last, tap))
        busy += bool(engine.scratchpad.any())
        formats.add((str(case.hardware.element), case.hardware.word_bits))
        for chain in case.images[0].chains:
            masks |= {chain.alu_conditions, chain.cache_conditions, chain.commit_conditions}
    assert blocks > 10 * SEEDS
    assert len(formats) > 30
    assert busy > SEEDS / 3
    assert all(any(mask >> bit & 1 for mask in masks) for bit in range(8))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_random_cases(part: int) -> None:
    for seed in range(SEEDS + part * MANY // 20, SEEDS + (part + 1) * MANY // 20):
        case = random_case(seed, vectors=12)
        found = differences(case, Reference(case.hardware), FastModel(case.hardware))
        assert not found, (seed, case.hardware, found)


@pytest.mark.parametrize("seed", range(40))
def test_one_call_or_many(seed: int) -> None:
    """How a stream is divided into calls changes nothing, for either engine."""
    case = random_case(seed, vectors=40)
    rng = np.random.default_rng(seed)
    for kind in (Reference, FastModel):
        whole, parts = kind(case.hardware), kind(case.hardware)
        for engine in (whole, parts):
            engine.load(case.images[0])
        for tap, words, last in case.frames:
            together = list(whole.feed(words, last, tap))
            cuts = [0, *sorted(rng.integers(0, len(words) + 1, 3).tolist()), len(words)]
            pieces = [parts.feed(words[a:b], last[a:b], tap) for a, b in pairwise(cuts)]
            assert [block for piece in pieces for block in piece] == together
        assert parts.scratchpad.tolist() == whole.scratchpad.tolist()
        assert parts.partial.tolist() == whole.partial.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_an_image_waits_for_the_frame_s_end_and_frames_break_off(seed: int) -> None:
    """Both engines exchange firmware within calls, after the outer frame under way, and take back what was begun."""
    case = random_case(seed, vectors=40)
    rng = np.random.default_rng(seed)
    one, other = Reference(case.hardware), FastModel(case.hardware)
    for engine in (one, other):
        engine.load(case.images[0])
    for number, (tap, words, last) in enumerate(case.frames):
        cut = int(rng.integers(0, len(words) + 1))
        broken = case.hardware.flushes and rng.random() < 0.3
        for engine in (one, other):
            begun = list(engine.feed(words[:cut], last[:cut], tap))
            engine.load(case.images[number % 2])
            if broken:
                engine.break_off()
                engine.blocks = begun
            else:
                engine.blocks = begun + list(engine.feed(words[cut:], last[cut:], tap))
        assert one.blocks == other.blocks
        for name in ("scratchpad", "carried", "partial", "first"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
