"""Patterns to wires, tensors to samples, the firmware of several taps to one."""

import numpy as np
import pytest

from presilicon.base import ConfigError
from presilicon.designs import Hardware, Instrument, Tap
from presilicon.formats import parse
from presilicon.instrument import FastModel, Firmware, compile_firmware, to_words
from presilicon.instrument.aggregations import AGGREGATIONS, aggregation
from presilicon.instrument.host.taps import compose, sample, spread, wire_taps
from presilicon.instrument.host.tensors import cut_pair, cut_tensor

LAYERS = ["features.0", "features.2", "output"]
FLOATS = Hardware(
    lanes=8, ranges=8, taps=3, element=parse("bfloat16"), accumulator_bits=32, chains=64, range_rows=64,
    scratchpad_rows=64,
)  # fmt: skip


def test_a_pattern_gives_each_layer_a_wire() -> None:
    instrument = Instrument(
        hardware=Hardware(taps=4),
        taps=(Tap(name="in", layers="features.*"), Tap(name="slope", layers="output", role="gradient", every=3)),
    )
    wires = wire_taps(instrument, LAYERS)
    assert [(each.tap, each.name, each.group, each.layer) for each in wires] == [
        (0, "in.features.0", "in", "features.0"),
        (1, "in.features.2", "in", "features.2"),
        (2, "slope", "slope", "output"),
    ]
    assert (wires[2].role, wires[2].every) == ("gradient", 3)


def test_a_pattern_that_matches_nothing_names_the_layers() -> None:
    instrument = Instrument(taps=(Tap(name="in", layers="feature.*"),))
    with pytest.raises(
        ConfigError, match=r'"feature\.\*" of tap "in" matches no layer.*features\.0, features\.2, output'
    ):
        wire_taps(instrument, LAYERS)


@pytest.mark.parametrize("first", [0, 1])
def test_a_name_that_would_be_of_two_taps(first: int) -> None:
    taps = (Tap(name="in", layers="features.*"), Tap(name="in.features.2", layers="output"))
    with pytest.raises(ConfigError, match=r'"in\.features\.2" would be a name of tap'):
        wire_taps(Instrument(hardware=Hardware(taps=4), taps=(taps[first], taps[1 - first])), LAYERS)


def test_more_tensors_than_taps() -> None:
    instrument = Instrument(hardware=Hardware(taps=2), taps=(Tap(name="in", layers="*"),))
    with pytest.raises(ConfigError, match="wired to 3 tensors, but the hardware has 2 taps: set taps = 3"):
        wire_taps(instrument, LAYERS)
    with pytest.raises(ConfigError, match="there are no taps"):
        wire_taps(Instrument(), LAYERS)


def test_the_nodes_of_an_image_are_its_channels() -> None:
    tensor = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    found = sample(tensor, "activation", 8, "all")
    assert found.values.shape == (2 * 4 * 5, 3)
    assert found.values[0].tolist() == [0, 20, 40]
    assert sample(tensor, "weight", 8, "all").values.shape == (2, 60)
    assert sample(np.ones(7), "gradient", 8, "all").values.shape == (1, 7)
    assert sample(np.ones((2, 5, 6)), "error", 8, "all").values.shape == (10, 6)


@pytest.mark.parametrize(("shape", "vectors"), [((64, 24), 16), ((4, 1000), 16), ((32, 16, 8, 8), 64), ((3, 3), 64)])
def test_a_sample_has_so_many_vectors_and_no_number_of_its_own(shape: tuple[int, ...], vectors: int) -> None:
    tensor = np.random.default_rng(0).normal(size=shape)
    found = sample(tensor, "activation", 8, vectors)
    cut, _ = cut_tensor(found.values, 8)
    assert len(cut) <= vectors
    assert np.isin(found.values, tensor).all()
    assert found.share == found.values.size / tensor.size
    assert len(np.unique(found.values)) == found.values.size, "none twice"


