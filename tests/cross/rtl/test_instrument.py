"""The whole circuit: several taps, images while data flows, frames dropped and broken off, two clocks.

The bytes that it sends are those that the reference predicts from the vectors that it accepted.
"""

from collections import Counter
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest
from cases import random_firmware, random_vectors
from circuits import make

from oracles.cosimulation import BREAK, EXCHANGE, REPORT, STATUS, TOO_LATE, VECTOR, TapStream, predict, simulate
from presilicon.designs import Instrument
from presilicon.instrument import Firmware, Image, Reference, compile_firmware
from presilicon.instrument.firmware.image import longest_payload
from presilicon.instrument.host.decoder import Decoder
from presilicon.instrument.host.stream import BLOCK, HEADER, LAST, Packet, Status
from presilicon.instrument.host.stream import STATUS as STATUS_PACKET
from presilicon.instrument.model.chip import Chip

FIXED = make(4, 2, "fixed(4, 4)", 12, taps=3)
HALF = make(2, 2, "float16", buffer=4, taps=2)


def stream_of(rng, hardware, count, pauses) -> TapStream:
    words, last = random_vectors(rng, hardware, count)
    last[-1] = True
    return TapStream(words, last, rng.integers(0, pauses, count).astype(np.int32))


def frames_of(last) -> list[slice]:
    ends = [0, *(np.flatnonzero(last[:, 1]) + 1).tolist()]
    return [slice(begin, end) for begin, end in pairwise(ends)]


def check_whole_frames(hardware, taps, trace) -> None:
    """What entered are whole frames of the taps, in order, or beginnings of frames that were broken off."""
    vectors: list[int] = []
    seen = [-1] * hardware.taps
    for event in trace.events:
        if event.kind == VECTOR:
            vectors.append(event.vector)
        if event.kind not in (VECTOR, BREAK) or (event.kind == VECTOR and not event.last & 2):
            continue
        tap = event.tap
        first = next(e for e in trace.events if e.kind == VECTOR and e.vector == vectors[0])
        assert first.number > seen[tap]
        seen[tap] = first.number
        whole = taps[tap].words[frames_of(taps[tap].last)[first.number]]
        expected = whole if event.kind == VECTOR else whole[: len(vectors)]
        assert trace.vectors[vectors].tolist() == expected.tolist()
        vectors = []


def check_statuses(trace) -> None:
    """One after every image; and none of them is late."""
    reports = [event.cycle for event in trace.events if event.kind == REPORT]
    statuses = [event.cycle for event in trace.events if event.kind == STATUS and event.tap == 0]
    assert len(statuses) >= len(reports)
    for cycle in reports:
        assert any(status >= cycle for status in statuses)


def check_images(trace) -> None:
    """The image of every frame is that of the last status before it."""
    taken, images = 0, []
    for event in trace.events:
        taken += event.kind == EXCHANGE
        if event.kind == VECTOR and event.last & 2:
            images.append((event.tap, event.number, taken))
    reported, sent = 0, []
    for packet in packets(trace.stream):
        if packet.kind == STATUS_PACKET:
            reported = Status.from_bytes(packet.payload).taken
        elif packet.last:
            sent.append((packet.tap, packet.frame, reported))
    late = {(event.tap, event.number) for event in trace.events if event.kind == TOO_LATE}
    assert sent == [image for image in images if image[:2] not in late]


