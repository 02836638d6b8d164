"""What every engine shares: blocks and frames, breaking off, and calls that make no sense."""

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import FastModel, Firmware, PackedBlock, Reference, compile_firmware
from presilicon.instrument.firmware.image import StoredRow
from presilicon.instrument.model.engine import Blocks

BARE = Hardware(lanes=4, ranges=2, range_rows=2, scratchpad_rows=2, chains=4, element=parse("int8"))
FLUSHING = replace(BARE, flush="frame")
ENGINES = pytest.mark.parametrize("kind", [Reference, FastModel])
GOES_ON, ENDS = [False, False], [True, True]


def summing(commit="N", *conditions) -> Firmware:
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.commit(commit, *conditions)
    return fw


def make(kind, hardware, firmware):
    engine = kind(hardware)
    engine.load(compile_firmware(firmware, hardware))
    return engine


def shown(blocks):
    return [(block.words.tolist(), block.last) for block in blocks]


@ENGINES
def test_a_new_engine_is_empty(kind) -> None:
    engine = kind(BARE)
    assert not engine.scratchpad.any()
    assert engine.scratchpad.shape == (2, 4)
    assert engine.carried.tolist() == [0] * 4
    assert engine.partial.tolist() == []
    assert engine.first.tolist() == [[True, True]]
    assert list(engine.feed([[1, 2, 3, 4]], [ENDS])) == []  # without firmware nothing is sent


@ENGINES
def test_rows_never_written_hold_nothing(kind) -> None:
    fw = Firmware()
    with fw.chain():
        fw.filter(1)
        fw.reduce("N")
        fw.commit("N")
    assert shown(make(kind, BARE, fw).feed([[0, 1, 2, 3]], [ENDS])) == [([0, 0, 0, 0], False)]


@ENGINES
def test_a_flush_at_the_end_of_every_outer_frame(kind) -> None:
    engine = make(kind, FLUSHING, summing("M", "last"))
    vector = [[1, 2, 3, 4]]
    assert shown(engine.feed(vector, [[True, False]])) == []
    assert engine.partial.tolist() == [1, 2]
    assert shown(engine.feed(vector * 3, [ENDS, GOES_ON, ENDS])) == [([1, 2, 1, 2], True), ([2, 4], True)]
    assert engine.partial.tolist() == []


@ENGINES
def test_the_last_full_block_of_a_frame_is_its_last(kind) -> None:
    engine = make(kind, FLUSHING, summing("N", "first"))
    assert shown(engine.feed([[1, 2, 3, 4]] * 3, [GOES_ON] * 3)) == []  # held back until the frame has ended
    assert shown(engine.feed([[1, 2, 3, 4]], [ENDS])) == [([1, 2, 3, 4], True)]


@ENGINES
def test_a_frame_that_commits_nothing_sends_an_empty_block(kind) -> None:
    engine = make(kind, FLUSHING, summing("N", "first", "notfirst@1"))
    assert shown(engine.feed([[1, 2, 3, 4]] * 2, [ENDS, ENDS])) == [([], True), ([], True)]


@ENGINES
def test_a_frame_broken_off_leaves_its_traces_in_memory_only(kind) -> None:
    engine = make(kind, FLUSHING, summing("N"))
    engine.feed([[1, 1, 1, 1], [2, 2, 2, 2]], [GOES_ON, GOES_ON])
    engine.break_off()
    assert engine.partial.tolist() == []
    assert engine.scratchpad[0].tolist() == [3] * 4
    assert engine.first.tolist() == [[True, True]]
    assert shown(engine.feed([[5, 5, 5, 5]], [ENDS])) == [([5, 5, 5, 5], True)]
    engine.break_off()  # between frames there is nothing to break off
    assert shown(engine.feed([[6, 6, 6, 6]], [ENDS])) == [([6, 6, 6, 6], True)]


@ENGINES
def test_nothing_breaks_off_in_the_bare_core(kind) -> None:
    with pytest.raises(ConfigError, match="never"):
        make(kind, BARE, summing()).break_off()


@ENGINES
@pytest.mark.parametrize(
    ("words", "last", "tap", "message"),
    [
        ([[1, 2, 3]], [ENDS], 0, "expected \\(vectors, 4\\)"),
        ([1, 2, 3, 4], [ENDS], 0, "expected \\(vectors, 4\\)"),
        ([[1, 2, 3, 4]], [True, True], 0, "two flags for each vector"),
        ([[1, 2, 3, 4]], [ENDS, ENDS], 0, "two flags for each vector"),
        ([[1, 2, 3, 4]], [ENDS], 1, "taps 0 to 0"),
        ([[1, 2, 3, 128]], [ENDS], 0, "words outside -128 to 127"),
    ],
)
def test_calls_that_make_no_sense(kind, words, last, tap, message) -> None:
    engine = make(kind, BARE, summing())
    with pytest.raises(ConfigError, match=message):
        engine.feed(words, last, tap)
    assert shown(engine.feed([[1, 2, 3, 4]], [GOES_ON])) == [([1, 2, 3, 4], False)]


@ENGINES
def test_no_vectors(kind) -> None:
    engine = make(kind, FLUSHING, summing())
    assert list(engine.feed(np.zeros((0, 4), int), np.zeros((0, 2), bool))) == []
    assert engine.first.tolist() == [[True, True]]


@ENGINES
def test_what_an_engine_shows_is_a_copy(kind) -> None:
    engine = make(kind, BARE, summing(1))
    engine.feed([[1, 2, 3, 4]], [GOES_ON])
    for name in ("scratchpad", "carried", "partial", "first"):
        before = getattr(engine, name).tolist()
        getattr(engine, name)[...] = 0
        assert getattr(engine, name).tolist() == before


def test_blocks_are_a_sequence() -> None:
    blocks = Blocks.cut(1, np.arange(8), 4)
    assert len(blocks) == 2
    assert blocks[-1] == PackedBlock(1, np.arange(4, 8), False)
    assert blocks[:1] == [PackedBlock(1, np.arange(4), False)]
    assert blocks == list(blocks)
    assert blocks != list(blocks)[:1]
    assert blocks[0] != blocks[1]
    with pytest.raises(IndexError):
        blocks[2]
    joined = blocks + Blocks.cut_frames(0, np.arange(3), np.array([3]), 4)
    assert [(block.tap, block.words.tolist(), block.last) for block in joined][-1] == (0, [0, 1, 2], True)
    assert len(joined) == 3


@pytest.mark.parametrize("axis", ["M", "N"])
@pytest.mark.parametrize("element", ["int8", "e5m2"])
def test_boundaries_that_no_compiler_wrote_mean_the_same(axis, element) -> None:
    """An image may hold decreasing keys; each range is still low < x <= high, for both engines."""
    hardware = replace(BARE, ranges=4, element=parse(element))
    fw = Firmware()
    with fw.chain():
        fw.filter(0)
        fw.reduce(axis)
        fw.commit("N")
    image = compile_firmware(fw, hardware)
    image = dataclasses.replace(image, rows=(StoredRow(0, False, (3, 50, -9, 40, 2)),))
    words = np.arange(128).reshape(-1, 4)
    last = np.zeros((len(words), 2), dtype=bool)
    one, other = Reference(hardware), FastModel(hardware)
    for engine in (one, other):
        engine.load(image)
    sent = one.feed(words, last)
    assert sent == list(other.feed(words, last))
    assert any(block.words.any() for block in sent)
