"""The whole instrument in Verilator: taps that never wait, images while data flows, the stream of packets.

`simulate` records the circuit's decisions (which vectors it accepted, where it broke a frame off, when it sent its
status); `predict` replays these decisions on a model and returns the bytes that must have been sent.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from presilicon.base import RunFailedError
from presilicon.designs import Hardware
from presilicon.instrument import InstrumentEngine, PackedBlock, Status, StreamWriter
from presilicon.rtl.sources import instrument_parameters, modules_in
from presilicon.rtl.verilator import build

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CIRCUIT = Path(str(find_spec("presilicon.rtl").origin)).parent
SOURCES, _SIMULATION = _CIRCUIT / "sv", _CIRCUIT / "sim"
VECTOR, BREAK, EXCHANGE, TOO_LATE, STATUS, BLOCK, REPORT = range(7)


class TapStream(NamedTuple):
    """Vectors of a tap, cycle by cycle."""

    words: "NDArray[np.int64]"
    """Vectors [V, N] of words."""
    last: "NDArray[np.bool_]"
    """Ends of frames, [V, 2]."""
    pauses: "NDArray[np.int32]"
    """Cycles of the tap's clock without a vector before each."""


class Event(NamedTuple):
    """A decision of the circuit."""

    kind: int
    tap: int
    last: int
    number: int
    cycle: int
    vector: int
    """Index in the trace's vectors, for an accepted vector."""


class Trace(NamedTuple):
    """Result of a simulation."""

    stream: bytes
    events: list[Event]
    vectors: "NDArray[np.int64]"
    """The vectors that entered the input buffer, as words, in order."""
    dropped: tuple[int, ...]
    """Dropped outer frames of each tap."""
    control: int
    """Control register 0 at the end."""
    cycles: int


class _Tap(ctypes.Structure):
    _fields_ = (
        ("vectors", ctypes.c_int64),
        ("words", ctypes.c_void_p),
        ("last", ctypes.c_void_p),
        ("pauses", ctypes.c_void_p),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "tap", "last", "number")),
        *((name, ctypes.c_int64) for name in ("cycle", "place")),
    )


_HEARD = ctypes.CFUNCTYPE(None, ctypes.c_uint8, ctypes.c_int64)


