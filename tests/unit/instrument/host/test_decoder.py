"""Whatever happens to the bytes on the way: what is delivered was sent, and what was left alone is delivered."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument.host.decoder import Decoder, Frame
from presilicon.instrument.host.stream import PACKET_OVERHEAD, Status, StreamWriter, pack_words, unpack_words

HARDWARES = [
    Hardware(lanes=8, ranges=4, taps=3),
    Hardware(lanes=4, ranges=4, element=parse("bfloat16"), accumulator_bits=24, taps=2),
    Hardware(lanes=16, ranges=4, element=parse("fixed(4, 3)"), taps=2),
    Hardware(lanes=4, ranges=2, element=parse("fixed(16, 16)"), accumulator_bits=48, taps=2),
]


def random_word(rng: random.Random, hardware: Hardware) -> int:
    word = rng.getrandbits(hardware.word_bits)
    return word if hardware.is_float or word < 1 << (hardware.word_bits - 1) else word - (1 << hardware.word_bits)


def stream(rng: random.Random, hardware: Hardware, count: int) -> list[tuple[bytes, Frame | Status]]:
    """Frames and statuses in order, each with its bytes."""
    writer = StreamWriter(hardware)
    numbers = [0] * hardware.taps
    sent: list[tuple[bytes, Frame | Status]] = []
    for _ in range(count):
        if rng.random() < 0.2:
            dropped = tuple(rng.randrange(1 << 32) for _ in range(hardware.taps))
            status = Status(rng.getrandbits(32), rng.getrandbits(16), rng.getrandbits(16), rng.randrange(7), dropped)
            sent.append((writer.status(status), status))
            continue
        tap = rng.randrange(hardware.taps)
        numbers[tap] += rng.randrange(1, 4)
        size = rng.choice([0, 1, hardware.lanes, 2 * hardware.lanes + 1])
        words = [random_word(rng, hardware) for _ in range(size)]
        if rng.random() < 0.3:  # what looks like the beginning of a packet, inside of one
            bytes_of_word = len(pack_words([0], hardware))
            words = unpack_words((b"\xd1\x5c\x01\x00" * 8)[: hardware.lanes] * bytes_of_word, hardware)
            words = unpack_words(pack_words(words, hardware), hardware)
        blocks = [tuple(words[at : at + hardware.lanes]) for at in range(0, len(words), hardware.lanes)] or [()]
        sent.append((writer.frame(tap, numbers[tap], blocks), Frame(tap, numbers[tap], tuple(blocks))))
    return sent


def decode(decoder: Decoder, data: bytes, rng: random.Random) -> list[Frame | Status]:
    """Everything, in pieces of random sizes."""
    found: list[Frame | Status] = []
    place = 0
    while place < len(data):
        size = rng.choice([1, 2, 7, 64, 1000])
        found += decoder.feed(data[place : place + size])
        place += size
    return found + decoder.finish()


@pytest.mark.parametrize("hardware", HARDWARES, ids=lambda hardware: str(hardware.element))
def test_a_clean_stream_arrives_whole(hardware: Hardware) -> None:
    rng = random.Random(1)
    sent = stream(rng, hardware, 600)
    decoder = Decoder(hardware)
    data = b"".join(part for part, _ in sent)
    assert decode(decoder, data, rng) == [what for _, what in sent]
    losses = decoder.losses
    assert (losses.bad_packets, losses.skipped_bytes, losses.lost_packets) == (0, 0, 0)
    assert losses.bytes == len(data)
    assert [tap.torn for tap in losses.taps] == [0] * hardware.taps
    last = [max(what.number for _, what in sent if isinstance(what, Frame) and what.tap == tap) for tap in range(2)]
    assert [tap.delivered + tap.missing for tap in losses.taps[:2]] == [number + 1 for number in last]


def damage(rng: random.Random, data: bytearray) -> tuple[int, int]:
    """One accident; the first and the last place that it may have touched, in the bytes before it."""
    place = rng.randrange(len(data))
    size = rng.randrange(1, 60)
    match rng.randrange(4):
        case 0:
            data[place] ^= 1 << rng.randrange(8)
            return place, place + 1
        case 1:
            del data[place : place + size]
            return place, place + size
        case 2:
            data[place:place] = rng.randbytes(size)
            return place, place + 1
        case _:
            size = min(size, len(data) - place)
            data[place : place + size] = rng.randbytes(size)
            return place, place + size


@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), which=st.integers(0, len(HARDWARES) - 1))
def test_what_is_delivered_was_sent_and_what_was_left_alone_is_delivered(seed: int, which: int) -> None:
    rng = random.Random(seed)
    hardware = HARDWARES[which]
    sent = stream(rng, hardware, 60)
    data = bytearray(b"".join(part for part, _ in sent))
    first, last = damage(rng, data)
    decoder = Decoder(hardware)
    found = decode(decoder, bytes(data), rng)
    remaining = iter([what for _, what in sent])
    assert all(any(what == each for each in remaining) for what in found), "delivered in order, and nothing unsent"
    place, untouched, recovering = 0, [], False
    for part, what in sent:
        hit = (place < last and first < place + len(part)) or place == first
        place += len(part)
        if hit:
            recovering = True
        elif isinstance(what, Status) or not (recovering and place > first):
            untouched.append(what)
        else:
            recovering = False  # the first whole frame behind a gap cannot be told from a torn one
    delivered = iter(found)
    assert all(any(what == each for each in delivered) for what in untouched)
    losses = decoder.losses
    good = sum(len(part) for part, _ in sent)
    assert losses.bytes == len(data)
    assert losses.packets - losses.statuses >= sum(tap.delivered for tap in losses.taps)
    assert losses.skipped_bytes <= len(data)
    if bytes(data) != b"".join(part for part, _ in sent):
        noticed = losses.bad_packets or losses.skipped_bytes or losses.lost_packets
        assert noticed or last >= good, "damage does not go unseen"


@pytest.mark.parametrize("seed", range(40))
def test_counts_add_up_after_many_accidents(seed: int) -> None:
    rng = random.Random(seed)
    hardware = HARDWARES[seed % len(HARDWARES)]
    sent = stream(rng, hardware, 200)
    data = bytearray(b"".join(part for part, _ in sent))
    for _ in range(rng.randrange(1, 12)):
        damage(rng, data)
    decoder = Decoder(hardware)
    found = decode(decoder, bytes(data), rng)
    frames = [what for what in found if isinstance(what, Frame)]
    wanted = [what for _, what in sent if isinstance(what, Frame)]
    assert all(frame in wanted for frame in frames), "never a torn frame"
    losses = decoder.losses
    assert losses.bytes == len(data)
    for tap, account in enumerate(losses.taps):
        mine = [frame.number for frame in frames if frame.tap == tap]
        assert account.delivered == len(mine)
        assert mine == sorted(set(mine))
        assert account.missing == (mine[-1] + 1 - len(mine) if mine else 0)
        offered = sum(frame.tap == tap for frame in wanted)
        assert account.delivered + account.torn <= offered


def test_a_packet_that_is_cut_off_hides_none_behind_it() -> None:
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    whole = [writer.frame(0, number, [[number] * 8]) for number in range(4)]
    decoder = Decoder(hardware)
    # The second loses its end: its length reaches into the third.
    found = decoder.feed(whole[0] + whole[1][:20] + whole[2] + whole[3]) + decoder.finish()
    assert [frame.number for frame in found if isinstance(frame, Frame)] == [0, 3]
    assert decoder.losses.lost_packets == 1
    assert decoder.losses.bad_packets == 1
    assert decoder.losses.skipped_bytes == 20
    assert decoder.losses.taps[0].torn == 1


def test_a_frame_without_its_first_packet_is_not_delivered() -> None:
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    head = writer.frame(0, 0, [[1] * 8])
    long = writer.frame(1, 0, [[2] * 8, [3] * 8, [4]])
    tail = writer.frame(0, 1, [[5]])
    length = len(head)
    for cut in (slice(0, length), slice(length, 2 * length)):
        decoder = Decoder(hardware)
        missing = long[: cut.start] + long[cut.stop :]
        found = decoder.feed(head + missing + tail)
        assert [(frame.tap, frame.number) for frame in found if isinstance(frame, Frame)] == [(0, 0), (0, 1)]
        assert decoder.losses.lost_packets == 1
        assert decoder.losses.taps[1].torn == 1


@pytest.mark.parametrize(
    ("lost", "delivered"),
    [
        ([2], [0, 2, 3]),  # the end of frame 1: what follows it is whole
        ([1], [0, 2, 3]),  # its begin
        ([2, 3], [0, 3]),  # its end, and the begin of frame 2
        ([0], [2, 3]),  # a frame of one packet: nothing says that it was not the begin of the next
    ],
)
def test_what_one_lost_packet_costs(lost: list[int], delivered: list[int]) -> None:
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    sizes = [1, 2, 2, 1]
    packets = []
    for number, size in enumerate(sizes):
        blocks = [[number] * 8] * size
        whole = writer.frame(0, number, blocks)
        packets += [whole[at : at + len(whole) // size] for at in range(0, len(whole), len(whole) // size)]
    decoder = Decoder(hardware)
    found = decoder.feed(b"".join(packet for place, packet in enumerate(packets) if place not in lost))
    assert [frame.number for frame in found if isinstance(frame, Frame)] == delivered
    assert [len(frame.blocks) for frame in found if isinstance(frame, Frame)] == [sizes[each] for each in delivered]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_frame_whose_words_are_all_there_is_whole(lost: int) -> None:
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    data = [writer.status(Status(7, 1, 0, 0, (0, 0, 0)))]
    data += [writer.frame(0, number, [[number] * 5]) for number in range(6)]
    for words, delivered in ((5, list(range(lost, 6))), (6, list(range(lost + 1, 6))), (None, [*range(lost + 1, 6)])):
        decoder = Decoder(hardware, frame_words=lambda tap, program, words=words: words if program == 7 else None)
        found = decoder.feed(data[0] + b"".join(data[1 + lost :]))
        assert [frame.number for frame in found if isinstance(frame, Frame)] == delivered
        assert decoder.losses.lost_packets == lost


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_frames_of_known_size_are_whole_or_not_delivered(seed: int) -> None:
    rng = random.Random(seed)
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    sizes = {0: 5, 1: 19, 2: 8}
    packets, sent, numbers = [writer.status(Status(7, 1, 0, 0, (0, 0, 0)))], {}, [0, 0, 0]
    for _ in range(60):
        tap = rng.randrange(3)
        words = [random_word(rng, hardware) for _ in range(sizes[tap])]
        blocks = [tuple(words[at : at + 8]) for at in range(0, len(words), 8)]
        data = writer.frame(tap, numbers[tap], blocks)
        places = range(len(packets), len(packets) + len(blocks))
        sent[tap, numbers[tap]] = places, tuple(blocks)
        for block in blocks:
            length = PACKET_OVERHEAD + 4 * len(block)
            packets.append(data[:length])
            data = data[length:]
        numbers[tap] += 1
    lost = {place for place in range(1, len(packets)) if rng.random() < 0.2}
    decoder = Decoder(hardware, frame_words=lambda tap, program: sizes[tap])
    found = decoder.feed(b"".join(packet for place, packet in enumerate(packets) if place not in lost))
    frames = {(frame.tap, frame.number): frame.blocks for frame in found if isinstance(frame, Frame)}
    assert frames == {name: blocks for name, (places, blocks) in sent.items() if not lost & set(places)}


def test_joining_late_and_after_a_break() -> None:
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    frames = [writer.frame(0, number, [[number] * 8, [number]]) for number in range(300)]
    decoder = Decoder(hardware, from_start=False)
    found = decoder.feed(frames[100][20:] + frames[101] + frames[102])
    assert [frame.number for frame in found if isinstance(frame, Frame)] == [101, 102]
    assert decoder.losses.lost_packets == 0
    assert decoder.losses.taps[0].missing == 0
    decoder.feed(frames[103][:30])
    decoder.disconnected()
    # 256 packets later the packet numbers look as if nothing had happened.
    found = decoder.feed(frames[231][20:] + frames[232])
    assert [frame.number for frame in found if isinstance(frame, Frame)] == [232]
    assert decoder.losses.taps[0].missing == 129


def test_frame_numbers_stay_right_however_many_frames_are_not_delivered() -> None:
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    numbers = [0, 40000, 120000, 190003, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 33) - 2]
    decoder = Decoder(hardware)
    found = decoder.feed(b"".join(writer.frame(1, number, [[7]]) for number in numbers))
    assert [frame.number for frame in found if isinstance(frame, Frame)] == numbers


def test_the_chips_own_count_of_dropped_frames() -> None:
    hardware = HARDWARES[0]
    writer = StreamWriter(hardware)
    decoder = Decoder(hardware)
    status = Status(0xDEADBEEF, 3, 1, 5, (0, 17, 4))
    assert decoder.feed(writer.status(status)) == [status]
    assert [tap.dropped for tap in decoder.losses.taps] == [0, 17, 4]
    assert decoder.status == status


def test_noise_is_no_frame() -> None:
    decoder = Decoder(HARDWARES[0])
    noise = random.Random(4).randbytes(200_000)
    assert decoder.feed(noise) + decoder.finish() == []
    assert decoder.losses.skipped_bytes == len(noise)
