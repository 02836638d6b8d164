"""The host against a chip: programs hold from the chip's own word on, and figures are those of the tensors."""

import time
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Hardware, Instrument, Tap
from presilicon.formats import parse
from presilicon.instrument import Firmware, compile_firmware, to_words
from presilicon.instrument.firmware.ranges import RangeRow
from presilicon.instrument.host.host import Host, Reading, Shape
from presilicon.instrument.host.stream import Status, StreamWriter
from presilicon.instrument.host.taps import wire_taps
from presilicon.instrument.host.tensors import cut_tensor
from presilicon.instrument.model.chip import Chip

HARDWARE = Hardware(
    lanes=8, ranges=8, taps=2, element=parse("bfloat16"), accumulator_bits=32, chains=40, range_rows=40
)  # fmt: skip


class Bench:
    """A chip, a host and the wires between them."""

    def __init__(
        self,
        first: str = "summary",
        second: str = "gradient_norm",
        clock: Any = time.monotonic,
        hardware: Hardware = HARDWARE,
        **options: object,
    ) -> None:
        self.instrument = Instrument(
            hardware=hardware,
            taps=(
                Tap(name="hidden", layers="a", aggregation=first, options=options, every=1),
                Tap(name="slope", layers="b", role="gradient", aggregation=second, every=1),
            ),
        )
        self.chip = Chip(self.instrument)
        self.host = Host(self.instrument.built, wire_taps(self.instrument, ["a", "b"]), clock=clock)
        self.frame = 0
        self.exchange()

    def exchange(self) -> list[Reading]:
        readings = []
        while True:
            self.chip.receive(self.host.take())
            packets = self.chip.take()
            if not packets:
                return readings
            readings += self.host.feed(packets)

    def offer(self, tensor: np.ndarray, tap: int = 0) -> None:
        self.host.shapes[tap] = Shape(tensor.size, tensor.shape[1])
        self.chip.offer(tap, self.frame, self.frame * 1e-3, lambda: cut_tensor(to_words(self.chip.hardware, tensor), 8))
        self.frame += 1

    def look(self, tensor: np.ndarray, tap: int = 0) -> Reading:
        self.offer(tensor, tap)
        (reading,) = self.exchange()
        return reading


def test_figures_are_those_of_the_tensors() -> None:
    bench = Bench()
    tensor = np.maximum(np.random.default_rng(0).integers(-4, 5, (16, 11)), 0).astype(float)
    found = bench.look(tensor)
    assert (found.wire.name, found.frame, found.aggregation) == ("hidden", 0, "summary")
    assert found.values["sum"] == tensor.sum()
    assert found.values["sparsity"] == pytest.approx((tensor == 0).mean())
    assert found.values["mean"] == pytest.approx(tensor.mean())
    assert bench.look(tensor, 1).values["norm"] == pytest.approx(np.sqrt((tensor**2).sum()), rel=1e-5)


def frames_apart(bench: Bench, count: int) -> list[bytes]:
    """The bytes of so many frames of tap 0, each on its own."""
    found = []
    for number in range(count):
        bench.offer(np.full((4, 8), float(number)))
        found.append(bench.chip.take())
    return found


@pytest.mark.parametrize(("aggregation", "kept"), [("summary", [1, 2]), ("predictiveness", [2])])
def test_a_lost_frame_costs_the_next_one_only_where_its_size_is_not_known(aggregation: str, kept: list[int]) -> None:
    bench = Bench(aggregation)
    _, *rest = frames_apart(bench, 3)
    assert [reading.frame for reading in bench.host.feed(b"".join(rest))] == kept


