"""The places where the published reference is wrong or empty, in its list's order: both our models are right in each.

What only a circuit or a stream can show (points 5 and 8, and the Verilog side of others) is tested beside those.
"""

import numpy as np
import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import FastModel, Firmware, Reference, compile_firmware, to_words, values_of
from presilicon.instrument.aggregations import aggregation
from presilicon.instrument.host.tensors import cut_tensor

HARDWARE = Hardware(lanes=4, ranges=4, range_rows=2, scratchpad_rows=4, chains=8, element=parse("fixed(8, 8)"))
ENGINES = pytest.mark.parametrize("kind", [Reference, FastModel])


def run(kind, firmware, vectors, last=None, hardware=HARDWARE):
    """The values of all words that were sent, the packer's rest included, and the engine."""
    engine = kind(hardware)
    engine.load(compile_firmware(firmware, hardware))
    flags = np.zeros((len(vectors), 2), dtype=bool) if last is None else last
    blocks = engine.feed(to_words(hardware, vectors), flags)
    words = np.concatenate([*(block.words for block in blocks), engine.partial])
    return values_of(hardware, words).tolist(), engine


def histogram(boundaries):
    fw = Firmware()
    fw.range_row(0, boundaries)
    with fw.chain():
        fw.filter(0)
        fw.reduce("M")
        fw.commit("M")
    return fw


@ENGINES
def test_point_1_ranges_are_signed(kind) -> None:
    sent, _ = run(kind, histogram([-4, -2, 0, 2, 4]), [[-3, -1, 1, 3], [-3, -3, -1, 1]])
    assert sent == [1, 1, 1, 1, 2, 1, 1, 0]


@ENGINES
def test_point_2_two_conditions_are_both_kept_and_combined_by_and(kind) -> None:
    fw = Firmware()
    with fw.chain():
        fw.commit(1, "last", "notfirst@1")
    flags = [(inner, outer) for inner in (False, True) for outer in (False, True)] * 2
    sent, _ = run(kind, fw, [[number, 0, 0, 0] for number in range(8)], np.array(flags))
    first_outer = [True] + [outer for _, outer in flags[:-1]]
    wanted = [number for number in range(8) if flags[number][0] and not first_outer[number]]
    assert sent == wanted
    assert wanted  # neither never nor always
    assert len(wanted) < 8


@ENGINES
def test_point_3_cache_obeys_its_conditions(kind) -> None:
    fw = Firmware()
    with fw.chain():
        fw.cache(0, "first")
    with fw.chain():
        fw.cache(1, "notlast@1", "last")
    flags = np.array([[False, False], [True, False], [True, True]])
    _, engine = run(kind, fw, [[1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]], flags)
    assert values_of(HARDWARE, engine.scratchpad).tolist()[:2] == [[3] * 4, [2] * 4]


@ENGINES
def test_point_4_the_last_range_ends_as_every_range_does(kind) -> None:
    """Uneven bins, elements on each boundary: open below, closed above, from the first to the last."""
    edges = [-3, -2.5, 0, 0.125, 100]
    sent, _ = run(kind, histogram(edges), [edges[:4], [100, 100.00390625, -3, 0.125]])
    assert sent == [1, 1, 1, 0, 0, 0, 1, 1]


@ENGINES
def test_point_5_every_chain_sees_what_the_chain_before_it_wrote(kind) -> None:
    """Rows written and read in neighbouring chains, at the same and at other addresses."""
    fw = Firmware()
    with fw.chain():
        fw.add(0)
        fw.cache(1)
    with fw.chain():
        fw.add(1)
        fw.cache(0)
    with fw.chain():
        fw.add(0)
        fw.cache(0)
        fw.commit("N")
    sent, _ = run(kind, fw, [[1, 2, 3, 4], [1, 1, 1, 1]])
    x, y = np.array([1, 2, 3, 4]), np.ones(4)
    rows = [np.zeros(4), np.zeros(4)]
    wanted = []
    for vector in (x, y):
        rows[1] = vector + rows[0]
        rows[0] = vector + rows[1]
        rows[0] = vector + rows[0]
        wanted += rows[0].tolist()
    assert sent == wanted


@ENGINES
def test_point_6_firmware_and_ranges_are_exchanged_at_run_time(kind) -> None:
    engine = kind(HARDWARE)
    end = [[True, True]]
    sent = []
    for edges in ([0, 1, 2, 3, 4], [0, 2, 4, 8, 16]):
        engine.load(compile_firmware(histogram(edges), HARDWARE).to_bytes())
        sent.append(values_of(HARDWARE, engine.feed(to_words(HARDWARE, [[1, 2, 3, 4]]), end)[0].words).tolist())
    assert sent == [[1, 1, 1, 1], [2, 2, 0, 0]]


