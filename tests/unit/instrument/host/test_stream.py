"""Packets, byte by byte, against docs/firmware.md."""

import zlib

import pytest

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument.host.stream import BLOCK, Packet, Status, StreamWriter, pack_words, unpack_words


def plain_crc16(data: bytes) -> int:
    """Polynomial 0x1021, from 0xFFFF, bit by bit."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def test_a_block_packet_on_the_wire() -> None:
    found = Packet(BLOCK, 3, 200, 0x1234, b"\x01\x02\x03", True).to_bytes()
    assert found[:11] == bytes([0xD1, 0x5C, 0x81, 3, 200, 0x34, 0x12, 0, 0, 3, 0])
    assert found[11:14] == b"\x01\x02\x03"
    assert int.from_bytes(found[14:], "little") == plain_crc16(found[2:14])


def test_a_status_on_the_wire() -> None:
    image = zlib.crc32(b"image")
    payload = Status(image, 2, 1, 5, (9, 0x10000)).to_bytes()
    assert payload == image.to_bytes(4, "little") + bytes([2, 0, 1, 0, 5, 2, 9, 0, 0, 0, 0, 0, 1, 0])


def test_packets_are_numbered_over_all_kinds() -> None:
    writer = StreamWriter(Hardware(taps=2))
    for number in range(300):
        part = writer.status(Status(0, 0, 0, 0, (0, 0))) if number % 3 else writer.frame(1, number, [[1]])
        assert part[4] == number % 256


def test_an_outer_frame_that_commits_nothing_sends_a_block_without_words() -> None:
    part = StreamWriter(Hardware(taps=2)).frame(1, 5, [])
    assert part[:11] == bytes([0xD1, 0x5C, 0x81, 1, 0, 5, 0, 0, 0, 0, 0])
    assert len(part) == 13


@pytest.mark.parametrize(
    ("element", "width", "words", "payload"),
    [
        ("fixed(16, 16)", None, [-1, 1], "ff ff ff ff 01 00 00 00"),
        ("fixed(4, 3)", None, [-64, 63], "c0 3f"),
        ("fixed(8, 8)", 20, [-(1 << 19), 5], "00 00 f8 05 00 00"),
        ("bfloat16", None, [0xBF80], "80 bf"),
        ("bfloat16", 20, [0xBF800], "00 f8 fb"),
        ("fixed(16, 16)", 48, [-2], "fe ff ff ff ff ff"),
    ],
)
def test_words_are_sign_extended_to_whole_bytes(
    element: str, width: int | None, words: list[int], payload: str
) -> None:
    hardware = Hardware(element=parse(element), accumulator_bits=width)
    assert pack_words(words, hardware).hex(" ") == payload
    assert unpack_words(bytes.fromhex(payload), hardware) == words
