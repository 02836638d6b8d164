"""Decoder of the stream: bytes in pieces of any size in, whole frames out, and an account of losses."""

from binascii import crc_hqx
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from presilicon.designs import Hardware
from presilicon.instrument.host.stream import (
    BLOCK,
    CRC,
    CRC_START,
    HEADER,
    LAST,
    STATUS,
    SYNC,
    Packet,
    Status,
    status_bytes,
    unpack_words,
    word_bytes,
)

FrameWords = Callable[[int, int], int | None]
"""Takes a tap and the CRC of a program; returns the number of words of every frame, None if it varies or is unknown."""


class Frame(NamedTuple):
    """The complete results of one outer frame of a tap."""

    tap: int
    number: int
    """Number of outer frames that the tap offered before; it does not wrap."""
    blocks: tuple[tuple[int, ...], ...]
    """Words as they left the packer: integers for fixed point, codes for floats."""

    @property
    def words(self) -> tuple[int, ...]:
        """All words in order."""
        return tuple(word for block in self.blocks for word in block)


class FrameAccount(Struct):
    """Account of a tap's outer frames."""

    delivered: int = 0
    torn: int = 0
    """Frames of which only a part arrived; never delivered."""
    missing: int = 0
    """Frames between delivered ones that never arrived: not sampled, dropped by the chip, or lost."""
    dropped: int = 0
    """Frames that the chip dropped, by its last status."""


class Losses(Struct):
    """The account of a stream."""

    taps: list[FrameAccount]
    bytes: int = 0
    packets: int = 0
    """Packets with a right checksum."""
    statuses: int = 0
    bad_packets: int = 0
    """Beginnings of packets with a wrong header or checksum."""
    skipped_bytes: int = 0
    """Bytes outside of right packets."""
    lost_packets: int = 0
    """Lost packets by the packet numbers; a loss of 256 in a row is not seen."""