@ENGINES
@pytest.mark.parametrize("flush", ["frame", "never"])
def test_point_7_the_packer_loses_nothing_when_sizes_mix(kind, flush) -> None:
    hardware = replace(HARDWARE, ranges=2, flush=flush)
    fw = Firmware()
    with fw.chain():
        fw.commit(1)
    with fw.chain():
        fw.commit("M", "notfirst")
    with fw.chain():
        fw.commit("N", "last")
    vectors = np.arange(36).reshape(9, 4).astype(float)
    flags = np.zeros((9, 2), dtype=bool)
    flags[[2, 3, 8]] = True
    engine = kind(hardware)
    engine.load(compile_firmware(fw, hardware))
    blocks = list(engine.feed(to_words(hardware, vectors), flags))
    wanted, frames = [], [[]]
    for number, vector in enumerate(vectors.tolist()):
        first = number == 0 or flags[number - 1, 0]
        sent = vector[:1] + ([] if first else vector[:2]) + (vector if flags[number, 0] else [])
        wanted += sent
        frames[-1] += sent
        if flags[number, 1]:
            frames.append([])
    words = np.concatenate([*(block.words for block in blocks), engine.partial])
    assert values_of(hardware, words).tolist() == wanted
    if flush == "frame":
        sizes = [size for frame in frames[:-1] for size in [4] * (len(frame) // 4) + [len(frame) % 4] if size]
        assert [block.words.size for block in blocks] == sizes
        assert sum(block.last for block in blocks) == 3
        assert engine.partial.size == 0
    else:
        assert all(block.words.size == 4 and not block.last for block in blocks)


@ENGINES
def test_point_8_results_of_several_taps_are_told_apart(kind) -> None:
    hardware = replace(HARDWARE, taps=2)
    fw = Firmware()
    with fw.chain():
        fw.commit("N", "last@1")
    engine = kind(hardware)
    engine.load(compile_firmware(fw, hardware))
    words, end = to_words(hardware, [[1, 2, 3, 4]]), [[True, True]]
    sent = [*engine.feed(words, end, 1), *engine.feed(2 * words, end, 0)]
    assert [(block.tap, block.words.tolist()) for block in sent] == [
        (1, words[0].tolist()),
        (0, (2 * words[0]).tolist()),
    ]
    engine.feed(words, [[False, False]], 0)
    with pytest.raises(ConfigError, match="within an outer frame of tap 0"):
        engine.feed(words, end, 1)
    engine.break_off()
    assert [block.tap for block in engine.feed(words, end, 1)] == [1]


@ENGINES
def test_point_9_invalid_numbers_are_counted_on_floats(kind) -> None:
    hardware = replace(HARDWARE, element=parse("e5m2"), accumulator_bits=16, flush="frame")
    aggregate = aggregation("invalidity", hardware)
    x = np.array([[np.nan, np.inf, -np.inf, 1e-5, 0.0, 1.0, np.nan, np.inf]])
    vectors, last = cut_tensor(x, 4)
    engine = kind(hardware)
    engine.load(compile_firmware(aggregate.firmware, hardware))
    words = np.concatenate([block.words for block in engine.feed(to_words(hardware, vectors), last)])
    assert aggregate.decode(words, count=8, nodes=8) == {"nan": 2, "+inf": 2, "-inf": 1, "subnormal": 1, "total": 6}


@ENGINES
def test_point_9_a_product_reduce(kind) -> None:
    fw = Firmware()
    with fw.chain():
        fw.reduce_to("product")
        fw.commit(1)
    sent, _ = run(kind, fw, [[2, 3, -0.5, 4], [100, 100, 1, 1], [-0.00390625, 0.5, 1, 1]])
    assert sent == [-12, 127.99609375, -0.00390625]  # the last product is floored, not cut toward zero


@ENGINES
def test_point_9_percentiles_on_the_host(kind) -> None:
    hardware = replace(HARDWARE, lanes=4, range_rows=16, scratchpad_rows=16, chains=16, flush="frame")
    aggregate = aggregation("norm_check", hardware, low=0, high=64)
    x = np.arange(0.5, 64).reshape(-1, 4)
    vectors, last = cut_tensor(x, 4)
    engine = kind(hardware)
    engine.load(compile_firmware(aggregate.firmware, hardware))
    words = np.concatenate([block.words for block in engine.feed(to_words(hardware, vectors), last)])
    found = aggregate.decode(words, count=64, nodes=4)
    assert found["counts"] == [1] * 64
    assert [found[name] for name in ("p15", "p50", "p85")] == pytest.approx([9.6, 32, 54.4])


@ENGINES
def test_point_10_sparsity_counts_zeros(kind) -> None:
    aggregate = aggregation("sparsity", HARDWARE)
    engine = kind(HARDWARE)
    engine.load(compile_firmware(aggregate.firmware, HARDWARE))
    blocks = engine.feed(to_words(HARDWARE, [[0.0, 5.0, -5.0, 0.00390625]]), [[True, True]])
    found = aggregate.decode(blocks[0].words)
    assert found["is_zero"].tolist() == [[1, 0, 0, 0]]
    assert found["zeros"] == 1


@ENGINES
def test_point_11_fixed_point_is_exact_to_the_last_bit(kind) -> None:
    """A million vectors' worth of small sums: no tolerance, and nothing that is zero on both sides."""
    hardware = replace(HARDWARE, accumulator_bits=48)
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.total()
        fw.commit(1, "last")
    words = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, (2000, 4))
    flags = np.zeros((2000, 2), dtype=bool)
    flags[-1] = True
    engine = kind(hardware)
    engine.load(compile_firmware(fw, hardware))
    engine.feed(words, flags)
    assert engine.partial.tolist() == [words.sum()]
    assert words.sum() != 0


def test_point_12_mistakes_are_explained_and_order_is_checked() -> None:
    fw = Firmware()
    with fw.chain():
        fw.total()
        fw.add(0)
    with pytest.raises(ConfigError, match=r"chain 1, instruction 2 \(vv_add\): cannot follow v_reduce"):
        compile_firmware(fw, HARDWARE)
    turned = replace(HARDWARE, blocks=("scalar_reduce", "vector_alu", "filter_reduce"))
    assert compile_firmware(fw, turned).initiation_interval() == 1
