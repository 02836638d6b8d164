"""The host at the other end of the simulated circuit's own bytes: its figures, its frames, and the model's stream."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oracles.cosimulation import TapStream, simulate
from presilicon.base import MissingToolError
from presilicon.designs import Hardware, Instrument, Tap
from presilicon.formats import parse
from presilicon.instrument import to_words, values_of
from presilicon.instrument.host.decoder import Decoder, Frame
from presilicon.instrument.host.host import Host, Shape
from presilicon.instrument.host.lockstep import compare_streams
from presilicon.instrument.host.stream import Status
from presilicon.instrument.host.taps import wire_taps
from presilicon.instrument.host.tensors import cut_tensor
from presilicon.instrument.model.chip import Chip

HARDWARE = Hardware(
    lanes=4, ranges=2, element=parse("fixed(4, 4)"), accumulator_bits=12, taps=3, buffer=8, range_rows=3,
    scratchpad_rows=4, chains=8,
)  # fmt: skip
INSTRUMENT = Instrument(
    hardware=HARDWARE,
    taps=(
        Tap(name="a", layers="a", aggregation="gradient_norm", every=1),
        Tap(name="b", layers="b", aggregation="sparsity", options={"each": "group"}, every=2),
        Tap(name="c", layers="c", aggregation="predictiveness", every=1),
    ),
)
STEPS, NODES, SAMPLES = 12, 6, 3


def tensors() -> dict[tuple[int, int], Any]:
    rng = np.random.default_rng(5)
    return {(tap, step): rng.integers(-2, 3, (SAMPLES, NODES)) / 2 for tap in range(3) for step in range(STEPS)}


def circuit(image: bytes, *, apart: int, stream_every: int = 1) -> Any:
    """The circuit's trace: the taps' frames in turns, `apart` cycles from one to the next."""
    taps = []
    for tap in range(3):
        parts = [cut_tensor(to_words(HARDWARE, tensors()[tap, step]), 4) for step in range(STEPS)]
        count = len(parts[0][0])
        pauses = np.full(STEPS * count, 8, np.int32)
        pauses[::count] = 3 * apart
        pauses[0] = 1500 + tap * apart  # the image comes first
        words, last = (np.concatenate([part[which] for part in parts]) for which in range(2))
        taps.append(TapStream(words, last, pauses))
    try:
        return simulate(HARDWARE, taps, [(0, image)], stream_every=stream_every)
    except MissingToolError as error:
        pytest.skip(str(error))


def host() -> Host:
    made = Host(INSTRUMENT.built, wire_taps(INSTRUMENT, ["a", "b", "c"]))
    made.shapes = {tap: Shape(SAMPLES * NODES, NODES) for tap in range(3)}
    return made


def test_the_figures_of_the_circuits_bytes() -> None:
    reader = host()
    trace = circuit(reader.take(), apart=120)
    readings = reader.feed(trace.stream)
    assert reader.refusals == []
    assert trace.dropped == (0, 0, 0)
    assert [sum(each.wire.tap == tap for each in readings) for tap in range(3)] == [STEPS, STEPS / 2, STEPS]
    for each in readings:
        tensor = values_of(HARDWARE, to_words(HARDWARE, tensors()[each.wire.tap, each.frame]))
        if each.wire.name == "a":
            assert each.values["sum_of_squares"] == (tensor**2).sum()
        elif each.wire.name == "b":
            assert each.values["sparsity"] == pytest.approx((tensor == 0).mean())
        else:
            assert each.values["largest_mean"] == pytest.approx(tensor.mean(axis=0).max(), abs=1e-9)


def test_the_model_sends_the_same_frames() -> None:
    image = host().take()
    trace = circuit(image, apart=120)
    chip = Chip(INSTRUMENT)
    chip.receive(image)
    for step in range(STEPS):
        for tap in range(3):
            tensor = tensors()[tap, step]
            make = lambda tensor=tensor: cut_tensor(to_words(HARDWARE, tensor), 4)  # noqa: E731
            chip.offer(tap, step, step * 1e-3 + tap * 1e-4, make)
    model = chip.take()
    found = compare_streams(model, trace.stream, HARDWARE)
    assert (found.difference, found.only_here, found.only_there) == (None, 0, 0)
    assert found.compared == 2.5 * STEPS
    first = [
        next(each for each in Decoder(HARDWARE).feed(side) if isinstance(each, Status))
        for side in (model, trace.stream)
    ]
    assert first[0] == first[1], "the status after the image"


def test_a_slow_reader_costs_whole_frames_and_the_account_says_so() -> None:
    reader = host()
    trace = circuit(reader.take(), apart=30, stream_every=60)
    decoder = Decoder(HARDWARE)
    found = decoder.feed(trace.stream) + decoder.finish()
    losses = decoder.losses
    assert (losses.skipped_bytes, losses.lost_packets, [tap.torn for tap in losses.taps]) == (0, 0, [0, 0, 0])
    assert sum(trace.dropped) > 0
    delivered = [sum(isinstance(each, Frame) and each.tap == tap for each in found) for tap in range(3)]
    offered = [a + b for a, b in zip(delivered, trace.dropped, strict=True)]
    assert (offered[0], offered[2]) == (STEPS, STEPS)
    # Every second frame of this tap is looked at, and one that is dropped leaves its turn to the next.
    assert delivered[1] <= STEPS // 2 <= offered[1] <= STEPS
    assert tuple(tap.dropped for tap in losses.taps) <= trace.dropped


MOVING = Instrument(
    hardware=Hardware(
        lanes=4, ranges=4, element=parse("fixed(8, 4)"), accumulator_bits=14, taps=1, buffer=16, range_rows=2,
        scratchpad_rows=2, chains=4, flush="frame", blocks=("filter_reduce", "vector_alu"), alu=("add",), reduce=(),
    ),
    taps=(Tap(name="a", layers="a", aggregation="norm_check", options={"bins": 8}, every=1),),
)  # fmt: skip


@pytest.mark.parametrize(("stream_every", "frames"), [(1, 60), (20, 60), (8680, 40)])
def test_every_reading_is_numpys_although_bins_move_and_the_link_is_slow(stream_every: int, frames: int) -> None:
    """At a byte every 8,680 cycles (115,200 baud at 100 MHz) many frames wait behind each image."""
    hardware = MOVING.built
    rng = np.random.default_rng(3)
    tensors = [rng.normal(loc=0.3 * index, scale=2.0 + index % 5, size=(5, 4)) for index in range(frames)]
    words = [to_words(hardware, tensor) for tensor in tensors]
    parts = [cut_tensor(each, 4) for each in words]
    apart = 60 * stream_every if stream_every > 1 else 400
    pauses = np.zeros(5 * frames, np.int32)
    pauses[::5] = apart // 4
    pauses[0] = 3000
    clock = iter(range(1 << 30))
    reader = Host(hardware, wire_taps(MOVING, ["a"]), clock=lambda: next(clock) * 1e-9)
    reader.shapes = {0: Shape(20, 4)}
    readings: list[Any] = []

    def answer(data: bytes) -> bytes:
        readings.extend(reader.feed(data))
        return reader.take()

    stream = TapStream(*(np.concatenate([part[which] for part in parts]) for which in range(2)), pauses)
    try:
        simulate(hardware, [stream], [(0, reader.take())], stream_every=stream_every, host=answer, most_cycles=1 << 40)
    except MissingToolError as error:
        pytest.skip(str(error))
    assert len(readings) > frames / 4
    bins = [tuple(reading.histogram["edges"]) for reading in readings]
    assert len(set(bins)) > 2
    for reading in readings:
        values = values_of(hardware, words[reading.frame]).ravel()
        edges = reading.histogram["edges"]
        wanted = [((low < values) & (values <= high)).sum() for low, high in pairwise(edges)]
        assert reading.histogram["counts"] == wanted, reading.frame