@pytest.mark.parametrize("doubt", ["another program is on its way", "another host's program", "a broken link"])
def test_the_size_of_a_frame_is_not_known_while_the_program_is_in_doubt(doubt: str) -> None:
    bench = Bench()
    if doubt.startswith("another host"):
        other = Host(bench.chip.hardware, wire_taps(bench.instrument, ["a", "b"]))
        other.program("hidden", "vector_change")
        for _ in range(3):
            bench.chip.receive(other.take())
            heard = bench.chip.take()
            other.feed(heard)
            bench.host.feed(heard)
        assert bench.host.is_foreign
    _, *rest = frames_apart(bench, 3)
    if doubt.startswith("another program"):
        bench.host.program("hidden", "gradient_norm")
        bench.host.take()
    elif doubt == "a broken link":
        bench.host.disconnected()
    assert [reading.frame for reading in bench.host.feed(b"".join(rest))] == [2]


def test_another_aggregation_holds_from_the_chips_word_on() -> None:
    bench = Bench()
    tensor = np.ones((4, 8))
    bench.offer(tensor)
    said = bench.host.program("hidden", "distribution", {"bins": 8})
    assert "aggregation distribution" in said
    before, after = bench.exchange()[0], bench.look(tensor)
    assert (before.aggregation, after.aggregation) == ("summary", "distribution"), "sent before it was asked"
    assert after.histogram is not None
    assert sum(after.histogram["counts"]) == 32
    assert bench.look(tensor, 1).aggregation == "gradient_norm", "the other tap stays"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda host: host.program("hiden", "summary"), "did you mean"),
        (lambda host: host.program("hidden", "sumary"), 'did you mean "summary"'),
        (lambda host: host.program("hidden", "distribution", {"bin": 3}), 'unknown option "bin"'),
        (lambda host: host.program("hidden", "distribution", {"bins": 4000}), "range_rows = 500"),
        (lambda host: host.program("hidden", chains=[[{"op": "vv_fly"}]]), "vv_fly"),
        (lambda host: host.set_ranges("slope", [[0, 1]]), "has 0"),
        (lambda host: host.set_ranges("hidden", [list(range(9))]), "ranges of summary are classes"),
        (lambda host: host.control(9, 1), "this hardware has 4"),
        (lambda host: host.program("hidden", "predictiveness", {"window": 0}), "window is 0"),
    ],
)
def test_what_cannot_be_is_not_sent(call, said: str) -> None:
    bench = Bench()
    with pytest.raises(ConfigError, match=said):
        call(bench.host)
    assert bench.host.take() == b""
    assert bench.look(np.ones((2, 8))).aggregation == "summary"


def test_firmware_of_ones_own() -> None:
    bench = Bench()
    chains = [[{"op": "vv_max", "addr": 0, "conditions": ["notfirst@1"]}, {"op": "v_cache", "addr": 0},
               {"op": "v_commit", "size": "N", "conditions": ["last@1"]}]]  # fmt: skip
    bench.host.program("hidden", chains=chains)
    bench.exchange()
    tensor = np.arange(24.0).reshape(3, 8)
    found = bench.look(tensor)
    assert (found.aggregation, found.lanes) == ("firmware", tensor.max(axis=0).tolist())


def test_firmware_of_ones_own_brings_its_ranges() -> None:
    bench = Bench()
    ends = [{"op": "m_reduce", "axis": "M"}, {"op": "v_commit", "size": "M"}]
    chains = [[{"op": "vv_filter", "addr": row}, *ends] for row in (0, 1)]
    edges = ["-inf", 0, 1, 2, 3, 4, 5, 6, "inf"]
    bench.host.program("hidden", chains=chains, boundaries=[edges, {"classes": ["zero", "normal"]}])
    bench.exchange()
    assert bench.look(np.arange(8.0)[None]).lanes == [1.0] * 8 + [1, 7, 0, 0, 0, 0, 0, 0]
    with pytest.raises(ConfigError, match='range row 1: a boundary is "x"'):
        bench.host.program("hidden", chains=chains, boundaries=[edges, ["x"]])


