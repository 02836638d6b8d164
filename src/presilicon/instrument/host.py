"""The host's side of an instrument: programs its taps, reads its stream, and makes figures of the frames.

It knows the chip by its bytes alone, so that the chip may be the fast model in this process, a circuit in a simulator
or a board on a cable. Whatever it sends takes effect between two frames, and the chip's status says so in the stream
itself: frames before it are read by what was asked for then.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from presilicon.base.errors import ConfigError, unknown
from presilicon.designs import Hardware
from presilicon.instrument.aggregations import Aggregation, aggregation
from presilicon.instrument.compiler import compile_firmware, frame_words
from presilicon.instrument.counts import Doubt
from presilicon.instrument.decoder import Decoder, Frame, Losses
from presilicon.instrument.files import range_rows
from presilicon.instrument.firmware import Firmware
from presilicon.instrument.histograms import MovingAverage, tracking_boundaries
from presilicon.instrument.image import Image
from presilicon.instrument.ranges import RangeRow
from presilicon.instrument.sending import Clock, Sender
from presilicon.instrument.stream import Status
from presilicon.instrument.taps import Layout, Wire, compose
from presilicon.instrument.words import values_of

OWN = "firmware"
"""The name of an aggregation that the user wrote."""
UNKNOWN = "unknown"
"""The name of whatever made frames while the chip had an image that was not sent here."""
MOST_TRIES = 8
"""Of the first program, when a broken link garbles it."""
WINDOW = 20
"""Looks that predictiveness is averaged over."""
MOST_NUMBERS = 4096
"""Of one look, in an event."""


class Shape(NamedTuple):
    """What the host knows of the tensor behind a frame."""

    elements: int
    """Of what was offered; of one tensor, in pairs."""
    nodes: int
    """Its last dimension."""
    share: float = 1.0
    """The part of the tensor that was offered."""


class Reading(NamedTuple):
    """One frame, decoded."""

    wire: Wire
    frame: int
    aggregation: str
    values: dict[str, float | None]
    histogram: dict[str, list[float]] | None
    """`edges` and `counts`."""
    lanes: list[float] | None
    """A figure for each node."""
    notes: tuple[str, ...] = ()
    """Which figures are None because the chip's words could not hold them."""

    def to_plain(self) -> dict[str, Any]:
        """The fields of an event; what it does not have is left out."""
        plain: dict[str, Any] = {"tap": self.wire.name, "layer": self.wire.layer, "role": self.wire.role}
        plain |= {"aggregation": self.aggregation, "values": self.values}
        plain |= {} if self.histogram is None else {"histogram": self.histogram}
        plain |= {} if self.lanes is None else {"lanes": self.lanes}
        return plain | ({"notes": list(self.notes)} if self.notes else {})


class _Use(NamedTuple):
    """What a tap is programmed to do."""

    name: str
    firmware: Firmware
    made: Aggregation | None
    average: MovingAverage | None = None

    @property
    def tracks(self) -> bool:
        return self.name == "norm_check"


class _State(NamedTuple):
    """What the chip does."""

    uses: dict[int, _Use]
    layout: Layout
    sampling: tuple[int, ...]


@dataclass
class Ticket:
    """What becomes of an order."""

    is_settled: bool = False
    refusal: str | None = None
    """Why it was not carried out."""

    def settle(self, refusal: str | None = None) -> None:
        """It was carried out, or refused."""
        self.is_settled, self.refusal = True, refusal


@dataclass(frozen=True)
class _Order:
    """A change that the chip is to be sent."""

    uses: dict[int, _Use] = field(default_factory=dict)
    """Of the taps that change."""
    follows: dict[int, _Use] = field(default_factory=dict)
    """Where only ranges move: what each tap must be doing then."""
    sampling: dict[int, int] = field(default_factory=dict)
    control: tuple[int, int] | None = None
    is_first: bool = False
    ticket: Ticket = field(default_factory=Ticket, compare=False)

    @property
    def is_program(self) -> bool:
        return self.is_first or (bool(self.uses) and not self.follows)