class _Session(ctypes.Structure):
    """The arguments and results of `session_run` in sim/instrument.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("lanes", "element_bits", "taps", "wide_tap", "crossed")),
        *((name, ctypes.c_int64) for name in ("period", "tap_period")),
        ("tap", ctypes.c_void_p),
        ("config_bytes", ctypes.c_int64),
        ("config", ctypes.c_void_p),
        ("config_at", ctypes.c_void_p),
        ("heard", _HEARD),
        ("seed", ctypes.c_uint64),
        ("stream_gap", ctypes.c_uint32),
        *((name, ctypes.c_int64) for name in ("reset_at", "stream_every", "most_cycles", "most_events")),
        ("events", ctypes.c_void_p),
        ("most_vectors", ctypes.c_int64),
        ("vectors", ctypes.c_void_p),
        ("most_bytes", ctypes.c_int64),
        ("bytes", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("event_count", "vector_count", "byte_count", "cycles")),
        ("dropped", ctypes.c_void_p),
        ("control_0", ctypes.c_int64),
    )


@cache
def _library(hardware: Hardware, crossed: int, queue: int, sources: Path) -> ctypes.CDLL:
    files = [*modules_in(sources), _SIMULATION / "presilicon_sim_instrument.sv"]
    headers = sorted(sources.glob("presilicon_*.svh"))
    parameters = {**instrument_parameters(hardware), "CROSSED": crossed, "QUEUE": queue}
    return build("presilicon_sim_instrument", parameters, files, headers, _SIMULATION / "instrument.cpp")


def simulate(
    hardware: Hardware,
    taps: Sequence[TapStream],
    images: Sequence[tuple[int, bytes]] = (),
    *,
    seed: int = 0,
    stream_gap: float = 0.0,
    stream_every: int = 1,
    crossed: Sequence[int] = (),
    periods: tuple[int, int] = (10, 10),
    queue: int = 16,
    reset_at: int | None = None,
    host: Callable[[bytes], bytes] | None = None,
    most_cycles: int = 5_000_000,
    sources: Path = SOURCES,
) -> Trace:
    """Let an instrument watch its taps and send packets.

    `images` are bytes from the host with the cycle at which they start, one byte per cycle. The reader of the stream
    takes at most a byte every `stream_every` cycles, and pauses with odds `stream_gap`. Taps in `crossed` have their
    own clock; `periods` are those of the instrument's clock and of theirs. At cycle `reset_at` the instrument is reset
    once more. A `host` takes each byte of the stream as it comes and returns bytes that are sent behind the images.
    """
    import numpy as np

    spare = hardware.word_bits - hardware.element_bits if hardware.is_float else 0
    mask = sum(1 << tap for tap in crossed)
    library = _library(hardware, mask, queue, SOURCES if sources == SOURCES else sources)
    alive: list[Any] = []  # arrays that the C structures point to
    structures = (_Tap * hardware.taps)()
    for index, tap in enumerate(taps):
        words = np.ascontiguousarray(np.asarray(tap.words, dtype=np.int64) >> spare)
        last = np.ascontiguousarray(tap.last[:, 0] | tap.last[:, 1].astype(np.uint8) << 1, dtype=np.uint8)
        pauses = np.ascontiguousarray(tap.pauses, dtype=np.int32)
        alive += [words, last, pauses]
        structures[index] = _Tap(len(words), words.ctypes.data, last.ctypes.data, pauses.ctypes.data)
    config = np.zeros(1 << 20, np.uint8)
    at = np.zeros(config.size, np.int64)
    session = _Session()

    def send(data: bytes, cycle: int) -> None:
        begin, end = session.config_bytes, session.config_bytes + len(data)
        config[begin:end], at[begin:end] = np.frombuffer(data, np.uint8), cycle
        session.config_bytes = end

    def heard(byte: int, cycle: int) -> None:
        assert host is not None
        if data := host(bytes([byte])):
            send(data, cycle + 1)

    for cycle, data in images:
        send(data, cycle)
    total = sum(len(tap.words) for tap in taps)
    most_events, most_bytes = 16 * total + 64 * (len(images) + 4) * (hardware.taps + 2), 1 << 20
    events = (_Event * most_events)()
    vectors = np.empty((total + 1, hardware.lanes), np.int64)
    stream = np.empty(most_bytes, np.uint8)
    dropped = np.zeros(hardware.taps, np.int64)
    settings = dict(
        lanes=hardware.lanes,
        element_bits=hardware.element_bits,
        taps=hardware.taps,
        wide_tap=32 * (-(-hardware.lanes * hardware.element_bits // 32) + 3),
        crossed=mask,
        period=periods[0],
        tap_period=periods[1],
        tap=ctypes.addressof(structures),
        config=config.ctypes.data,
        config_at=at.ctypes.data,
        **({} if host is None else {"heard": _HEARD(heard)}),
        seed=seed,
        stream_gap=min(int(stream_gap * 65536), 65000),
        reset_at=-1 if reset_at is None else reset_at,
        stream_every=stream_every,
        most_cycles=most_cycles,
        most_events=most_events,
        events=ctypes.addressof(events),
        most_vectors=total + 1,
        vectors=vectors.ctypes.data,
        most_bytes=most_bytes,
        bytes=stream.ctypes.data,
        dropped=dropped.ctypes.data,
    )
    for name, value in settings.items():
        setattr(session, name, value)
    if code := library.session_run(ctypes.byref(session)):
        raise RunFailedError(f"the simulation of the instrument did not end ({code})")
    decisions = [
        Event(event.kind, event.tap, event.last, event.number, event.cycle, event.place)
        for event in events[: session.event_count]
    ]
    accepted = vectors[: session.vector_count]
    if hardware.is_float:
        accepted = accepted << spare
    else:
        accepted = accepted << 64 - hardware.element_bits >> 64 - hardware.element_bits
    sent = stream[: session.byte_count].tobytes()
    return Trace(sent, decisions, accepted, tuple(dropped.tolist()), session.control_0, session.cycles)


class Frame(NamedTuple):
    """An outer frame that the circuit accepted to its end."""

    tap: int
    number: int
    blocks: list[PackedBlock]


def replay(engine: InstrumentEngine, trace: Trace, images: Sequence[bytes]) -> list[Frame]:
    """The frames that must be sent, in order: the circuit's decisions replayed on another engine.

    `images` are those that the circuit took, in order; they take effect when the circuit exchanged them.
    """
    import numpy as np

    frames: list[Frame] = []
    waiting = list(images)
    blocks: list[PackedBlock] = []
    for event in trace.events:
        if event.kind == EXCHANGE:
            engine.load(waiting.pop(0))
        elif event.kind == BREAK:
            engine.break_off()
            blocks = []
        elif event.kind == VECTOR:
            last = np.array([[event.last & 1, event.last >> 1]], dtype=np.bool_)
            blocks += engine.feed(trace.vectors[event.vector : event.vector + 1], last, event.tap)
            if event.last & 2:
                frames.append(Frame(event.tap, event.number, blocks))
                blocks = []
    late = {(event.tap, event.number) for event in trace.events if event.kind == TOO_LATE}
    return [frame for frame in frames if (frame.tap, frame.number) not in late]


def predict(engine: InstrumentEngine, trace: Trace, images: Sequence[bytes]) -> bytes:
    """The bytes that the circuit must have sent, given its decisions.

    A status has the counts at the time when it began; the frames are those of another engine.
    """
    writer = StreamWriter(engine.hardware)
    frames = iter(replay(engine, trace, images))
    checksums = iter([int.from_bytes(data[-4:], "little") for data in images])
    has_program = iter([bool(data[5] & 1) for data in images])
    left = 0
    image = taken = refused = refusal = 0
    sent = bytearray()
    events = iter(trace.events)
    for event in events:
        if event.kind == REPORT:
            if event.tap:
                refused, refusal = refused + 1, event.number
            else:
                taken += 1
                checksum = next(checksums)
                image = checksum if next(has_program) else image
        elif event.kind == STATUS:
            dropped = tuple(next(events).number for _ in range(engine.hardware.taps))
            sent += writer.status(Status(image, taken, refused, refusal, dropped))
        elif event.kind == BLOCK:
            if not left:
                frame = next(frames)
                left = len(frame.blocks)
                sent += writer.frame(frame.tap, frame.number, [block.words.tolist() for block in frame.blocks])
            left -= 1
    return bytes(sent)