def test_random_taps_and_images() -> None:
    seen: Counter[int] = Counter()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        hardware, crossed = ((FIXED, ()), (HALF, (0,)))[seed % 2]
        images = [compile_firmware(random_firmware(rng, hardware), hardware).to_bytes() for _ in range(3)]
        flipped = images[1][:-1] + bytes([images[1][-1] ^ 1])
        pauses = [1, 4, 20, 60]
        taps = [stream_of(rng, hardware, int(rng.integers(20, 120)), rng.choice(pauses)) for _ in range(hardware.taps)]
        trace = simulate(
            hardware,
            taps,
            [(0, images[0]), (600, flipped), (900, images[1]), (1500, b"xxPSF"), (1501, images[2])],
            seed=seed,
            stream_gap=float(rng.choice([0.0, 0.3])),
            stream_every=int(rng.choice([1, 4, 20])),
            crossed=crossed,
            periods=(10, int(rng.choice([4, 7, 10, 13, 30]))),
        )
        assert trace.stream == predict(Reference(hardware), trace, images), seed
        if not crossed:
            check_whole_frames(hardware, taps, trace)
        check_statuses(trace)
        check_images(trace)
        seen.update(event.kind for event in trace.events)
    for kind in (BREAK, TOO_LATE, VECTOR, STATUS):
        assert seen[kind] > 10


def sums(hardware, **fields) -> bytes:
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst@1")
        fw.cache(0)
        fw.commit("N", "last@1")
    image = compile_firmware(fw, hardware)
    return Image(hardware, image.chains, image.taps, **fields).to_bytes()


def even(hardware, frames, length, pause, start=0) -> TapStream:
    """Frames of the same length at an even rate."""
    count = frames * length
    words = np.arange(count * hardware.lanes).reshape(count, -1) % 100
    last = np.zeros((count, 2), bool)
    last[length - 1 :: length] = True
    pauses = np.full(count, pause, np.int32)
    pauses[0] = start
    return TapStream(words, last, pauses)


def idle(hardware) -> TapStream:
    return TapStream(np.zeros((0, hardware.lanes), np.int64), np.zeros((0, 2), bool), np.zeros(0, np.int32))


def sent_frames(trace) -> list[tuple[int, int]]:
    """Tap and number of the frames whose packets are complete."""
    return [(packet.tap, packet.frame) for packet in packets(trace.stream) if packet.kind == BLOCK and packet.last]


def packets(stream):
    found, place = [], 0
    while place < len(stream):
        _, kind, tap, number, frame, length = HEADER.unpack_from(stream, place)
        payload = stream[place + HEADER.size : place + HEADER.size + length]
        packet = Packet(kind & ~LAST, tap, number, frame, payload, bool(kind & LAST))
        assert packet.to_bytes() == stream[place : place + HEADER.size + length + 2]
        found.append(packet)
        place += HEADER.size + length + 2
    return found


