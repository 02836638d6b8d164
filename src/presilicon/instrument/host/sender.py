"""Images to the chip, one at a time: the next goes out when the chip has said what became of the one before.

A cable loses and flips bytes. An image that the chip says nothing about within a time is sent again, behind as many
zero bytes as the longest image has: a chip that still waits for the end of a broken one finds it in them, refuses it,
and looks for the next. The statuses' counts and the CRC of the program in force tell which image was taken, and
whether one was that nobody here has sent.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from presilicon.designs import Hardware
from presilicon.instrument.firmware.image import HEADER, longest_payload
from presilicon.instrument.host.stream import REFUSALS, Status

RESEND_S = 2.0
"""Seconds without a word from the chip until an image is sent again; twice as long each time after."""
PATIENCE_S = 64.0
GARBLED = (4, 5)
"""Refusals that a broken link explains."""

Clock = Callable[[], float]


class Outcome(NamedTuple):
    """What a status says of the image under way, and of images from elsewhere."""

    taken: bool = False
    refusal: str | None = None
    is_garbled: bool = False
    foreign: bool = False
    """The chip has taken an image that was not sent here."""


class Sender:
    """The host's end of the way to the chip."""

    def __init__(self, hardware: Hardware, clock: Clock = time.monotonic) -> None:
        self._padding = bytes(HEADER + longest_payload(hardware) + 4)
        self._clock = clock
        self._out = bytearray()
        self._image = b""
        self._is_program = False
        self._in_force: int | None = None
        """CRC of the program that was last taken from here."""
        self._counts: tuple[int, int] | None = None
        """Images that the chip had taken and refused at its last status."""
        self._unanswered = 0
        """How often the image under way was sent, less its refusals."""
        self._late = 0
        """Copies of earlier images whose statuses may still come."""
        self._wait_s = RESEND_S
        self._due_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the chip has not yet said what became of an image."""
        return bool(self._image)

    @property
    def in_force(self) -> int | None:
        """The CRC of the program that the chip has, where it is one of ours and no other is on its way."""
        return None if self._image and self._is_program else self._in_force

    def send(self, image: bytes, *, is_program: bool) -> None:
        """Begin with an image; none may be under way."""
        assert not self._image
        self._image, self._is_program = image, is_program
        self._unanswered, self._wait_s = 1, RESEND_S
        self._due_s = self._clock() + self._wait_s
        self._out += image

    def again(self) -> None:
        """The link broke: whatever is under way is due at once."""
        self._due_s = self._clock()

    def take(self) -> bytes:
        """The bytes to be sent now."""
        if self._image and self._clock() >= self._due_s:
            self._unanswered += 1
            self._wait_s = min(2 * self._wait_s, PATIENCE_S)
            self._due_s = self._clock() + self._wait_s
            self._out += self._padding + self._image
        data = bytes(self._out)
        self._out.clear()
        return data

    def take_status(self, status: Status) -> Outcome:
        """What a status says about the image under way."""
        is_first = self._counts is None
        before = self._counts or (0, 0)
        self._counts = status.taken, status.refused
        if is_first and status.image != self._crc and (status.taken or not status.refused):
            # A chip that was at work before: what it counted then is none of ours.
            return Outcome(foreign=bool(status.image))
        taken, refused = (status.taken - before[0]) & 0xFFFF, (status.refused - before[1]) & 0xFFFF
        if is_first:
            # It may have had the same program before: then the one sent here is still to come.
            self._late += taken > 1 or any(status.dropped)
            taken = min(taken, 1)
        found = Outcome()
        if taken and self._image and (not self._is_program or status.image == self._crc):
            if self._is_program:
                self._in_force = self._crc
            self._late += self._unanswered - 1
            self._image, taken = b"", taken - 1
            found = Outcome(taken=True)
        elif refused and self._image:
            self._unanswered -= min(refused, self._unanswered)
            if not self._unanswered:
                self._image = b""
                reason = REFUSALS.get(status.refusal, f"code {status.refusal}")
                found = Outcome(refusal=reason, is_garbled=status.refusal in GARBLED)
        elif refused:
            self._late -= min(refused, self._late)
        copies = min(taken, self._late)
        self._late -= copies
        return found._replace(foreign=taken > copies or status.image != (self._in_force or 0))

    @property
    def _crc(self) -> int | None:
        return int.from_bytes(self._image[-4:], "little") if self._image and self._is_program else self._in_force
