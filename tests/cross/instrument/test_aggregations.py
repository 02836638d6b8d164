"""Every aggregation against NumPy on the same tensors: exactly where the arithmetic is exact."""

import itertools
import math

import numpy as np
import pytest

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import FastModel, Firmware, Reference, compile_firmware, to_words, values_of
from presilicon.instrument.aggregations import AGGREGATIONS, aggregation
from presilicon.instrument.aggregations.distribution import bin_rows
from presilicon.instrument.aggregations.histograms import MovingAverage, percentiles
from presilicon.instrument.host.tensors import cut_pair, cut_tensor

SIZES = [(8, 8), (8, 2), (16, 1)]
SHAPES = [(5, 8), (7, 19), (1, 3), (3, 32)]
WIDE = {"range_rows": 64, "scratchpad_rows": 64, "chains": 64}


def make(lanes=8, ranges=8, element="fixed(16, 16)", bits=48, **fields) -> Hardware:
    return Hardware(lanes=lanes, ranges=ranges, element=parse(element), accumulator_bits=bits, **WIDE, **fields)


def run(aggregate, tensor, twin=None, engine=FastModel, frames=1):
    """The results of the last of several outer frames with the same tensor: memories were used before."""
    hardware = aggregate.hardware
    model = engine(hardware)
    model.load(compile_firmware(aggregate.firmware, hardware))
    vectors, last = cut_tensor(tensor, hardware.lanes) if twin is None else cut_pair(tensor, twin, hardware.lanes)
    words = to_words(hardware, vectors)
    sent = []
    for _ in range(frames):
        blocks = model.feed(words, last)
        sent = np.concatenate([block.words for block in blocks] or [np.zeros(0, np.int64)])
    if not hardware.flushes:
        sent = np.concatenate([sent, model.partial])
    return aggregate.decode(sent, count=tensor.size, nodes=tensor.shape[1])