class Host:
    """Programs and reads one instrument."""

    def __init__(self, hardware: Hardware, wires: Sequence[Wire], *, clock: Clock = time.monotonic) -> None:
        self.hardware = hardware
        self.wires = {wire.tap: wire for wire in wires}
        self.shapes: dict[int, Shape] = {}
        """Of the tensors behind each tap's frames, as far as they are known."""
        self._doubted: set[tuple[int, str]] = set()
        self.undecodable = 0
        """Frames that were whole, but not what their aggregation sends."""
        self._decoder = Decoder(hardware, frame_words=self._frame_words)
        self._sender = Sender(hardware, clock)
        self._state = _State({}, self._compose({}), (0,) * hardware.taps)
        self._queue: deque[_Order] = deque()
        self._under_way: tuple[_Order, _State] | None = None
        """An order that was sent, and what holds once the chip has taken it."""
        self._is_foreign = True
        self._moved: dict[int, tuple[_Use, _Use]] = {}
        """Of taps whose ranges follow: what they were counted with, and what they are to be."""
        self.refusals: list[str] = []
        """Why the chip refused images."""
        self.last_ticket = Ticket()
        """Of the order that was given last."""
        every = {tap: self.wires[tap].every if tap in self.wires else 0 for tap in range(hardware.taps)}
        uses = {wire.tap: self._use(wire.aggregation, wire.options, wire.name) for wire in wires}
        self._order(_Order(uses, sampling=every, is_first=True))

    @property
    def losses(self) -> Losses:
        """The account of the stream."""
        return self._decoder.losses

    @property
    def is_waiting(self) -> bool:
        """Whether the chip has not yet said what became of an image."""
        return self._under_way is not None or bool(self._queue)

    @property
    def is_foreign(self) -> bool:
        """Whether the chip does something that was not asked for here: its frames are words without a meaning."""
        return self._is_foreign

    def take(self) -> bytes:
        """What is to be sent to the chip now: one image at a time, again when the chip says nothing of it."""
        while self._under_way is None and self._queue:
            self._start(self._queue.popleft())
        return self._sender.take()

    def named(self, name: str) -> list[Wire]:
        """The wires of a tap of the design, or the one wire of that name."""
        found = [wire for wire in self.wires.values() if name in (wire.name, wire.group)]
        if not found:
            raise unknown("tap", name, {text for wire in self.wires.values() for text in (wire.name, wire.group)})
        return found

    def pairs(self) -> dict[int, str]:
        """The aggregation of every tap that looks at two tensors: what is asked for now, taken or not."""
        return {tap: use.name for tap, use in self._asked_uses().items() if use.made is not None and use.made.pairs}

    def doubt(self, tap: int, shape: Shape) -> tuple[str, Doubt] | None:
        """The aggregation of a tap and why its counts may not fit, for tensors of that size; told once of each."""
        use = self._asked_uses()[tap]
        if use.made is None or (tap, use.name) in self._doubted:
            return None
        found = use.made.doubt(shape.elements, shape.nodes)
        if found is None:
            return None
        self._doubted.add((tap, use.name))
        return use.name, found

    def interval(self, tap: int) -> int:
        """The initiation interval of a tap's program."""
        return compile_firmware(self._asked_uses()[tap].firmware, self.hardware).initiation_interval(0)

    def _asked_uses(self) -> dict[int, _Use]:
        """What every tap is to do once all orders are carried out."""
        ahead = () if self._under_way is None else (self._under_way[0],)
        uses = self._state.uses
        for order in (*ahead, *self._queue):
            uses = uses | order.uses
        return uses

    def program(
        self,
        name: str,
        aggregation: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        chains: Sequence[Any] | None = None,
        boundaries: Sequence[Any] | None = None,
    ) -> str:
        """Give a tap another aggregation, or chains and ranges of one's own; a sentence that says what was sent.

        Raises:
            ConfigError: it cannot be; nothing was sent.
        """
        uses: dict[int, _Use] = {}
        wires = self.named(name)
        for wire in wires:
            if chains is not None:
                firmware = Firmware.from_chains(list(chains), range_rows(boundaries or ()))
                compile_firmware(firmware, self.hardware)
                uses[wire.tap] = _Use(OWN, firmware, None)
            else:
                uses[wire.tap] = self._use(str(aggregation), options or {}, wire.name)
        self._order(_Order(uses))
        what = "firmware of your own" if chains is not None else f"aggregation {aggregation}"
        return f"{', '.join(wire.name for wire in wires)}: {what}, {self.interval(wires[0].tap)} cycles a vector"

    def set_ranges(self, name: str, boundaries: Sequence[Sequence[Any]]) -> str:
        """Other boundaries for the rows of ranges that a tap uses, in the order of its firmware's rows.

        Raises:
            ConfigError: it has fewer rows, they are no boundaries, or the aggregation's bins would not fit together.
        """
        asked = self._asked_uses()
        wires = self.named(name)
        self._order(_Order({wire.tap: self._with_rows(asked[wire.tap], boundaries) for wire in wires}))
        return f"{', '.join(wire.name for wire in wires)}: {len(boundaries)} rows of ranges"

    def sample(self, name: str, every: int) -> str:
        """Look at a tap every so many steps; 0 is never."""
        wires = self.named(name)
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
        """What it has learnt of each tap: ranges that followed, and what averages are of."""
        return {
            tap: {
                "aggregation": use.name,
                "boundaries": list(use.made.boundaries) if use.tracks and use.made is not None else [],
                "average": [] if use.average is None else use.average.values,
            }
            for tap, use in self._asked_uses().items()
        }

    def go_on(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Go on where another host was; taps that do something else now begin anew."""
        asked = self._asked_uses()
        moved: dict[int, _Use] = {}
        for tap, kept in state.items():
            use = asked.get(tap)
            if use is None or use.made is None or use.name != kept["aggregation"]:
                continue
            if use.average is not None:
                use.average.extend(kept["average"])
            if len(kept["boundaries"]) == len(use.made.boundaries) > 0:
                made = use.made.with_boundaries(kept["boundaries"])
                moved[tap] = use._replace(firmware=made.firmware, made=made)
        if moved:
            self._order(_Order(moved, follows={tap: asked[tap] for tap in moved}))

    def feed(self, data: bytes) -> list[Reading]:
        """What the stream's bytes say."""
        return self._understand(self._decoder.feed(data))

    def finish(self) -> list[Reading]:
        """What is left when no more bytes come."""
        return self._understand(self._decoder.finish())

    def _understand(self, found: Sequence[Frame | Status]) -> list[Reading]:
        readings = []
        for each in found:
            if isinstance(each, Status):
                self._heard(each)
            elif (reading := self._read(each)) is not None:
                readings.append(reading)
        self._follow()
        return readings

    def disconnected(self) -> None:
        """The link broke: what comes next need not follow what came before."""
        self._decoder.disconnected()
        self._sender.again()

    def _frame_words(self, tap: int, program: int) -> int | None:
        use = self._state.uses.get(tap)
        if use is None or self._is_foreign or program != self._sender.in_force:
            return None
        return frame_words(use.firmware, self.hardware)

    def _heard(self, status: Status) -> None:
        outcome = self._sender.heard(status)
        if self._under_way is not None and outcome.taken:
            order, self._state = self._under_way
            self._under_way = None
            order.ticket.settle()
            self._is_foreign = self._is_foreign and not order.is_program
        elif self._under_way is not None and outcome.refusal is not None:
            order, _ = self._under_way
            self._under_way = None
            self.refusals.append(outcome.refusal)
            if order.is_first and outcome.is_garbled and len(self.refusals) < MOST_TRIES:
                self._queue.appendleft(order)
            else:
                order.ticket.settle(outcome.refusal)
        self._is_foreign = self._is_foreign or outcome.foreign

    def _read(self, frame: Frame) -> Reading | None:
        wire, use, shape = self.wires.get(frame.tap), self._state.uses.get(frame.tap), self.shapes.get(frame.tap)
        if wire is None:
            return None
        if self._is_foreign or use is None or use.made is None:
            values = [float(value) for value in values_of(self.hardware, list(frame.words))]
            name = UNKNOWN if self._is_foreign or use is None else OWN
            return Reading(wire, frame.number, name, {}, None, values[:MOST_NUMBERS])
        try:
            count, nodes = (None, None) if shape is None else (shape.elements, shape.nodes)
            result = use.made.decode(list(frame.words), count=count, nodes=nodes)
        except (ConfigError, ValueError):
            self.undecodable += 1
            return None
        reading = _reading(wire, frame.number, use, result, shape)
        if use.tracks and reading.histogram is not None:
            self._track(frame.tap, use, reading)
        return reading

    def _track(self, tap: int, use: _Use, reading: Reading) -> None:
        """Note the ranges that follow what NormCheck has just counted, if they are other than before."""
        assert use.made is not None
        assert reading.histogram is not None
        before = use.made.boundaries
        after = tracking_boundaries(before, reading.histogram["counts"])
        inner = [value for value in after if math.isfinite(value)]
        span = (inner[-1] - inner[0]) if inner else 0.0
        pairs = zip(before, after, strict=True)
        moved = max((abs(old - new) for old, new in pairs if math.isfinite(old) and math.isfinite(new)), default=0.0)
        if len(inner) < 2 or moved <= 0.02 * span:
            return
        made = use.made.with_boundaries(after)
        self._moved[tap] = use, use._replace(firmware=made.firmware, made=made)

    def _follow(self) -> None:
        """Send the ranges that moved, of all taps as one image; not those of a tap that is being changed anyway."""
        asked = self._asked_uses()
        moved = {tap: pair for tap, pair in self._moved.items() if asked.get(tap) is pair[0]}
        self._moved.clear()
        if moved:
            before, after = ({tap: pair[side] for tap, pair in moved.items()} for side in (0, 1))
            self._order(_Order(after, follows=before))

    def _use(self, name: str, options: Mapping[str, Any], tap: str) -> _Use:
        given = dict(options)
        average = None
        if name == "predictiveness":
            window = given.pop("window", WINDOW)
            if not isinstance(window, int) or isinstance(window, bool) or window < 1:
                raise ConfigError(f'tap "{tap}": window is {window!r}, expected a whole number of at least 1')
            average = MovingAverage(window)
        try:
            made = aggregation(name, self.hardware, **given)
        except ConfigError as error:
            raise ConfigError(f'tap "{tap}": {error}') from None
        return _Use(name, made.firmware, made, average)

    def _with_rows(self, use: _Use, boundaries: Sequence[Sequence[Any]]) -> _Use:
        rows = sorted(use.firmware.rows)
        if not 0 < len(boundaries) <= len(rows):
            raise ConfigError(f"{len(boundaries)} rows of ranges, but its firmware has {len(rows)}")
        given = {row: RangeRow.of_boundaries(each) for row, each in zip(rows, boundaries, strict=False)}
        if any(use.firmware.rows[row].classes is not None for row in given):
            raise ConfigError(
                f"the ranges of {use.name} are classes of numbers, not boundaries: they cannot be set; program "
                "distribution, with boundaries of your own"
            )
        for row, content in given.items():
            try:
                content.check(self.hardware)
            except ConfigError as error:
                raise ConfigError(f"row {row}: {error}") from None
        if use.made is not None and use.made.boundaries:
            contents = [(given.get(row) or use.firmware.rows[row]).boundaries for row in rows]
            joined = [*contents[0], *(value for content in contents[1:] for value in content[1:])]
            if any(before[-1] != after[0] for before, after in pairwise(contents)):
                raise ConfigError("each row of bins must begin where the one before it ends")
            made = use.made.with_boundaries(joined)
            return use._replace(firmware=made.firmware, made=made)
        chains = use.firmware.programs[0].chains
        return use._replace(firmware=Firmware.from_chains(chains, use.firmware.rows | given))

    def _compose(self, uses: Mapping[int, _Use]) -> Layout:
        firmwares = {tap: use.firmware for tap, use in uses.items()}
        return compose(firmwares, self.hardware, own_ranges={tap for tap, use in uses.items() if use.tracks})

    def _order(self, order: _Order) -> None:
        """Have a change sent, behind those that were asked for before it.

        Raises:
            ConfigError: it cannot be.
        """
        uses = self._asked_uses() | order.uses
        layout = self._compose(uses) if order.is_program else self._state.layout
        if not order.follows:
            self._image(order, _State(uses, layout, self._sampled(order)))
        self._queue.append(order)
        self.last_ticket = order.ticket

    def _start(self, order: _Order) -> None:
        """Send a change to what the chip does now."""
        if any(self._state.uses.get(tap) is not use for tap, use in order.follows.items()):
            order.ticket.settle("the tap does something else by now")
            return
        uses = self._state.uses | order.uses
        try:
            state = _State(uses, self._compose(uses) if order.is_program else self._state.layout, self._sampled(order))
            image = self._image(order, state).to_bytes()
        except ConfigError as error:  # what it was to follow was refused
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
        moved = {rows[tap][row]: what for tap in order.follows for row, what in state.uses[tap].firmware.rows.items()}
        # Sampling that is sent begins anew: what goes on as it was is left alone.
        return compile_firmware(
            firmware, self.hardware, rows=moved, sampling=state.sampling if order.sampling else None
        )


def _reading(wire: Wire, frame: int, use: _Use, result: Mapping[str, Any], shape: Shape | None) -> Reading:
    """An aggregation's results as figures, a histogram, and figures of nodes."""
    values: dict[str, float | None] = {}
    histogram = lanes = None
    for name, value in result.items():
        if value is None or isinstance(value, float | int):
            values[name] = value
    if result.get("counts") is not None:
        histogram = {"edges": list(result["boundaries"]), "counts": list(result["counts"])}
    elif result.get("zeros_by_node") is not None:
        lanes = [float(value) for value in result["zeros_by_node"]]
    elif "is_zero" in result:
        lanes = [float(value) for value in result["is_zero"].mean(axis=0)]
    elif "tensor" in result or "vectors" in result:
        tensor = result.get("tensor", result["vectors"])
        lanes = [float(value) for value in tensor.ravel()[:MOST_NUMBERS]]
    if shape is not None and "zeros" in values and values["zeros"] is not None:
        values["sparsity"] = values["zeros"] / shape.elements
    if use.average is not None and values.get("largest_mean") is not None:
        values["predictiveness"] = use.average.add(float(values["largest_mean"] or 0.0))
    if shape is not None and shape.share < 1:
        values["share"] = shape.share
    return Reading(wire, frame, use.name, values, histogram, lanes, tuple(result.get("notes", ())))
