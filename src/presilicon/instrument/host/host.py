"""The host's side of an instrument: programs its taps, reads its stream, and turns frames into figures.

It sees only the chip's bytes, so the chip may be the fast model in this process, a circuit in a simulator or a board on
a cable. An image takes effect between two frames, and the chip's status reports it in the stream: frames before that
status are decoded by the program before.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from presilicon.base import ConfigError, located, unknown
from presilicon.designs import Hardware, Instrument
from presilicon.instrument.aggregations import BuiltAggregation, aggregation
from presilicon.instrument.aggregations.histograms import MovingAverage, bins_moved
from presilicon.instrument.aggregations.pairs import PairSource
from presilicon.instrument.aggregations.parts import MAX_NUMBERS, CountWarning
from presilicon.instrument.firmware.compiler import compile_firmware, frame_words
from presilicon.instrument.firmware.files import range_rows
from presilicon.instrument.firmware.image import Image
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.firmware.ranges import RangeRow
from presilicon.instrument.host.decoder import Decoder, Frame, Losses
from presilicon.instrument.host.reading import Reading, Shape, read_frame
from presilicon.instrument.host.sender import Clock, Sender
from presilicon.instrument.host.stream import Status
from presilicon.instrument.host.taps import TapFirmware, Wire, compose, wire_taps
from presilicon.instrument.model.words import values_of

OWN = "firmware"
"""Aggregation name of readings by the user's own firmware."""
UNKNOWN = "unknown"
"""Aggregation name of readings while the chip has an image that this host did not send."""
MAX_TRIES = 8
"""How often the first program is sent if a broken link garbles it."""


class _TapProgram(NamedTuple):
    """The firmware of a tap, and the aggregation that it belongs to."""

    name: str
    firmware: Firmware
    built: BuiltAggregation | None
    """None for the user's own firmware."""
    average: MovingAverage | None = None

    @property
    def follows(self) -> bool:
        """Whether the host moves its bins."""
        return self.built is not None and self.built.record.follows

    def rebin(self, boundaries: Sequence[float]) -> "_TapProgram":
        """The same program with other bins."""
        assert self.built is not None
        built = self.built.with_boundaries(boundaries)
        return self._replace(firmware=built.firmware, built=built)


class _State(NamedTuple):
    """Programs and sampling of the chip."""

    programs: dict[int, _TapProgram]
    layout: TapFirmware
    sampling: tuple[int, ...]


@dataclass
class Ticket:
    """The outcome of an order, once it is known."""

    is_settled: bool = False
    refusal: str | None = None
    """Why it was not carried out."""

    def settle(self, refusal: str | None = None) -> None:
        """Record that it was carried out, or why not."""
        self.is_settled, self.refusal = True, refusal


@dataclass(frozen=True)
class _Order:
    """A change to be sent to the chip."""

    programs: dict[int, _TapProgram] = field(default_factory=dict)
    """New programs, by tap."""
    replaces: dict[int, _TapProgram] = field(default_factory=dict)
    """If only ranges move: the program that each tap must still have then."""
    sampling: dict[int, int] = field(default_factory=dict)
    control: tuple[int, int] | None = None
    is_first: bool = False
    ticket: Ticket = field(default_factory=Ticket, compare=False)

    @property
    def is_program(self) -> bool:
        return self.is_first or (bool(self.programs) and not self.replaces)


def check_taps(instrument: Instrument, layers: Sequence[str] | None = None) -> None:
    """Check that an instrument can be wired to these layers and programmed; where none are known, to a single layer.

    Raises:
        ConfigError: a pattern matches no layer, an aggregation does not exist, or the hardware is too small.
    """
    if layers is None:
        taps = tuple(replace(tap, layers="*") for tap in instrument.taps)
        instrument, layers = replace(instrument, taps=taps), ["layer"]
    Host(instrument.built, wire_taps(instrument, layers))