def tensor_of(shape, seed=0, zeros=0.2, scale=2.0, grid=2.0**-4):
    """Multiples of 1/16: their products are exact in 16 fraction bits."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=shape) * scale / grid) * grid
    return np.where(rng.random(shape) < zeros, 0.0, x)


@pytest.mark.parametrize(("lanes", "ranges"), SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_distribution(lanes, ranges, shape) -> None:
    x = tensor_of(shape)
    edges = [-math.inf, -3.0, -1.0, -0.0625, 0.0, 0.03, 0.5, 1.0, 1.0, 2.0, math.inf]
    aggregate = aggregation("distribution", make(lanes, ranges, flush="frame"), boundaries=edges)
    found = run(aggregate, x, frames=3)
    wanted = [int(((low < x) & (x <= high)).sum()) for low, high in itertools.pairwise(edges)]
    assert found["counts"] == wanted
    assert sum(wanted) == x.size
    assert len(aggregate.firmware.programs[0].chains) == -(-10 // ranges)


@pytest.mark.parametrize("element", ["int8", "bfloat16", "float16"])
def test_a_distribution_of_other_numbers(element) -> None:
    x = np.round(tensor_of((9, 21), scale=20.0))
    hardware = make(8, 4, element, {"int8": 24, "bfloat16": 32, "float16": 24}[element], flush="frame")
    found = run(aggregation("distribution", hardware, bins=16, low=-32, high=32), x)
    inner = np.linspace(-32, 32, 17)[1:-1]
    edges = [-np.inf, *inner, np.inf]
    wanted = [int(((low < x) & (x <= high)).sum()) for low, high in itertools.pairwise(edges)]
    assert found["counts"] == wanted


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("each", ["vector", "group"])
def test_sparsity_counts_zeros_where_they_are(shape, each) -> None:
    x = tensor_of(shape, zeros=0.5)
    found = run(aggregation("sparsity", make(flush="frame"), each=each), x, frames=2)
    assert found["zeros"] == (x == 0).sum()
    if each == "vector":
        np.testing.assert_array_equal(found["is_zero"], x == 0)
    else:
        np.testing.assert_array_equal(found["zeros_by_node"], (x == 0).sum(axis=0))


@pytest.mark.parametrize(("lanes", "ranges"), SIZES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("engine", [Reference, FastModel])
def test_summary(lanes, ranges, shape, engine) -> None:
    x = tensor_of(shape)
    x[0, 0], x[0, 1] = -9.0, 9.0
    found = run(aggregation("summary", make(lanes, ranges, flush="frame")), x, engine=engine, frames=2)
    assert found == {
        "sum": x.sum(),
        "zeros": (x == 0).sum(),
        "elements": x.size,
        "min": -9.0,
        "max": 9.0,
        "mean": x.sum() / x.size,
    }


def test_a_summary_says_when_padding_hides_an_end() -> None:
    x = np.full((2, 5), 3.0)
    found = run(aggregation("summary", make(flush="frame")), x)
    assert found["min"] is None
    assert found["max"] == 3.0
    assert run(aggregation("summary", make(flush="frame")), np.full((2, 8), 3.0))["min"] == 3.0


@pytest.mark.parametrize("shape", [(2, 5), (3, 11), (4, 8)])
@pytest.mark.parametrize("kind", ["zeros and more", "zeros and less", "more", "less", "both"])
def test_ends_are_those_of_the_elements_wherever_padding_leaves_them_visible(shape, kind) -> None:
    x = 1.0 + np.arange(math.prod(shape), dtype=float).reshape(shape)
    x[0, 0] = 0.0 if "zeros" in kind else x[0, 0]
    x = -x if "less" in kind else x
    x[-1, -1] = -x[-1, -1] if kind == "both" else x[-1, -1]
    found = run(aggregation("summary", make(flush="frame")), x)
    padded = shape[1] % 8 != 0
    assert found["min"] == (None if padded and kind == "more" else x.min())
    assert found["max"] == (None if padded and kind == "less" else x.max())


@pytest.mark.parametrize(
    ("sums", "wanted"),
    [([-3.0] * 5, None), ([-3.0] * 4 + [2.0], 2.0), ([-3.0] * 8, -3.0), ([-3.0] * 9, None), ([0.0] + [-3.0] * 8, 0.0)],
)
def test_padding_is_no_node_to_predictiveness(sums, wanted) -> None:
    found = run(aggregation("predictiveness", make(flush="frame")), np.array([sums, sums]))
    assert found["largest_mean"] == wanted


NARROW = [
    ("fixed(6, 2)", None),
    ("fixed(4, 4)", None),
    ("bfloat16", None),
    ("float(4, 3)", None),
    ("fixed(1, 7)", None),
]


@pytest.mark.parametrize(("element", "bits"), NARROW)
@pytest.mark.parametrize("shape", [(3, 8), (40, 5), (300, 19)])
def test_what_a_word_cannot_hold_is_none_and_never_wrong(element, bits, shape) -> None:
    hardware = make(element=element, bits=bits, flush="frame")
    x = np.where(np.random.default_rng(1).random(shape) < 0.9, 0.0, 0.5)
    exact = {"zeros": (x == 0).sum(), "elements": x.size, "min": 0.0, "max": 0.5}
    found = run(aggregation("summary", hardware), x)
    assert found["elements"] == x.size
    for name in ("zeros", "min", "max"):
        assert found[name] in (exact[name], None)
    assert ("zeros" in "".join(found.get("notes", ()))) == (found["zeros"] is None)
    total = found["sum"]
    if total is None or not hardware.is_float:
        assert total in (x.sum(), None)
        assert found["mean"] == (None if total is None else total / x.size)
    counts = run(aggregation("distribution", hardware, boundaries=[-1, -0.25, 0.25, math.inf]), x)["counts"]
    assert counts in ([0, exact["zeros"], x.size - exact["zeros"]], None)
    for each, by in (("vector", "is_zero"), ("group", "zeros_by_node")):
        zeros = run(aggregation("sparsity", hardware, each=each), x)
        assert zeros["zeros"] in (exact["zeros"], None)
        assert (zeros[by] is None) == (zeros["zeros"] is None)
        assert each == "group" or zeros["zeros"] is not None
    squares = run(aggregation("gradient_norm", hardware), x)
    assert hardware.is_float or squares["sum_of_squares"] in ((x**2).sum(), None)


def test_a_note_says_what_to_do_about_counts_that_saturate() -> None:
    x = np.zeros((500, 64))
    found = run(aggregation("summary", make(element="fixed(16, 16)", bits=None, flush="frame")), x)
    assert (found["zeros"], found["elements"], found["mean"]) == (32000, 32000, 0.0)
    x = np.zeros((600, 64))
    found = run(aggregation("summary", make(element="fixed(16, 16)", bits=None, flush="frame")), x)
    assert (found["zeros"], found["elements"], found["mean"]) == (None, 38400, 0.0)
    assert found["notes"][0].startswith("zeros: too large for words of 32 bits (counts are exact below 32768)")
    assert "accumulator_bits" in found["notes"][0]
    aggregate = aggregation("summary", make(element="fixed(16, 16)", bits=None, flush="frame"))
    assert run(aggregation("norm_check", aggregate.hardware), x)["p50"] is None


def test_a_count_that_cannot_have_been_larger_is_exact() -> None:
    hardware = make(element="bfloat16", bits=None, flush="frame")
    found = run(aggregation("summary", hardware), np.zeros((32, 8)))
    assert (found["zeros"], found.get("notes")) == (256, None)
    assert run(aggregation("summary", hardware), np.zeros((33, 8)))["zeros"] is None


def test_a_note_names_sums_that_stop_growing() -> None:
    hardware = make(element="bfloat16", bits=None, flush="frame")
    found = run(aggregation("summary", hardware), np.ones((300, 8)))
    assert found["sum"] < 2400
    assert any(note.startswith("sum: may be far off") for note in found["notes"])
    assert "notes" not in run(aggregation("gradient_norm", hardware), np.ones((200, 8)))
    wide = make(element="bfloat16", bits=32, flush="frame")
    assert run(aggregation("summary", wide), np.ones((300, 8)))["sum"] == 2400


def test_a_summary_of_a_chip_without_min_and_max() -> None:
    hardware = make(alu=("add",), reduce=("sum",), flush="frame")
    assert set(run(aggregation("summary", hardware), tensor_of((4, 8)))) == {"sum", "zeros", "elements", "mean"}


def test_norm_check_approximates_and_then_tracks() -> None:
    """A distribution that moves and widens: bins sent back after every frame keep the percentiles close."""
    hardware = make(32, 32, flush="frame", bits=48)
    aggregate = aggregation("norm_check", hardware, low=-1, high=1)
    rng = np.random.default_rng(0)
    model = FastModel(hardware)
    model.load(compile_firmware(aggregate.firmware, hardware))
    errors = []
    for step in range(24):
        x = rng.normal(loc=0.2 * step, scale=0.2 * (1 + step / 4), size=(64, 96))
        words, last = cut_tensor(to_words(hardware, x), 32)
        sent = np.concatenate([block.words for block in model.feed(words, last)])
        found = aggregate.decode(sent, count=x.size, nodes=96)
        assert sum(found["counts"]) == x.size
        wanted = np.percentile(x, [15, 50, 85])
        width = wanted[2] - wanted[0]
        errors.append(max(abs(found[f"p{p}"] - w) / width for p, w in zip((15, 50, 85), wanted, strict=True)))
        # only the ranges go back, while the program stays
        edges = aggregate.following_boundaries(found["counts"])
        image = compile_firmware(Firmware(), hardware, rows=bin_rows(edges, hardware))
        assert image.chains is None
        model.load(image)
        aggregate = aggregate.with_boundaries(edges)
        assert list(aggregate.boundaries) == edges
    assert max(errors[3:]) < 0.05
    even = aggregation("norm_check", hardware, low=-1, high=1)
    untracked = run(even, x)
    assert abs(untracked["p85"] - wanted[2]) / width > 0.5  # what it would be without


@pytest.mark.parametrize(("element", "bits"), [("fixed(16, 16)", 48), ("bfloat16", 32)])
def test_norm_check_finds_a_layer_again_that_was_dead(element, bits) -> None:
    hardware = make(32, 32, element, bits, flush="frame")
    aggregate = aggregation("norm_check", hardware, low=-4, high=4)
    model = FastModel(hardware)
    model.load(compile_firmware(aggregate.firmware, hardware))
    rng = np.random.default_rng(0)
    for step in range(60):
        alive = step >= 48
        x = rng.normal(loc=1.0, size=(32, 32)).astype(np.float32) if alive else np.zeros((32, 32))
        x = values_of(hardware, to_words(hardware, x))
        words, last = cut_tensor(to_words(hardware, x), 32)
        sent = np.concatenate([block.words for block in model.feed(words, last)])
        found = aggregate.decode(sent, count=x.size, nodes=32)
        edges = aggregate.following_boundaries(found["counts"])
        model.load(compile_firmware(Firmware(), hardware, rows=bin_rows(edges, hardware)))
        aggregate = aggregate.with_boundaries(edges)
    wanted = np.percentile(x, [15, 50, 85])
    np.testing.assert_allclose([found["p15"], found["p50"], found["p85"]], wanted, atol=0.1)


def test_percentiles_of_counts() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=100_000)
    edges = np.linspace(-6, 6, 601)
    counts = np.histogram(x, edges)[0]
    np.testing.assert_allclose(percentiles(edges, counts, [15, 50, 85]), np.percentile(x, [15, 50, 85]), atol=0.01)
    assert percentiles([0.0, 1.0], [0], [50]) == [None]
    assert percentiles([-math.inf, 1.0, math.inf], [5, 0], [50]) == [1.0]


@pytest.mark.parametrize("shape", SHAPES)
def test_predictiveness(shape) -> None:
    hardware = make(flush="frame")
    aggregate = aggregation("predictiveness", hardware)
    average, values = MovingAverage(4), []
    for step in range(9):
        x = np.abs(tensor_of(shape, seed=step))
        found = run(aggregate, x, frames=2)
        assert found["largest_sum"] == x.sum(axis=0).max()
        assert found["largest_mean"] == pytest.approx(x.mean(axis=0).max(), rel=1e-15)
        values.append(found["largest_mean"])
        last = values[-4:]
        assert average.add(values[-1]) == pytest.approx(sum(last) / len(last), rel=1e-15)


@pytest.mark.parametrize("ranges", [8, 2, 1])
@pytest.mark.parametrize(("element", "bits"), [("e5m2", 16), ("bfloat16", 32), ("float32", 32)])
def test_invalidity_of_floats(ranges, element, bits) -> None:
    hardware = make(8, ranges, element, bits, flush="frame")
    tiny = parse(element).min_normal
    x = tensor_of((6, 13))
    x[0, :4] = np.nan
    x[1, :3] = np.inf
    x[2, :2] = -np.inf
    x[3, :5] = [tiny / 2, -tiny / 2, tiny / 4, tiny, -tiny]
    found = run(aggregation("invalidity", hardware), x, frames=2)
    assert found == {"nan": 4, "+inf": 3, "-inf": 2, "subnormal": 3, "total": 12}


@pytest.mark.parametrize("ranges", [8, 2, 1])
def test_invalidity_of_fixed_point_is_saturation(ranges) -> None:
    x = tensor_of((6, 13))
    x[0, :4], x[1, :2] = 1e9, -1e9
    x[2, 0] = 32767.0
    found = run(aggregation("invalidity", make(8, ranges, flush="frame")), x)
    assert found == {"saturated_low": 2, "saturated_high": 4, "total": 6}


@pytest.mark.parametrize("shape", SHAPES)
def test_vector_change(shape) -> None:
    x = tensor_of(shape)
    change = np.abs(np.diff(x, axis=0))
    found = run(aggregation("vector_change", make(flush="frame")), x, frames=2)
    assert found == {"sum": change.sum(), "max": change.max() if change.size else 0.0}


@pytest.mark.parametrize("shape", [(5, 8), (7, 19), (3, 32)])
def test_correlation(shape) -> None:
    x = tensor_of(shape, seed=1)
    y = tensor_of(shape, seed=2) - x / 2
    y = np.round(y * 16) / 16
    found = run(aggregation("correlation", make(flush="frame")), x, y, frames=3)
    sums = {"x": x, "y": y, "xy": x * y, "xx": x * x, "yy": y * y}
    for name, values in sums.items():
        assert found[f"sum_{name}"] == values.sum(), name
    assert found["correlation"] == pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1], rel=1e-9)


def test_a_correlation_with_a_constant_is_none() -> None:
    x = tensor_of((4, 8))
    assert run(aggregation("correlation", make(flush="frame")), x, np.ones_like(x))["correlation"] is None


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_norm(shape) -> None:
    x = tensor_of(shape)
    found = run(aggregation("gradient_norm", make(flush="frame")), x, frames=2)
    assert found == {"sum_of_squares": (x * x).sum(), "norm": math.sqrt((x * x).sum())}


@pytest.mark.parametrize("shape", SHAPES)
def test_update_ratio(shape) -> None:
    update, weight = tensor_of(shape, seed=1, scale=0.5), tensor_of(shape, seed=2)
    update[0, 0] = weight[0, 0] = 0.25
    found = run(aggregation("update_ratio", make(flush="frame")), update, weight, frames=3)
    norms = math.sqrt((update * update).sum()), math.sqrt((weight * weight).sum())
    assert found == {"update_norm": norms[0], "weight_norm": norms[1], "ratio": norms[0] / norms[1]}


def test_small_updates_beside_large_weights_in_floats() -> None:
    """The two sums are kept apart: no difference of large numbers."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(16, 24)).astype(np.float32)
    update = (rng.normal(size=(16, 24)) * 1e-5).astype(np.float32)
    found = run(aggregation("update_ratio", make(8, 8, "float32", 32, flush="frame")), update, weight, frames=2)
    wanted = np.linalg.norm(update.astype(float)) / np.linalg.norm(weight.astype(float))
    assert found["ratio"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_quantization_error(shape) -> None:
    x = tensor_of(shape, zeros=0.0)
    x[0, 0] = 0.0625
    q = np.round(x * 2) / 2
    found = run(aggregation("quantization_error", make(flush="frame")), x, q, frames=3)
    error, signal = ((x - q) ** 2).sum(), (x * x).sum()
    assert (found["squared_error"], found["squared_signal"]) == (error, signal)
    assert found["signal_to_noise_db"] == pytest.approx(10 * math.log10(signal / error))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("flush", ["frame", "never"])
def test_pass_through(shape, flush) -> None:
    x = tensor_of(shape)
    hardware = make(flush=flush)
    np.testing.assert_array_equal(run(aggregation("pass_through", hardware), x)["tensor"], x)


@pytest.mark.parametrize("name", AGGREGATIONS.names())
@pytest.mark.parametrize(("element", "bits"), [("fixed(8, 8)", 32), ("int8", 24), ("bfloat16", 32)])
def test_both_engines_on_tensors_of_every_aggregation(name, element, bits) -> None:
    hardware = make(8, 4, element, bits, flush="frame")
    aggregate = aggregation(name, hardware)
    x = np.random.default_rng(7).normal(size=(9, 13)) * 3
    twin = np.round(x) if aggregate.pairs else None
    vectors, last = cut_tensor(x, 8) if twin is None else cut_pair(x, twin, 8)
    words = to_words(hardware, vectors)
    sent = []
    for kind in (Reference, FastModel):
        engine = kind(hardware)
        engine.load(compile_firmware(aggregate.firmware, hardware))
        sent.append([*engine.feed(words, last), *engine.feed(words, last)])
    assert sent[0] == sent[1]
    assert sum(block.words.size for block in sent[0]) > 0
    assert np.isfinite(values_of(hardware, sent[0][-1].words)).all()


def test_bad_requests() -> None:
    hardware = make()
    for name, options, words in [
        ("sumary", {}, 'did you mean "summary"'),
        ("summary", {"bins": 3}, 'unknown option "bins"'),
        ("distribution", {"bin": 3}, 'did you mean "bins"'),
        ("distribution", {"bins": 0}, "bins is 0"),
        ("distribution", {"bins": "many"}, "bins is 'many'"),
        ("distribution", {"low": 2, "high": 1}, "the smaller first"),
        ("distribution", {"boundaries": [1, 0]}, "never decrease"),
        ("distribution", {"boundaries": [0, "nan", 1]}, "nan"),
        ("sparsity", {"each": "day"}, "each is 'day'"),
    ]:
        with pytest.raises(ConfigError, match=words):
            aggregation(name, hardware, **options)
    with pytest.raises(ConfigError, match="3 words, but"):
        aggregation("summary", hardware).decode([1, 2, 3])
    for name in ("sparsity", "pass_through"):
        aggregate = aggregation(name, hardware)
        for words, nodes in ((13, None), (16, 24)):
            with pytest.raises(ConfigError, match="not whole vectors"):
                aggregate.decode([0] * words, nodes=nodes)
        assert next(iter(aggregate.decode([0] * 16).values())).shape == (2, 8)
    with pytest.raises(ConfigError, match="same shape"):
        cut_pair(np.zeros((2, 2)), np.zeros((2, 3)), 4)
    with pytest.raises(ConfigError, match="samples, nodes"):
        cut_tensor(np.zeros(3), 4)