def test_a_sample_meets_all_pixels() -> None:
    place = np.broadcast_to(np.arange(64.0).reshape(1, 1, 8, 8), (32, 2, 8, 8))
    assert len(np.unique(sample(place, "activation", 8, 64).values)) > 40


@pytest.mark.parametrize("total", [1, 2, 7, 64, 2048])
def test_spread_places_differ(total: int) -> None:
    for count in range(1, total + 1, 7):
        found = spread(count, total)
        assert len(set(found)) == count
        assert min(found) >= 0
        assert max(found) < total


@pytest.mark.parametrize(
    "names", [("summary", "gradient_norm", "norm_check"), ("correlation", "update_ratio", "summary")]
)
def test_taps_side_by_side_give_what_each_gives_alone(names: tuple[str, str, str]) -> None:
    """Frames of three taps in turns through one chip, against each aggregation on a chip of its own."""
    made = {tap: aggregation(name, FLOATS) for tap, name in enumerate(names)}
    together = FastModel(FLOATS)
    layout = compose({tap: each.firmware for tap, each in made.items()}, FLOATS, own_ranges={2})
    together.load(compile_firmware(layout.firmware, FLOATS))
    alone = {tap: FastModel(FLOATS) for tap in made}
    for tap, engine in alone.items():
        engine.load(compile_firmware(made[tap].firmware, FLOATS))
    rng = np.random.default_rng(3)
    for _ in range(4):
        for tap, each in made.items():
            x, y = (to_words(FLOATS, rng.normal(size=(5, 11))) for _ in range(2))
            words, last = cut_pair(x, y, 8) if each.pairs else cut_tensor(x, 8)
            mine, theirs = together.feed(words, last, tap), alone[tap].feed(words, last, tap)
            assert [block.words.tolist() for block in mine] == [block.words.tolist() for block in theirs]


def test_every_aggregation_can_stand_beside_another() -> None:
    for name in AGGREGATIONS.names():
        firmwares = {0: aggregation(name, FLOATS).firmware, 1: aggregation("summary", FLOATS).firmware}
        compile_firmware(compose(firmwares, FLOATS).firmware, FLOATS)


def test_equal_taps_share_chains_and_ranges_but_not_ranges_that_follow() -> None:
    firmware = aggregation("norm_check", FLOATS).firmware
    shared = compose({0: firmware, 1: firmware}, FLOATS)
    assert len(shared.firmware.programs) == 1
    own = compose({0: firmware, 1: firmware}, FLOATS, own_ranges={0, 1})
    assert len(own.firmware.programs) == 2
    assert not set(own.range_rows[0].values()) & set(own.range_rows[1].values())


def test_rows_that_carry_something_over_frames_are_a_taps_own() -> None:
    def running_total() -> Firmware:
        fw = Firmware()
        with fw.chain():
            fw.add(0)
            fw.cache(0)
            fw.commit("N", "last")
        return fw

    layout = compose({0: running_total(), 1: running_total()}, FLOATS)
    engine = FastModel(FLOATS)
    engine.load(compile_firmware(layout.firmware, FLOATS))
    words, last = cut_tensor(to_words(FLOATS, np.ones((1, 8))), 8)
    for tap in (0, 1, 0, 1, 0):
        block = engine.feed(words, last, tap)[-1]
    assert block.words.tolist() == to_words(FLOATS, [3.0] * 8).tolist()


@pytest.mark.parametrize(("field", "said"), [("chains", "chains = 2"), ("range_rows", "range_rows = 2")])
def test_memories_that_are_too_small(field: str, said: str) -> None:
    small = Hardware(lanes=4, ranges=4, taps=2, **{field: 1})
    firmwares = {tap: aggregation("distribution", small, bins=4, high=tap + 1.0).firmware for tap in range(2)}
    with pytest.raises(ConfigError, match=said):
        compose(firmwares, small)


def test_firmware_that_names_taps_itself() -> None:
    fw = Firmware()
    with fw.program([0]), fw.chain():
        fw.commit(1)
    with pytest.raises(ConfigError, match="names taps itself"):
        compose({0: fw}, FLOATS)