class Host:
    """Programs and reads one instrument."""

    def __init__(self, hardware: Hardware, wires: Sequence[Wire], *, clock: Clock = time.monotonic) -> None:
        self.hardware = hardware
        self.wires = {wire.tap: wire for wire in wires}
        self.shapes: dict[int, Shape] = {}
        """Shapes of the tensors behind each tap's frames, as far as they are known."""
        self._warned: set[tuple[int, str]] = set()
        self.undecodable = 0
        """Whole frames whose words do not fit their aggregation."""
        self._decoder = Decoder(hardware, frame_words=self._frame_words)
        self._sender = Sender(hardware, clock)
        self._state = _State({}, self._compose({}), (0,) * hardware.taps)
        self._queue: deque[_Order] = deque()
        self._under_way: tuple[_Order, _State] | None = None
        """An order that was sent, and the state once the chip has taken it."""
        self.is_foreign = True
        """Whether the chip runs a program that this host did not send: its frames are words without a meaning."""
        self._moved: dict[int, tuple[_TapProgram, _TapProgram]] = {}
        """Programs with the bins that were counted with and with those that follow, by tap."""
        self.refusals: list[str] = []
        """Reasons why the chip refused images."""
        self.last_ticket = Ticket()
        """Ticket of the last order."""
        every = {tap: self.wires[tap].every if tap in self.wires else 0 for tap in range(hardware.taps)}
        programs = {wire.tap: self._program(wire.aggregation, wire.options, wire.name) for wire in wires}
        self._order(_Order(programs, sampling=every, is_first=True))

    @property
    def losses(self) -> Losses:
        """The account of the stream."""
        return self._decoder.losses

    @property
    def is_waiting(self) -> bool:
        """Whether an image is not yet answered by the chip."""
        return self._under_way is not None or bool(self._queue)

    def take(self) -> bytes:
        """Bytes for the chip: one image at a time, sent again if the chip does not answer."""
        while self._under_way is None and self._queue:
            self._start(self._queue.popleft())
        return self._sender.take()

    def wires_named(self, name: str) -> list[Wire]:
        """The wires of a tap of the design, or the one wire of that name."""
        wires = [wire for wire in self.wires.values() if name in (wire.name, wire.group)]
        if not wires:
            raise unknown("tap", name, {text for wire in self.wires.values() for text in (wire.name, wire.group)})
        return wires

    def aggregations(self) -> dict[int, BuiltAggregation]:
        """The aggregation of every tap once all orders are carried out; not of taps with the user's own firmware."""
        programs = self._ordered_programs().items()
        return {tap: program.built for tap, program in programs if program.built is not None}

    def pairs(self) -> dict[int, PairSource]:
        """Source of pairs, for every tap whose aggregation compares two tensors."""
        return {tap: built.pairs for tap, built in self.aggregations().items() if built.pairs is not None}

    def count_warning(self, tap: int, shape: Shape) -> tuple[str, CountWarning] | None:
        """A tap's aggregation and a warning if counts of such tensors may not fit; once per tap and aggregation."""
        built = self.aggregations().get(tap)
        if built is None or (tap, built.name) in self._warned:
            return None
        warning = built.check_counts(shape.elements, shape.nodes)
        if warning is None:
            return None
        self._warned.add((tap, built.name))
        return built.name, warning

    def interval(self, tap: int) -> int:
        """The initiation interval of a tap's program."""
        return compile_firmware(self._ordered_programs()[tap].firmware, self.hardware).initiation_interval(0)

    def _ordered_programs(self) -> dict[int, _TapProgram]:
        """The program of every tap once all orders are carried out."""
        ahead = () if self._under_way is None else (self._under_way[0],)
        programs = self._state.programs
        for order in (*ahead, *self._queue):
            programs = programs | order.programs
        return programs

    def program(
        self,
        name: str,
        aggregation: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        chains: Sequence[Any] | None = None,
        boundaries: Sequence[Any] | None = None,
    ) -> str:
        """Give a tap another aggregation, or the user's own chains and ranges; returns a sentence about it.

        Raises:
            ConfigError: the program is not possible; nothing was sent.
        """
        programs: dict[int, _TapProgram] = {}
        wires = self.wires_named(name)
        for wire in wires:
            if chains is not None:
                firmware = Firmware.from_chains(list(chains), range_rows(boundaries or ()))
                compile_firmware(firmware, self.hardware)
                programs[wire.tap] = _TapProgram(OWN, firmware, None)
            else:
                programs[wire.tap] = self._program(str(aggregation), options or {}, wire.name)
        self._order(_Order(programs))
        program = "firmware of your own" if chains is not None else f"aggregation {aggregation}"
        return f"{', '.join(wire.name for wire in wires)}: {program}, {self.interval(wires[0].tap)} cycles a vector"

    def set_ranges(self, name: str, boundaries: Sequence[Sequence[Any]]) -> str:
        """Set the boundaries of the rows of ranges that a tap uses, in the order of its firmware's rows.

        Raises:
            ConfigError: it has fewer rows, a row is not valid, or the aggregation's bins would not fit together.
        """
        programs = self._ordered_programs()
        wires = self.wires_named(name)
        self._order(_Order({wire.tap: self._with_rows(programs[wire.tap], boundaries) for wire in wires}))
        return f"{', '.join(wire.name for wire in wires)}: {len(boundaries)} rows of ranges"

    def sample(self, name: str, every: int) -> str:
        """Sample a tap every so many steps; 0 is never."""
        wires = self.wires_named(name)
        self._order(_Order(sampling={wire.tap: every for wire in wires}))
        return f"{', '.join(wire.name for wire in wires)}: " + (f"every {every} steps" if every else "not looked at")

    def control(self, register: int, value: int) -> None:
        """Write a control register of the chip.

        Raises:
            ConfigError: the hardware has no such register.
        """
        if register >= self.hardware.controls:
            raise ConfigError(
                f"control register {register}: this hardware has {self.hardware.controls}; set controls in "
                "[instrument.hardware]"
            )
        self._order(_Order(control=(register, value)))

    def state(self) -> dict[int, dict[str, Any]]:
        """State of each tap for a checkpoint: bins that followed, and the numbers in running averages."""
        return {
            tap: {
                "aggregation": program.name,
                "boundaries": list(program.built.boundaries) if program.follows and program.built is not None else [],
                "average": [] if program.average is None else program.average.values,
            }
            for tap, program in self._ordered_programs().items()
        }

    def restore(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Continue from another host's state; taps with another aggregation start afresh."""
        programs = self._ordered_programs()
        moved: dict[int, _TapProgram] = {}
        for tap, tap_state in state.items():
            program = programs.get(tap)
            if program is None or program.built is None or program.name != tap_state["aggregation"]:
                continue
            if program.average is not None:
                program.average.extend(tap_state["average"])
            if len(tap_state["boundaries"]) == len(program.built.boundaries) > 0:
                moved[tap] = program.rebin(tap_state["boundaries"])
        if moved:
            self._order(_Order(moved, replaces={tap: programs[tap] for tap in moved}))

    def feed(self, data: bytes) -> list[Reading]:
        """Readings of the frames that these bytes complete."""
        return self._interpret(self._decoder.feed(data))

    def finish(self) -> list[Reading]:
        """Readings of the last frames, once no more bytes come."""
        return self._interpret(self._decoder.finish())

    def _interpret(self, items: Sequence[Frame | Status]) -> list[Reading]:
        readings = []
        for item in items:
            if isinstance(item, Status):
                self._take_status(item)
            elif (reading := self._read(item)) is not None:
                readings.append(reading)
        self._send_moved_ranges()
        return readings

    def disconnected(self) -> None:
        """Note that the link broke: the next bytes need not continue the last ones."""
        self._decoder.disconnected()
        self._sender.again()

    def _frame_words(self, tap: int, program: int) -> int | None:
        tap_program = self._state.programs.get(tap)
        if tap_program is None or self.is_foreign or program != self._sender.in_force:
            return None
        return frame_words(tap_program.firmware, self.hardware)

    def _take_status(self, status: Status) -> None:
        outcome = self._sender.take_status(status)
        if self._under_way is not None and outcome.taken:
            order, self._state = self._under_way
            self._under_way = None
            order.ticket.settle()
            self.is_foreign = self.is_foreign and not order.is_program
        elif self._under_way is not None and outcome.refusal is not None:
            order, _ = self._under_way
            self._under_way = None
            self.refusals.append(outcome.refusal)
            if order.is_first and outcome.is_garbled and len(self.refusals) < MAX_TRIES:
                self._queue.appendleft(order)
            else:
                order.ticket.settle(outcome.refusal)
        self.is_foreign = self.is_foreign or outcome.foreign

    def _read(self, frame: Frame) -> Reading | None:
        wire, program = self.wires.get(frame.tap), self._state.programs.get(frame.tap)
        if wire is None:
            return None
        if self.is_foreign or program is None or program.built is None:
            values = [float(value) for value in values_of(self.hardware, list(frame.words))]
            name = UNKNOWN if self.is_foreign or program is None else OWN
            return Reading(wire, frame.number, name, {}, None, values[:MAX_NUMBERS])
        shape = self.shapes.get(frame.tap)
        try:
            count, nodes = (None, None) if shape is None else (shape.elements, shape.nodes)
            result = program.built.decode(list(frame.words), count=count, nodes=nodes)
        except (ConfigError, ValueError):
            self.undecodable += 1
            return None
        reading = read_frame(wire, frame.number, program.built, result, shape, program.average)
        if program.follows and reading.histogram is not None:
            boundaries = program.built.following_boundaries(reading.histogram["counts"])
            if bins_moved(program.built.boundaries, boundaries):
                self._moved[frame.tap] = program, program.rebin(boundaries)
        return reading

    def _send_moved_ranges(self) -> None:
        """Send the ranges that moved, of all taps as one image; not those of a tap that is about to change anyway."""
        programs = self._ordered_programs()
        moved = {tap: pair for tap, pair in self._moved.items() if programs.get(tap) is pair[0]}
        self._moved.clear()
        if moved:
            before, after = ({tap: pair[side] for tap, pair in moved.items()} for side in (0, 1))
            self._order(_Order(after, replaces=before))

    def _program(self, name: str, options: Mapping[str, Any], tap: str) -> _TapProgram:
        with located(f'tap "{tap}"'):
            built = aggregation(name, self.hardware, **options)
        average = None if built.record.average is None else MovingAverage(built.window)
        return _TapProgram(name, built.firmware, built, average)

    def _with_rows(self, program: _TapProgram, boundaries: Sequence[Sequence[Any]]) -> _TapProgram:
        rows = sorted(program.firmware.rows)
        if not 0 < len(boundaries) <= len(rows):
            raise ConfigError(f"{len(boundaries)} rows of ranges, but its firmware has {len(rows)}")
        changed = {row: RangeRow.of_boundaries(edges) for row, edges in zip(rows, boundaries, strict=False)}
        if any(program.firmware.rows[row].classes is not None for row in changed):
            raise ConfigError(
                f"the ranges of {program.name} are classes of numbers, not boundaries: they cannot be set; program "
                "distribution, with boundaries of your own"
            )
        for row, content in changed.items():
            with located(f"row {row}"):
                content.check(self.hardware)
        if program.built is not None and program.built.boundaries:
            contents = [(changed.get(row) or program.firmware.rows[row]).boundaries for row in rows]
            joined = [*contents[0], *(value for content in contents[1:] for value in content[1:])]
            if any(before[-1] != after[0] for before, after in pairwise(contents)):
                raise ConfigError("each row of bins must begin where the one before it ends")
            return program.rebin(joined)
        chains = program.firmware.programs[0].chains
        return program._replace(firmware=Firmware.from_chains(chains, program.firmware.rows | changed))

    def _compose(self, programs: Mapping[int, _TapProgram]) -> TapFirmware:
        firmwares = {tap: program.firmware for tap, program in programs.items()}
        following = {tap for tap, program in programs.items() if program.follows}
        return compose(firmwares, self.hardware, own_ranges=following)

    def _order(self, order: _Order) -> None:
        """Queue a change behind those ordered before.

        Raises:
            ConfigError: the change is not possible.
        """
        programs = self._ordered_programs() | order.programs
        layout = self._compose(programs) if order.is_program else self._state.layout
        if not order.replaces:
            self._image(order, _State(programs, layout, self._sampled(order)))
        self._queue.append(order)
        self.last_ticket = order.ticket

    def _start(self, order: _Order) -> None:
        """Send a change of the chip's present state."""
        if any(self._state.programs.get(tap) is not program for tap, program in order.replaces.items()):
            order.ticket.settle("the tap has another program by now")
            return
        programs = self._state.programs | order.programs
        try:
            layout = self._compose(programs) if order.is_program else self._state.layout
            state = _State(programs, layout, self._sampled(order))
            image = self._image(order, state).to_bytes()
        except ConfigError as error:  # an order before it was refused
            self.refusals.append(str(error))
            order.ticket.settle(str(error))
            return
        self._under_way = order, state
        self._sender.send(image, is_program=order.is_program)

    def _sampled(self, order: _Order) -> tuple[int, ...]:
        return tuple(order.sampling.get(tap, every) for tap, every in enumerate(self._state.sampling))

    def _image(self, order: _Order, state: _State) -> Image:
        if order.control is not None:
            return Image(self.hardware, controls=(order.control,))
        firmware = state.layout.firmware if order.is_program else Firmware()
        rows = state.layout.range_rows
        moved = {
            rows[tap][row]: content
            for tap in order.replaces
            for row, content in state.programs[tap].firmware.rows.items()
        }
        # Sampling that is sent starts afresh on the chip, so it is only sent when it changes.
        return compile_firmware(
            firmware, self.hardware, rows=moved, sampling=state.sampling if order.sampling else None
        )
