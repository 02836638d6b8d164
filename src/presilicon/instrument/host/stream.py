"""Packets from the instrument to the host, as a chip sends them. docs/firmware.md, "The stream", defines them."""

import struct
from binascii import crc_hqx
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from presilicon.designs import Hardware

SYNC = b"\xd1\x5c"
BLOCK, STATUS, LAST = 1, 2, 0x80
HEADER = struct.Struct("<2sBBBIH")
CRC = struct.Struct("<H")
CRC_START = 0xFFFF
PACKET_OVERHEAD = HEADER.size + CRC.size
"""Bytes of a packet beside its payload."""
_LETTERS = {1: "b", 2: "h", 4: "i"}
_STATUS = struct.Struct("<IHHBB")

REFUSALS = {
    2: "another version of the image format",
    3: "an image for another instrument",
    4: "a wrong length",
    5: "a wrong checksum",
    6: "something that points outside of the instrument",
}
"""Meaning of the refusal codes."""


class Packet(NamedTuple):
    """One packet whose checksum is right."""

    kind: int
    tap: int
    number: int
    """Number of the packet modulo 256, over all taps."""
    frame: int
    """Number of the tap's outer frame modulo 2^32."""
    payload: bytes
    last: bool
    """Whether it is the last of its outer frame."""

    def to_bytes(self) -> bytes:
        """The packet on the wire.

        >>> Packet(BLOCK, 0, 7, 3, b"\\x01\\x00", True).to_bytes().hex(" ")
        'd1 5c 81 00 07 03 00 00 00 02 00 01 00 6b 22'
        """
        kind = self.kind | (LAST if self.last else 0)
        head = HEADER.pack(SYNC, kind, self.tap, self.number, self.frame, len(self.payload))
        body = head[2:] + self.payload
        return SYNC + body + CRC.pack(crc_hqx(body, CRC_START))


class Status(NamedTuple):
    """Status of the instrument, as it reports it."""

    image: int
    """CRC-32 of the image whose program is in force; 0 before the first image."""
    taken: int
    """Images taken, modulo 65536."""
    refused: int
    """Images refused, modulo 65536."""
    refusal: int
    """Code of the last refusal: see `REFUSALS`; 0 if there was none."""
    dropped: tuple[int, ...]
    """Dropped outer frames of each tap."""

    def to_bytes(self) -> bytes:
        """The payload of a status packet."""
        head = _STATUS.pack(self.image, self.taken, self.refused, self.refusal, len(self.dropped))
        return head + struct.pack(f"<{len(self.dropped)}I", *self.dropped)

    @staticmethod
    def from_bytes(payload: bytes) -> "Status":
        """The status in a payload of the right length.

        >>> status = Status(0xCAFE, 2, 1, 5, (0, 3))
        >>> Status.from_bytes(status.to_bytes()) == status
        True
        """
        image, taken, refused, refusal, taps = _STATUS.unpack_from(payload)
        return Status(image, taken, refused, refusal, struct.unpack_from(f"<{taps}I", payload, _STATUS.size))


def word_bytes(hardware: Hardware) -> int:
    """Bytes of a word in a block's payload."""
    return (hardware.word_bits + 7) // 8


def status_bytes(hardware: Hardware) -> int:
    """Bytes of a status packet's payload."""
    return _STATUS.size + 4 * hardware.taps


def pack_words(words: Iterable[int], hardware: Hardware) -> bytes:
    """Words as a block's payload: little endian, sign-extended to whole bytes.

    A float's code may have its sign bit as the highest bit or be a negative number: the bytes are the same.
    """
    size, sign = word_bytes(hardware), 1 << (hardware.word_bits - 1)
    mask, whole = (sign << 1) - 1, (1 << 8 * size) - 1
    return b"".join(((((int(word) & mask) ^ sign) - sign) & whole).to_bytes(size, "little") for word in words)


def unpack_words(payload: bytes, hardware: Hardware) -> list[int]:
    """The words of a block's payload: signed integers for fixed point, codes from 0 for floats."""
    size = word_bytes(hardware)
    mask = (1 << hardware.word_bits) - 1
    words: Sequence[int]
    if size in _LETTERS:
        words = struct.unpack(f"<{len(payload) // size}{_LETTERS[size]}", payload)
    else:
        starts = range(0, len(payload), size)
        words = [int.from_bytes(payload[start : start + size], "little", signed=True) for start in starts]
    return [word & mask for word in words] if hardware.is_float else list(words)


class StreamWriter:
    """Numbers and encodes packets as the chip does."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.number = 0

    def packet(self, kind: int, payload: bytes, *, tap: int = 0, frame: int = 0, last: bool = False) -> bytes:
        """The next packet."""
        packet = Packet(kind, tap, self.number, frame & 0xFFFFFFFF, payload, last)
        self.number = (self.number + 1) & 0xFF
        return packet.to_bytes()

    def frame(self, tap: int, frame: int, blocks: Sequence[Iterable[int]]) -> bytes:
        """An outer frame's packets; a single one without words if there are no blocks."""
        payloads = [pack_words(words, self.hardware) for words in blocks] or [b""]
        return b"".join(
            self.packet(BLOCK, payload, tap=tap, frame=frame, last=index == len(payloads) - 1)
            for index, payload in enumerate(payloads)
        )

    def status(self, status: Status) -> bytes:
        """A status packet."""
        return self.packet(STATUS, status.to_bytes())
