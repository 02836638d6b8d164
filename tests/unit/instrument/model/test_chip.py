"""A chip at work: images are taken or refused, frames are looked at in turn, and whole ones are dropped."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from presilicon.designs import Hardware, Instrument
from presilicon.formats import parse
from presilicon.instrument import Firmware, Image, Reference, compile_firmware
from presilicon.instrument.firmware.image import longest_payload
from presilicon.instrument.host.decoder import Decoder, Frame
from presilicon.instrument.host.stream import Status
from presilicon.instrument.model.chip import Chip, whole

HARDWARE = Hardware(lanes=4, ranges=4, taps=2, buffer=8, element=parse("fixed(16, 0)"), accumulator_bits=32)
INSTRUMENT = Instrument(hardware=HARDWARE, clock_mhz=1.0, link_bytes_per_s=1e6)


def sums() -> Firmware:
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.commit("N", "last")
    return fw


def started(instrument: Instrument = INSTRUMENT, **options: Any) -> Chip:
    chip = Chip(instrument, Reference(instrument.built))
    chip.receive(compile_firmware(sums(), instrument.built, **options).to_bytes())
    return chip


def ones(count: int = 4) -> Any:
    return whole(np.ones((count, 4), np.int64))


def heard(chip: Chip) -> tuple[list[Frame], list[Status], Decoder]:
    decoder = Decoder(chip.hardware)
    found = decoder.feed(chip.take())
    frames = [each for each in found if isinstance(each, Frame)]
    return frames, [each for each in found if isinstance(each, Status)], decoder


def test_frames_come_out_as_packets() -> None:
    chip = started()
    assert chip.offer(1, 0, 0.0, lambda: ones(3))
    frames, statuses, decoder = heard(chip)
    assert frames == [Frame(1, 0, ((3, 3, 3, 3),))]
    assert len(statuses) == 1
    assert decoder.losses.skipped_bytes == 0


def test_every_kth_frame_is_looked_at() -> None:
    chip = started(sampling=(3, 0))
    for frame in range(10):
        chip.offer(0, frame, frame * 1e-3, ones)
        chip.offer(1, frame, frame * 1e-3 + 5e-4, ones)
    frames, _, _ = heard(chip)
    assert [(frame.tap, frame.number) for frame in frames] == [(0, 0), (0, 3), (0, 6), (0, 9)]
    assert chip.dropped == [0, 0], "what sampling passes over is not dropped"


def test_a_new_sampling_begins_with_the_next_frame() -> None:
    chip = started(sampling=(4, 1))
    for frame in range(12):
        if frame == 6:
            chip.receive(Image(HARDWARE, sampling=(3, 1)).to_bytes())
        chip.offer(0, frame, frame * 1e-3, ones)
    assert [frame.number for frame in heard(chip)[0]] == [0, 4, 6, 9]


def test_a_tap_without_a_program_is_not_watched() -> None:
    chip = Chip(INSTRUMENT, Reference(HARDWARE))
    assert not chip.offer(0, 0, 0.0, ones)
    assert chip.take() == b""


def test_a_buffer_that_fills_breaks_the_frame_off() -> None:
    # A vector every half microsecond, one microsecond for each: the eight places are full after sixteen.
    fast = replace(INSTRUMENT, vectors_per_s=2e6)
    chip = started(fast)
    assert not chip.offer(0, 0, 0.0, lambda: ones(17))
    assert chip.offer(0, 1, 1e-3, lambda: ones(16))
    frames, statuses, _ = heard(chip)
    assert [(frame.number, frame.words) for frame in frames] == [(1, (16, 16, 16, 16))]
    assert statuses[-1].dropped == (1, 0), "told before the next frame's first packet"


def test_a_buffer_more_than_half_full_accepts_no_frame() -> None:
    chip = started(replace(INSTRUMENT, vectors_per_s=2e6))
    chip.offer(0, 0, 0.0, lambda: ones(14))
    # It was offered for 7 us and takes 14: at 8 us six vectors wait, at 11 us three.
    assert not chip.offer(1, 0, 8e-6, ones)
    assert chip.offer(1, 1, 11e-6, ones)
    assert chip.dropped == [0, 1]


def test_a_frame_within_another_taps_is_dropped() -> None:
    chip = started()
    chip.offer(0, 0, 0.0, lambda: ones(100))
    assert not chip.offer(1, 0, 50e-6, ones)
    assert chip.offer(1, 1, 101e-6, ones)


def test_a_link_that_cannot_keep_up_drops_whole_frames() -> None:
    slow = replace(INSTRUMENT, link_bytes_per_s=1000.0, output_bytes=200)
    chip = started(slow)
    sent = [chip.offer(0, frame, frame * 1e-3, ones) for frame in range(400)]
    frames, _, decoder = heard(chip)
    assert [frame.number for frame in frames] == [number for number, was in enumerate(sent) if was]
    assert decoder.losses.skipped_bytes == decoder.losses.lost_packets == 0
    assert decoder.losses.taps[0].torn == 0
    assert chip.dropped[0] == 400 - len(frames) > 0
    # Each frame takes 27 bytes, and its status 33: of a kilobyte a second in 0.4 s, and what the buffer holds.
    assert 400 <= 60 * len(frames) <= 900


def test_every_drop_has_its_reason() -> None:
    chip = started()
    chip.offer(0, 0, 0.0, lambda: ones(100))
    chip.offer(1, 0, 50e-6, ones)
    assert chip.reasons == [{}, {"busy": 1}]
    fast = started(replace(INSTRUMENT, vectors_per_s=1e9))
    fast.offer(0, 0, 0.0, lambda: ones(100))
    assert fast.reasons[0] == {"input": 1}
    slow = started(replace(INSTRUMENT, link_bytes_per_s=1.0, output_bytes=120))
    for frame in range(9):
        slow.offer(0, frame, frame * 1e-3, ones)
    assert list(slow.reasons[0]) == ["output"]
    assert sum(slow.reasons[0].values()) == slow.dropped[0]
    words = np.ones((9, 4), np.int64)
    small = started(replace(INSTRUMENT, output_bytes=64))
    small.offer(0, 0, 0.0, lambda: (words, np.tile([True, False], (9, 1)) | (np.arange(9) == 8)[:, None]))
    assert small.reasons[0] == {"size": 1}


def other_image() -> bytes:
    fw = Firmware()
    with fw.chain():
        fw.commit(1)
    return compile_firmware(fw, HARDWARE).to_bytes()


@pytest.mark.parametrize(("place", "code"), [(4, 2), (6, 3), (30, 5)])
def test_a_damaged_image_is_refused_and_the_old_one_stays(place: int, code: int) -> None:
    chip = started()
    image = bytearray(other_image())
    image[place] ^= 1
    chip.receive(bytes(image))
    chip.offer(0, 0, 0.0, ones)
    frames, statuses, _ = heard(chip)
    assert frames[0].words == (4, 4, 4, 4)
    assert (statuses[-1].taken, statuses[-1].refused, statuses[-1].refusal) == (1, 1, code)


@pytest.mark.parametrize("bit", range(8))
def test_an_image_of_a_wrong_length_costs_itself_and_at_most_the_next(bit: int) -> None:
    chip = started()
    image = bytearray(other_image())
    image[20] ^= 1 << bit
    chip.receive(bytes(image))
    chip.offer(0, 0, 0.0, ones)
    assert heard(chip)[0][0].words == (4, 4, 4, 4)
    for _ in range(8):
        chip.receive(other_image())
    _, statuses, _ = heard(chip)
    assert statuses[-1].refused == 1
    assert statuses[-1].refusal in (4, 5)
    assert statuses[-1].taken >= 2


@pytest.mark.parametrize("bit", range(32))
def test_zeros_bring_a_loader_back_that_waits_for_a_wrong_length(bit: int) -> None:
    chip = started()
    image = bytearray(other_image())
    image[20 + bit // 8] ^= 1 << bit % 8
    announced = int.from_bytes(image[20:24], "little")
    chip.receive(bytes(image))
    refused_at_once = announced > longest_payload(HARDWARE)
    _, statuses, _ = heard(chip)
    assert statuses[-1].refused == (refused_at_once or announced < len(image) - 28)
    assert not refused_at_once or statuses[-1].refusal == 4
    chip.receive(bytes(longest_payload(HARDWARE) + 28) + other_image())
    _, statuses, _ = heard(chip)
    assert (statuses[-1].taken, statuses[-1].refused) == (2, 1)


def test_images_come_in_pieces_and_with_noise_between() -> None:
    chip = Chip(INSTRUMENT, Reference(HARDWARE))
    image = compile_firmware(sums(), HARDWARE).to_bytes()
    for byte in b"noise PSF" + image + b"PS" + image:
        chip.receive(bytes([byte]))
    _, statuses, _ = heard(chip)
    assert [status.taken for status in statuses] == [1, 2]
    assert statuses[-1].image == int.from_bytes(image[-4:], "little")


def test_control_registers() -> None:
    chip = started()
    chip.receive(Image(HARDWARE, controls=((2, 0xDEADBEEF),)).to_bytes())
    assert chip.controls[2] == 0xDEADBEEF
    assert chip.written == {2}
    chip.offer(0, 0, 0.0, ones)
    assert heard(chip)[0][0].words == (4, 4, 4, 4), "the program stays"


def test_taps_that_collide_take_turns() -> None:
    """Both are due at the same time, and the instrument looks at one frame at a time."""
    chip = started(sampling=(5, 5))
    looked: dict[int, list[int]] = {0: [], 1: []}
    for frame in range(20):
        for tap in (0, 1):
            if chip.offer(tap, frame, frame * 1e-3, ones):
                looked[tap].append(frame)
    assert looked == {0: [0, 5, 10, 15], 1: [1, 6, 11, 16]}
    assert chip.dropped == [0, 1], "once, then they are apart"