def test_ranges_of_ones_own() -> None:
    bench = Bench("distribution", bins=8)
    edges = [float("-inf"), -2, -1, 0, 1, 2, 3, 4, float("inf")]
    bench.host.set_ranges("hidden", [edges])
    bench.exchange()
    tensor = np.array([[-3.0, -1.5, -1, 0, 0.5, 2, 3.5, 9]])
    found = bench.look(tensor)
    assert found.histogram == {"edges": edges, "counts": [1, 2, 1, 1, 1, 0, 1, 1]}


def test_ranges_of_a_wrong_length_are_not_sent() -> None:
    bench = Bench("distribution", bins=8)
    with pytest.raises(ConfigError, match="9: one more than the ranges"):
        bench.host.set_ranges("hidden", [[0, 1]])
    assert bench.host.take() == b""


def test_norm_check_follows_on_every_tap() -> None:
    bench = Bench("norm_check", "norm_check")
    rng = np.random.default_rng(2)
    for _ in range(12):
        tensors = [to_values(rng.normal(size=(64, 8)) * 5 + centre) for centre in (300.0, -700.0)]
        for tap, tensor in enumerate(tensors):
            bench.offer(tensor, tap)
        found = bench.exchange()
        assert [reading.wire.tap for reading in found] == [0, 1]
    for tensor, reading in zip(tensors, found, strict=True):
        assert abs(reading.values["p50"] - np.median(tensor)) < 0.08 * np.ptp(tensor)


def test_norm_check_finds_a_layer_again_that_was_dead() -> None:
    bench = Bench("norm_check")
    for _ in range(60):
        bench.look(np.zeros((64, 8)))
    rng = np.random.default_rng(3)
    for _ in range(12):
        tensor = to_values(rng.normal(size=(64, 8)) + 1.0)
        found = bench.look(tensor)
    assert abs(found.values["p50"] - np.median(tensor)) < 0.08 * np.ptp(tensor)


def test_norm_check_follows_a_distribution_that_moves() -> None:
    bench = Bench("norm_check")
    rng = np.random.default_rng(1)
    for scale, centre in ((1.0, 0.0), (40.0, 200.0), (0.01, -3.0)):
        for _ in range(12):
            tensor = to_values(rng.normal(size=(64, 8)) * scale + centre)
            found = bench.look(tensor)
        wanted = np.percentile(tensor, [15, 50, 85])
        got = [found.values[name] for name in ("p15", "p50", "p85")]
        spread = np.ptp(tensor)
        assert np.abs(np.array(got) - wanted).max() < 0.08 * spread, (scale, centre, got, wanted)


def to_values(tensor: np.ndarray) -> np.ndarray:
    from presilicon.instrument import values_of

    return values_of(HARDWARE, to_words(HARDWARE, tensor))


@pytest.mark.parametrize(
    ("name", "options"), [("distribution", {}), ("norm_check", {}), ("summary", {}), ("sparsity", {"each": "group"})]
)
def test_counts_that_the_words_cannot_hold_are_left_out_with_a_note(name: str, options: dict[str, Any]) -> None:
    bench = Bench(name, hardware=replace(HARDWARE, accumulator_bits=None), **options)
    found = bench.look(np.zeros((600, 8)))
    plain = found.fields()
    assert "too large for words of 16 bits" in plain["notes"][0]
    assert (found.histogram, found.lanes) == (None, None)
    assert all(found.values.get(figure) is None for figure in ("zeros", "sparsity", "p50"))
    assert bench.host.undecodable == 0


def test_predictiveness_is_averaged_over_a_window() -> None:
    bench = Bench("predictiveness", window=2)
    found = [bench.look(np.full((4, 8), value)).values["predictiveness"] for value in (1.0, 3.0, 5.0)]
    assert found == [1.0, 2.0, 4.0]


def test_sampling_can_be_changed() -> None:
    bench = Bench()
    bench.host.sample("hidden", 0)
    bench.exchange()
    bench.offer(np.ones((2, 8)))
    assert bench.exchange() == []
    bench.host.sample("hidden", 1)
    bench.exchange()
    assert bench.look(np.ones((2, 8))).values["sum"] == 16


