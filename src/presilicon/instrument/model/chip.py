"""A chip with the instrument, as the host sees it: images in, packets out, whole frames dropped if it cannot keep up.

Inside is the fast model, or any other engine. Time is modelled, not simulated cycle by cycle: vectors of a frame come
at an even rate, each keeps the instrument busy for its program's initiation interval, and the link empties the output
buffer at its own rate. Frames are dropped by the rules of docs/firmware.md.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from presilicon.base import np
from presilicon.designs import Hardware, Instrument
from presilicon.instrument.firmware.image import HEADER, MAGIC, Image, ImageRefusedError, longest_payload, read_image
from presilicon.instrument.host.stream import PACKET_OVERHEAD, Status, StreamWriter
from presilicon.instrument.model.engine import InstrumentEngine, PackedBlock

Vectors = tuple["np.typing.NDArray[np.int64]", "np.typing.NDArray[np.bool_]"]
"""Words [V, N] and the ends of frames [V, 2]; the last vector ends the outer frame."""


class ImageReader:
    """Splits bytes from the host into images as the circuit does; `read_image` finds those that are damaged.

    An image with an impossible length is cut behind its header.
    """

    def __init__(self, hardware: Hardware) -> None:
        self._buffer = bytearray()
        self._longest = longest_payload(hardware)

    def feed(self, data: bytes) -> list[bytes]:
        """Images that these bytes complete, not yet checked."""
        self._buffer += data
        images: list[bytes] = []
        while True:
            start = self._buffer.find(MAGIC)
            if start < 0:
                del self._buffer[: -len(MAGIC) + 1]
                return images
            del self._buffer[:start]
            if len(self._buffer) < HEADER:
                return images
            payload = int.from_bytes(self._buffer[HEADER - 4 : HEADER], "little")
            length = HEADER if payload > self._longest else HEADER + payload + 4
            if len(self._buffer) < length:
                return images
            images.append(bytes(self._buffer[:length]))
            del self._buffer[:length]


class _OutputBuffer(NamedTuple):
    """Fill level of the output buffer at a time."""

    at_s: float
    level: float


class Chip:
    """One instrument of a design.

    Call `offer` for every outer frame of every tap in the order of time, `receive` with bytes from the host, and `take`
    for the bytes to the host.
    """

    def __init__(self, instrument: Instrument, engine: InstrumentEngine | None = None) -> None:
        if engine is None:
            from presilicon.instrument.model.fast import FastModel

            engine = FastModel(instrument.built)
        self.hardware = instrument.built
        self.engine = engine
        self.controls = [0] * self.hardware.controls
        """Values of the control registers."""
        self.written: set[int] = set()
        """Control registers that the host has written since this set was cleared."""
        self.dropped = [0] * self.hardware.taps
        self.reasons: list[dict[str, int]] = [{} for _ in range(self.hardware.taps)]
        """Dropped frames by reason: `busy` with another frame, `input` buffer full, `output` buffer full, `size` above
        the output buffer's. A model knows the reasons; a real chip only counts.
        """
        self._instrument = instrument
        self._writer = StreamWriter(self.hardware)
        self._images = ImageReader(self.hardware)
        self._out = bytearray()
        self._intervals = [0] * self.hardware.taps
        self._crc = 0
        self._taken = self._refused = self._refusal = 0
        self._sampling = [1] * self.hardware.taps
        self._turns: dict[int, int] = {}
        """First frame at which each tap is due."""
        self._reported = tuple(self.dropped)
        self._offering_until = 0.0
        self._busy_until = 0.0
        self._service_s = 1.0
        self._output = _OutputBuffer(0.0, 0.0)

    def receive(self, data: bytes) -> None:
        """Take bytes from the host. Whole images take effect at once: no frame is under way between two offers."""
        for image in self._images.feed(data):
            try:
                read = read_image(image, self.hardware)
                self.engine.load(image)
            except ImageRefusedError as error:
                self._refused += 1
                self._refusal = error.code
            else:
                self._taken += 1
                self._apply(read, int.from_bytes(image[-4:], "little"))
            self._status()

    def _apply(self, image: Image, crc: int) -> None:
        if image.chains is not None:
            self._crc = crc
            self._intervals = [image.initiation_interval(tap) for tap in range(self.hardware.taps)]
        if image.sampling is not None:
            self._sampling = list(image.sampling)
            self._turns.clear()
        for register, value in image.controls:
            self.controls[register] = value
            self.written.add(register)

    def is_due(self, tap: int, frame: int) -> bool:
        """Whether a tap has a program and sampling looks at this outer frame; a turn lasts until it is used."""
        return self._sampling[tap] > 0 and frame >= self._turns.get(tap, 0) and self.interval(tap) > 0

    def use_turn(self, tap: int, frame: int) -> None:
        """Note that a frame was accepted, or that its turn passes: the tap is due again after its sampling."""
        self._turns[tap] = frame + self._sampling[tap]

    def state(self) -> dict[str, Any]:
        """State for a checkpoint: turns, times and the output buffer."""
        times = (self._offering_until, self._busy_until, self._service_s)
        return {"turns": dict(self._turns), "times": times, "sent": tuple(self._output)}

    def restore(self, state: Mapping[str, Any], frames: int) -> None:
        """Continue from another chip's state, whose taps had offered so many frames; frames count from 0 again."""
        self._turns = {tap: turn - frames for tap, turn in state["turns"].items()}
        self._offering_until, self._busy_until, self._service_s = state["times"]
        self._output = _OutputBuffer(*state["sent"])

    def interval(self, tap: int) -> int:
        """The initiation interval of a tap's program; 0 for a tap that is not watched."""
        return self._intervals[tap]

    def offer(self, tap: int, frame: int, at_s: float, make: Callable[[], Vectors]) -> bool:
        """Offer an outer frame of a tap that begins at a time; returns whether it was looked at and sent.

        `frame` is the number of frames that the tap offered before. `make` returns the vectors; it is called only if
        the frame is accepted.
        """
        if not self.is_due(tap, frame):
            return False
        waiting = max(0.0, self._busy_until - at_s) / self._service_s
        if at_s < self._offering_until or 2 * waiting > self.hardware.buffer:
            return self._drop(tap, "busy")
        self.use_turn(tap, frame)
        words, last = make()
        count = len(words)
        self._service_s = self.interval(tap) / (self._instrument.clock_mhz * 1e6)
        rate = self._instrument.vectors_per_s
        spacing_s = self._service_s if rate is None else 1 / rate
        self._offering_until = at_s + count * spacing_s
        taken = min(count, self._room(waiting, spacing_s))
        self._busy_until = max(self._busy_until, at_s) + taken * self._service_s
        if taken < count:
            self.engine.feed(words[:taken], last[:taken], tap)
            self.engine.break_off()
            return self._drop(tap, "input")
        return self._send(tap, frame, list(self.engine.feed(words, last, tap)))

    def _room(self, waiting: float, spacing_s: float) -> int:
        """Number of vectors that come before the input buffer is full."""
        grows = 1 - spacing_s / self._service_s
        return 1 << 62 if grows <= 0 else max(1, int((self.hardware.buffer - waiting) / grows))

    def _send(self, tap: int, frame: int, blocks: list[PackedBlock]) -> bool:
        """Put a frame into the output buffer, which holds its packets back until its end."""
        self._drain()
        size = sum(PACKET_OVERHEAD + len(block.words) * ((self.hardware.word_bits + 7) // 8) for block in blocks)
        if self._output.level + size > self._instrument.output_bytes:
            return self._drop(tap, "size" if size > self._instrument.output_bytes else "output")
        if self._reported != tuple(self.dropped):
            self._status()
        self._put(self._writer.frame(tap, frame, [block.words.tolist() for block in blocks]))
        return True

    def _drop(self, tap: int, reason: str) -> bool:
        self.dropped[tap] += 1
        self.reasons[tap][reason] = self.reasons[tap].get(reason, 0) + 1
        return False

    def _drain(self) -> None:
        elapsed = max(0.0, self._busy_until - self._output.at_s)
        level = max(0.0, self._output.level - elapsed * self._instrument.link_bytes_per_s)
        self._output = _OutputBuffer(max(self._busy_until, self._output.at_s), level)

    def _put(self, data: bytes) -> None:
        self._output = self._output._replace(level=self._output.level + len(data))
        self._out += data

    def _status(self) -> None:
        self._reported = tuple(self.dropped)
        self._put(
            self._writer.status(
                Status(self._crc, self._taken & 0xFFFF, self._refused & 0xFFFF, self._refusal, self._reported)
            )
        )

    def finish(self) -> None:
        """Send a last status if frames were dropped since the one before."""
        if self._reported != tuple(self.dropped):
            self._status()

    def take(self) -> bytes:
        """Bytes that the chip has sent since the last call."""
        data = bytes(self._out)
        self._out.clear()
        return data


def whole(words: Any) -> Vectors:
    """Vectors [V, N] as one frame of both levels."""
    last = np.zeros((len(words), 2), np.bool_)
    last[-1:] = True
    return words, last