def damaged_images(rng, hardware, count) -> bytes:
    """Images, some with flipped bits (often in the header), lost or repeated bytes, lengths that cannot be, noise."""
    sent = b""
    for _ in range(count):
        firmware = compile_firmware(random_firmware(rng, hardware), hardware, sampling=[1] * hardware.taps)
        image = bytearray(firmware.to_bytes())
        kind = rng.integers(8)
        place = int(rng.integers(4, 28 if rng.integers(2) else len(image)))
        if kind == 0:
            image[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del image[place]
        elif kind == 2:
            image.insert(place, int(rng.integers(256)))
        elif kind == 3:
            image[20:24] = int(longest_payload(hardware) + rng.integers(1, 3)).to_bytes(4, "little")
            image[4] ^= int(rng.integers(2))
        elif kind == 4:  # wrong within a right checksum
            image[place] ^= 1 << int(rng.integers(8))
            image[20:24] = (len(image) - 28).to_bytes(4, "little")
            image[-4:] = crc32(image[:-4]).to_bytes(4, "little")
        elif kind == 5:
            image += b"PSPSF" + rng.integers(0, 256, 5, dtype=np.uint8).tobytes()
        sent += image
    return sent


@pytest.mark.parametrize("seed", range(3))
def test_damaged_images_are_taken_and_refused_alike_by_circuit_and_model(seed) -> None:
    rng = np.random.default_rng(seed)
    sent = damaged_images(rng, FIXED, 150) + bytes(longest_payload(FIXED) + 28)
    sent += Image(FIXED, sampling=(1,) * FIXED.taps).to_bytes()
    chip = Chip(Instrument(hardware=FIXED))
    chip.receive(sent)
    expected = list(dict.fromkeys(Decoder(FIXED).feed(chip.take())))
    quiet = TapStream(np.zeros((1, 4), np.int64), np.ones((1, 2), np.bool_), np.zeros(1, np.int32))
    trace = simulate(FIXED, [quiet] * FIXED.taps, [(2000, sent)])
    heard = Decoder(FIXED).feed(trace.stream)
    found = [each._replace(dropped=(0,) * FIXED.taps) for each in heard if isinstance(each, Status)]
    found = [each for each in dict.fromkeys(found) if each.taken or each.refused]
    assert {each.refusal for each in expected} >= {2, 3, 4, 5, 6}
    assert found == expected


def test_the_first_tap_goes_first() -> None:
    """Two taps begin in the same cycle, again and again: the second comes through only where the first is silent."""
    taps = [even(FIXED, 5, 1, 199, 999), even(FIXED, 10, 1, 99, 999), idle(FIXED)]
    trace = simulate(FIXED, taps, [(0, sums(FIXED))])
    assert sent_frames(trace) == [
        (0, 0), (1, 1), (0, 1), (1, 3), (0, 2), (1, 5), (0, 3), (1, 7), (0, 4), (1, 9)
    ]  # fmt: skip
    assert trace.dropped == (0, 5, 0)
    assert trace.stream == predict(Reference(FIXED), trace, [sums(FIXED)])


def test_sampling_looks_at_every_kth_frame() -> None:
    taps = [even(FIXED, 9, 3, 50, 999), idle(FIXED), even(FIXED, 6, 1, 80, 1900)]
    image = sums(FIXED, sampling=(4, 1, 0))
    trace = simulate(FIXED, taps, [(0, image)])
    assert sent_frames(trace) == [(0, 0), (0, 4), (0, 8)]
    assert trace.dropped == (0, 0, 0)


def test_frame_numbers_are_right_behind_more_than_65536_frames_that_do_not_come() -> None:
    """Every 40,000th frame is looked at, and one of these is lost on the way."""
    image = sums(FIXED, sampling=(40000, 0, 0))
    tap = even(FIXED, 120001, 1, 0, 2000)
    trace = simulate(FIXED, [tap, idle(FIXED), idle(FIXED)], [(0, image)])
    assert sent_frames(trace) == [(0, number) for number in (0, 40000, 80000, 120000)]
    status, *frames = [packet.to_bytes() for packet in packets(trace.stream)]
    decoder = Decoder(FIXED, frame_words=lambda tap, program: 4)
    found = decoder.feed(b"".join([status, frames[0], frames[3]]))
    assert [frame.number for frame in found[1:]] == [0, 120000]


def test_a_slow_link_drops_whole_frames_and_says_so() -> None:
    taps = [even(FIXED, 300, 4, 2, 999), idle(FIXED), idle(FIXED)]
    image = sums(FIXED)
    trace = simulate(FIXED, taps, [(0, image)], stream_every=40)
    sent = sent_frames(trace)
    assert 0 < len(sent) < 300
    assert len(sent) + trace.dropped[0] == 300
    assert trace.stream == predict(Reference(FIXED), trace, [image])
    assert sum(packet.kind == STATUS_PACKET for packet in packets(trace.stream)) > 1


def test_a_frame_larger_than_the_output_buffer_is_broken_off() -> None:
    fw = Firmware()
    with fw.chain():
        fw.commit("N")
    image = compile_firmware(fw, FIXED).to_bytes()
    long, short = even(FIXED, 1, 60, 20, 999), even(FIXED, 4, 5, 20, 200)
    words = np.concatenate([long.words, short.words])
    tap = TapStream(words, np.concatenate([long.last, short.last]), np.concatenate([long.pauses, short.pauses]))
    trace = simulate(FIXED, [tap, idle(FIXED), idle(FIXED)], [(0, image)])
    assert sent_frames(trace) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert trace.dropped[0] == 1
    assert trace.stream == predict(Reference(FIXED), trace, [image])


def test_firmware_is_exchanged_between_frames_without_a_gap_in_the_data() -> None:
    """Vectors at an even rate, frame after frame; images come meanwhile; no frame is lost, none is mixed."""
    fw = Firmware()
    with fw.chain():
        fw.max(1, "notfirst@1")
        fw.cache(1)
        fw.commit(1, "last@1")
    images = [sums(FIXED), compile_firmware(fw, FIXED).to_bytes(), sums(FIXED, controls=((0, 0xDEADBEEF),))]
    taps = [even(FIXED, 200, 6, 7, 900), idle(FIXED), idle(FIXED)]
    trace = simulate(FIXED, taps, [(0, images[0]), (2000, images[1]), (5000, images[2])])
    check_images(trace)
    assert trace.dropped == (0, 0, 0)
    assert trace.control == 0xDEADBEEF
    sizes = [len(packet.payload) for packet in packets(trace.stream) if packet.kind == BLOCK]
    assert len(sizes) == 200
    assert [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before] == [8, 2, 8]
    assert trace.stream == predict(Reference(FIXED), trace, images)


def test_one_cycle_of_reset_leaves_nothing_of_an_image_under_way() -> None:
    """Wherever the reset cuts the first image, only what the second one writes is there in the end."""
    cut, whole = (Image(FIXED, controls=controls).to_bytes() for controls in (((0, 77),), ((1, 5),)))
    nothing = [idle(FIXED)] * FIXED.taps
    plain = simulate(FIXED, nothing, [(0, cut), (400, whole)])
    assert plain.control == 77
    for cycle in range(1, len(cut) + 8):
        assert simulate(FIXED, nothing, [(0, cut), (400, whole)], reset_at=cycle).control == 0, cycle


def test_ranges_are_moved_in_flight() -> None:
    """As NormCheck does: new boundaries for a row in use, while frames flow."""
    hardware = make(4, 4, "fixed(8, 8)", 24, flush="frame")
    fw = Firmware()
    fw.range_row(0, [-1, 0, 1, 2, 3])
    with fw.chain():
        fw.filter(0)
        fw.reduce("M")
        fw.add(0, "notfirst@1")
        fw.cache(0)
        fw.commit("M", "last@1")
    first = compile_firmware(fw, hardware)
    fw.range_row(0, [-0.5, 0.125, 0.25, 0.5, 100])
    second = compile_firmware(fw, hardware)
    rows_only = Image(hardware, rows=second.rows).to_bytes()
    rng = np.random.default_rng(0)
    words = np.rint(rng.normal(size=(400, 4)) * 256).astype(np.int64)
    last = np.zeros((400, 2), bool)
    last[9::10] = True
    pauses = np.full(400, 7, np.int32)
    pauses[0] = 900
    images = [first.to_bytes(), rows_only]
    trace = simulate(hardware, [TapStream(words, last, pauses)], [(0, images[0]), (2000, images[1])])
    assert trace.dropped == (0,)
    assert trace.stream == predict(Reference(hardware), trace, images)
    payloads = [np.frombuffer(p.payload, np.uint8) for p in packets(trace.stream) if p.kind == BLOCK]
    assert len(payloads) == 40


@pytest.mark.parametrize("period", [3, 9, 10, 11, 37])
def test_a_tap_of_another_clock_loses_nothing_that_is_not_counted(period) -> None:
    taps = [even(HALF, 50, 4, 8, 2999), even(HALF, 20, 2, 30, 999)]
    image = sums(HALF)
    trace = simulate(HALF, taps, [(0, image)], crossed=(0,), periods=(10, period), queue=8)
    sent = sent_frames(trace)
    assert trace.stream == predict(Reference(HALF), trace, [image])
    assert sum(tap == 0 for tap, _ in sent) + trace.dropped[0] == 50
    assert sum(tap == 1 for tap, _ in sent) + trace.dropped[1] == 20
    if period >= 10:
        assert sum(tap == 0 for tap, _ in sent) > 20