def test_an_image_that_the_chip_refuses_changes_nothing() -> None:
    bench = Bench()
    bench.host.program("hidden", "distribution")
    image = bytearray(bench.host.take())
    image[40] ^= 1
    bench.chip.receive(bytes(image))
    bench.host.feed(bench.chip.take())
    assert bench.host.refusals == ["a wrong checksum"]
    assert bench.look(np.ones((2, 8))).aggregation == "summary"


def test_an_image_that_got_lost_leaves_host_and_chip_in_step() -> None:
    now = [0.0]
    bench = Bench(clock=lambda: now[0])
    tensor = np.ones((4, 8))
    bench.host.program("hidden", "distribution", {"bins": 8})
    assert bench.host.take(), "it never arrives"
    bench.host.program("hidden", "gradient_norm")
    assert bench.look(tensor).aggregation == "summary"
    now[0] = 10.0
    bench.exchange()
    assert not bench.host.is_waiting
    assert bench.look(tensor).values["norm"] == pytest.approx(32**0.5)


def test_an_image_that_lost_its_end_is_found_in_the_padding_and_sent_again() -> None:
    now = [0.0]
    bench = Bench(clock=lambda: now[0])
    bench.host.program("hidden", "distribution", {"bins": 8})
    bench.chip.receive(bench.host.take()[:-30])
    assert bench.look(np.ones((4, 8))).aggregation == "summary"
    now[0] = 10.0
    bench.exchange()
    assert (bench.host.is_waiting, bench.host.refusals) == (False, [])
    assert bench.look(np.ones((4, 8))).aggregation == "distribution"


def test_a_status_that_got_lost_does_not_matter() -> None:
    now = [0.0]
    bench = Bench(clock=lambda: now[0])
    bench.host.program("hidden", "gradient_norm")
    bench.chip.receive(bench.host.take())
    assert bench.chip.take()
    now[0] = 10.0
    bench.exchange()
    assert not bench.host.is_foreign
    bench.offer(np.ones((4, 8)))
    bench.exchange()  # the first frame behind a gap is not known to be whole
    assert bench.look(np.ones((4, 8))).aggregation == "gradient_norm"
    bench.host.sample("hidden", 1)
    bench.exchange()
    assert not bench.host.is_foreign


def test_an_order_that_was_refused_is_not_part_of_the_next() -> None:
    bench = Bench()
    bench.host.program("hidden", "gradient_norm")
    bench.host.program("slope", "summary")
    image = bytearray(bench.host.take())
    image[40] ^= 1
    bench.chip.receive(bytes(image))
    bench.host.feed(bench.chip.take())
    bench.exchange()
    looks = [bench.look(np.ones((4, 8)), tap).aggregation for tap in (0, 1)]
    assert looks == ["summary", "summary"]


def test_what_another_host_programs_is_not_read_as_ones_own() -> None:
    bench = Bench()
    other = Host(HARDWARE, wire_taps(bench.instrument, ["a", "b"]))
    other.take()
    other.feed(StreamWriter(HARDWARE).status(Status(0, 0, 1, 5, (0, 0))))
    other.program("hidden", "gradient_norm")
    bench.chip.receive(other.take())
    bench.exchange()
    assert bench.host.is_foreign
    found = bench.look(np.ones((4, 8)))
    assert (found.aggregation, found.values) == ("unknown", {})
    bench.host.program("hidden", "summary")
    bench.exchange()
    assert bench.look(np.ones((4, 8))).values["sum"] == 32


def test_ranges_that_another_host_moves_are_noticed_by_the_count() -> None:
    bench = Bench("distribution", bins=8)
    rows = {0: RangeRow.of_boundaries([*range(8), "inf"])}
    bench.chip.receive(compile_firmware(Firmware(), HARDWARE, rows=rows).to_bytes())
    bench.exchange()
    assert bench.look(np.ones((4, 8))).aggregation == "unknown"
