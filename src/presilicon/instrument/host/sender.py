"""Sender of images to the chip, one at a time: the next is sent when the chip has answered the one before.

A cable loses and flips bytes. An image that the chip does not answer in time is sent again, behind as many zero bytes
as the longest image has: a chip that still waits for the end of a broken image finds it in them, refuses it, and looks
for the next. The counts in the status and the CRC of the program in force tell which image was taken, and whether the
chip took one that this host did not send.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from presilicon.designs import Hardware
from presilicon.instrument.firmware.image import HEADER, longest_payload
from presilicon.instrument.host.stream import REFUSALS, Status

RESEND_S = 2.0
"""Seconds without an answer until an image is sent again; doubled each time."""
MAX_RESEND_S = 64.0
GARBLED = (4, 5)
"""Refusal codes that a broken link explains."""

Clock = Callable[[], float]


class SendOutcome(NamedTuple):
    """Outcome of a status for the image under way, and for images of other hosts."""

    taken: bool = False
    refusal: str | None = None
    is_garbled: bool = False
    foreign: bool = False
    """Whether the chip has taken an image that this host did not send."""


class Sender:
    """Sends images to one chip."""

    def __init__(self, hardware: Hardware, clock: Clock = time.monotonic) -> None:
        self._padding = bytes(HEADER + longest_payload(hardware) + 4)
        self._clock = clock
        self._out = bytearray()
        self._image = b""
        self._is_program = False
        self._in_force: int | None = None
        """CRC of the last program of this host that the chip took."""
        self._counts: tuple[int, int] | None = None
        """Numbers of images taken and refused, by the last status."""
        self._unanswered = 0
        """How often the image under way was sent, minus its refusals."""
        self._late = 0
        """Copies of earlier images whose answers may still come."""
        self._wait_s = RESEND_S
        self._due_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether an image is not yet answered by the chip."""
        return bool(self._image)

    @property
    def in_force(self) -> int | None:
        """CRC of the chip's program, if it is one of this host's and no other is on its way."""
        return None if self._image and self._is_program else self._in_force

    def send(self, image: bytes, *, is_program: bool) -> None:
        """Start to send an image; none may be under way."""
        assert not self._image
        self._image, self._is_program = image, is_program
        self._unanswered, self._wait_s = 1, RESEND_S
        self._due_s = self._clock() + self._wait_s
        self._out += image

    def again(self) -> None:
        """Note that the link broke: the image under way is due at once."""
        self._due_s = self._clock()

    def take(self) -> bytes:
        """The bytes to be sent now."""
        if self._image and self._clock() >= self._due_s:
            self._unanswered += 1
            self._wait_s = min(2 * self._wait_s, MAX_RESEND_S)
            self._due_s = self._clock() + self._wait_s
            self._out += self._padding + self._image
        data = bytes(self._out)
        self._out.clear()
        return data

    def take_status(self, status: Status) -> SendOutcome:
        """Take a status of the chip; returns the outcome for the image under way."""
        is_first = self._counts is None
        before = self._counts or (0, 0)
        self._counts = status.taken, status.refused
        if is_first and status.image != self._crc and (status.taken or not status.refused):
            # The chip was at work before: its counts include images of other hosts.
            return SendOutcome(foreign=bool(status.image))
        taken, refused = (status.taken - before[0]) & 0xFFFF, (status.refused - before[1]) & 0xFFFF
        if is_first:
            # It may have had the same program before: then the answer to this host's copy is still to come.
            self._late += taken > 1 or any(status.dropped)
            taken = min(taken, 1)
        outcome = SendOutcome()
        if taken and self._image and (not self._is_program or status.image == self._crc):
            if self._is_program:
                self._in_force = self._crc
            self._late += self._unanswered - 1
            self._image, taken = b"", taken - 1
            outcome = SendOutcome(taken=True)
        elif refused and self._image:
            self._unanswered -= min(refused, self._unanswered)
            if not self._unanswered:
                self._image = b""
                reason = REFUSALS.get(status.refusal, f"code {status.refusal}")
                outcome = SendOutcome(refusal=reason, is_garbled=status.refusal in GARBLED)
        elif refused:
            self._late -= min(refused, self._late)
        copies = min(taken, self._late)
        self._late -= copies
        return outcome._replace(foreign=taken > copies or status.image != (self._in_force or 0))

    @property
    def _crc(self) -> int | None:
        return int.from_bytes(self._image[-4:], "little") if self._image and self._is_program else self._in_force