class Decoder:
    """Finds the packets of one instrument in a stream of bytes and puts outer frames together.

    Lost, added and flipped bytes cost the packets that they hit; the next whole packet is found again. A frame is
    delivered only if all its packets arrived, starting with one that is known to be its first. After a gap, that is the
    first packet behind the end of another frame, or the first packet of another frame if a single packet was lost,
    which must then have been the end of the frame before. If `frame_words` knows the number of words of a frame, a
    frame that has them all is delivered, too.
    """

    def __init__(
        self, hardware: Hardware, *, from_start: bool = True, frame_words: FrameWords = lambda tap, program: None
    ) -> None:
        self.hardware = hardware
        self.losses = Losses([FrameAccount() for _ in range(hardware.taps)])
        self.status: Status | None = None
        """The last status."""
        self._frame_words = frame_words
        self._program: int | None = None  # CRC of the program in force, as far as the stream says
        self._buffer = bytearray()
        self._word = word_bytes(hardware)
        self._longest = hardware.lanes * self._word
        self._status = status_bytes(hardware)
        self._expected: int | None = 0 if from_start else None
        self._open = from_start  # whether the packets since the last end of a frame are all here
        self._parts: list[Packet] = []
        self._torn: tuple[int, int] | None = None
        self._numbers: list[int | None] = [-1 if from_start else None] * hardware.taps

    def feed(self, piece: bytes) -> list[Frame | Status]:
        """Frames and statuses that these bytes complete, in order."""
        self.losses.bytes += len(piece)
        self._buffer += piece
        return self._scan(ended=False)

    def finish(self) -> list[Frame | Status]:
        """The last frames and statuses once no more bytes come: also packets behind one that stays incomplete."""
        items = self._scan(ended=True)
        self._tear()
        return items

    def disconnected(self) -> None:
        """Note that the link broke: the next bytes need not continue the last ones."""
        self.losses.skipped_bytes += len(self._buffer)
        self._buffer.clear()
        self._expected = self._program = None
        self._tear()

    def _scan(self, *, ended: bool) -> list[Frame | Status]:
        items: list[Frame | Status] = []
        buffer, losses = self._buffer, self.losses
        view = bytes(buffer)
        position, end = 0, len(view)
        while True:
            start = view.find(SYNC, position)
            if start < 0:
                # The last byte may be the first half of a packet's beginning.
                keep = 0 if ended or not view.endswith(SYNC[:1], position) else 1
                losses.skipped_bytes += end - keep - position
                position = end - keep
                break
            losses.skipped_bytes += start - position
            position = start
            if end - start < HEADER.size:
                if not ended:
                    break
                position = self._reject(start)
                continue
            _, kind, tap, number, frame, length = HEADER.unpack_from(view, start)
            if not self._is_plausible(kind & ~LAST, tap, length):
                position = self._reject(start)
                continue
            after = start + HEADER.size + length
            if after + CRC.size > end:
                if not ended:
                    break
                position = self._reject(start)
                continue
            if crc_hqx(view[start + 2 : after], CRC_START) != CRC.unpack_from(view, after)[0]:
                position = self._reject(start)
                continue
            payload = view[start + HEADER.size : after]
            self._take(Packet(kind & ~LAST, tap, number, frame, payload, bool(kind & LAST)), items)
            position = after + CRC.size
        del buffer[:position]
        return items

    def _is_plausible(self, kind: int, tap: int, length: int) -> bool:
        if kind == BLOCK:
            return tap < self.hardware.taps and length <= self._longest and length % self._word == 0
        return kind == STATUS and length == self._status

    def _reject(self, start: int) -> int:
        """Count a bad packet; returns where to search on: behind its sync bytes, as the next may begin inside it."""
        self.losses.bad_packets += 1
        self.losses.skipped_bytes += len(SYNC)
        return start + len(SYNC)

    def _take(self, packet: Packet, items: list[Frame | Status]) -> None:
        losses = self.losses
        losses.packets += 1
        if self._expected is None:
            self._tear()
        elif packet.number != self._expected:
            lost = (packet.number - self._expected) & 0xFF
            losses.lost_packets += lost
            is_other = packet.kind == BLOCK and self._starts_another_frame(packet)
            self._tear()
            self._open = lost == 1 and is_other
        self._expected = (packet.number + 1) & 0xFF
        if packet.kind == STATUS:
            losses.statuses += 1
            self.status = Status.from_bytes(packet.payload)
            self._program = self.status.image
            for tap, dropped in zip(losses.taps, self.status.dropped, strict=True):
                tap.dropped = dropped
            items.append(self.status)
            return
        if self._starts_another_frame(packet):
            self._tear()
        self._parts.append(packet)
        if not packet.last:
            return
        if self._open or self._has_all_words():
            items.append(self._deliver())
        else:
            self._count_torn(packet)
        self._parts.clear()
        self._open = True

    def _starts_another_frame(self, packet: Packet) -> bool:
        """Whether a packet belongs to another frame than the one under way."""
        return bool(self._parts) and (packet.tap, packet.frame) != (self._parts[0].tap, self._parts[0].frame)

    def _has_all_words(self) -> bool:
        """Whether the frame that has just ended has as many words as the tap's program commits."""
        if self._program is None:
            return False
        words = sum(len(part.payload) for part in self._parts) // self._word
        return words == self._frame_words(self._parts[0].tap, self._program)

    def _deliver(self) -> Frame:
        first = self._parts[0]
        previous = self._numbers[first.tap]
        number = first.frame if previous is None else previous + 1 + ((first.frame - previous - 1) & 0xFFFFFFFF)
        account = self.losses.taps[first.tap]
        account.delivered += 1
        account.missing += 0 if previous is None else number - previous - 1
        self._numbers[first.tap] = number
        blocks = tuple(tuple(unpack_words(part.payload, self.hardware)) for part in self._parts)
        return Frame(first.tap, number, blocks)

    def _tear(self) -> None:
        """Give up the frame under way: a packet is missing here, perhaps the first of the next frame."""
        if self._parts:
            self._count_torn(self._parts[0])
            self._parts.clear()
        self._open = False

    def _count_torn(self, packet: Packet) -> None:
        """Count a torn frame, once however many pieces arrived."""
        frame = (packet.tap, packet.frame)
        if frame != self._torn:
            self.losses.taps[packet.tap].torn += 1
        self._torn = frame
