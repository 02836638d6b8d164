"""The instrument of a design in emulated training: taps on tensors, frames through the chip, events out."""

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

import msgspec
from msgspec import UNSET, to_builtins

from presilicon.base import ConfigError, located, torch
from presilicon.designs import Instrument
from presilicon.formats import Format
from presilicon.instrument.aggregations import AGGREGATIONS, BuiltAggregation
from presilicon.instrument.aggregations.pairs import PairSource, check_pair_source, check_rounding
from presilicon.instrument.host.control import Command, learning_rate_bits
from presilicon.instrument.host.host import Host
from presilicon.instrument.host.link import FileLink, Link, SocketServer, parse_address
from presilicon.instrument.host.reading import Reading, Shape
from presilicon.instrument.host.taps import TapSample, Wire, sample, wire_taps
from presilicon.instrument.host.tensors import cut_pair, cut_tensor
from presilicon.instrument.host.token import TOKEN_FILE, TOKEN_VARIABLE, is_loopback, server_token
from presilicon.instrument.model.chip import Chip, Vectors
from presilicon.instrument.model.engine import InstrumentEngine
from presilicon.instrument.model.words import to_words
from presilicon.records import (
    InstrumentAggregation,
    InstrumentAnswer,
    InstrumentEnded,
    InstrumentEvent,
    InstrumentLosses,
    InstrumentReading,
    InstrumentStarted,
    InstrumentWarning,
    StepFacts,
    TapInfo,
    TapLosses,
)

LEARNING_RATE = 0
"""Control register of the learning rate, which holds the bits of a float32."""
ACCOUNT_EVERY = 100
"""Steps between two `instrument_losses` events."""
DEFAULT_STEP_S = 1e-3

Emit = Callable[[InstrumentEvent], None]


class CommandSource(Protocol):
    """Source of commands: a file that grows, or a list of earlier commands."""

    def pending(self, step: int) -> Sequence[Command]:
        """Commands that are new at a step."""
        ...


class TrainingInstrument:
    """An observer and a training hook: pass it to `train` as both.

    Tapped tensors go through the chip at its own rate; the chip's packets go to the host, whose readings go to `emit`
    as events. Commands are carried out between two steps. Training is not affected unless a learning rate is set; a
    host that disconnects from the socket or a stream file that cannot be written stops nothing. Its state is part of
    the run's checkpoints, so that a resumed run shows what an uninterrupted one would have shown.
    """

    is_passive: Literal[True] = True
    """It does not affect training: a checkpoint written without it can be resumed with it."""

    def __init__(
        self,
        instrument: Instrument,
        *,
        layers_of: Callable[[Any], Sequence[str]],
        emit: Emit,
        step_s: float | None = None,
        format_of: Callable[[Any, str, str], Format] | None = None,
        commands: Callable[[str], CommandSource] | None = None,
        stream_file: Path | None = None,
        token_file: Path | None = None,
        engine: InstrumentEngine | None = None,
    ) -> None:
        self.instrument = instrument
        self.stream = uuid4().hex[:12]
        """Name of this training in commands and events."""
        self.chip = Chip(instrument, engine)
        self.readings: list[Reading] = []
        """Readings of the last step."""
        self._engine = engine
        self._layers_of = layers_of
        self._format_of = format_of
        self._emit = emit
        self._step_s = instrument.step_s or step_s or DEFAULT_STEP_S
        self._commands = None if commands is None else commands(self.stream)
        self.links: list[Link] = []
        """Links that get the packets, besides the host."""
        self._stream_file = stream_file
        self._token_file = token_file
        self._server: SocketServer | None = None
        self._wires: dict[tuple[str, str], list[Wire]] = {}
        self._parameters: dict[int, Any] = {}
        self._model: Any = None
        self._optimizer: Any = None
        self._host: Host | None = None
        self._first_step = 0
        self._frames = 0
        """Steps that were watched."""
        self._resumed_state: dict[str, Any] | None = None
        self._offers = 0
        self._begun: int | None = None
        """The step that has begun and not ended."""
        self._is_observing = False
        """Whether any tensor was shown to it."""
        self._seen: set[int] = set()
        self._pairs: dict[int, PairSource] = {}
        """Source of pairs, for each tap that looks at two tensors."""
        self._before: dict[int, Any] = {}
        """Weights before the update, by tap."""
        self._previous: dict[int, Any] = {}
        """Tensors of the look before, by tap."""
        self._described: set[str] = set()
        """Aggregations whose figures were described in an event."""
        self._last_account = 0
        self._ignored = 0
        """Bytes from hosts that may only read, or without the token."""

    @property
    def host(self) -> Host:
        """The host's side; available once a model is attached."""
        assert self._host is not None
        return self._host

    def __deepcopy__(self, memo: dict[int, Any]) -> "TrainingInstrument":
        return self  # a model that is copied is watched by the same instrument

    def attach(self, model: Any, optimizer: Any, step: int) -> None:
        """Wire the taps to a model.

        Raises:
            ConfigError: a pattern matches no layer, or the hardware is too small for the aggregations.
        """
        wires = wire_taps(self.instrument, self._layers_of(model))
        self._model, self._optimizer = model, optimizer
        self._first_step = step
        self._host = Host(self.chip.hardware, wires)
        parameters = dict(model.named_parameters())
        for wire in wires:
            self._wires.setdefault((wire.layer, wire.role), []).append(wire)
            owned = [value for name, value in parameters.items() if name.rpartition(".")[0] == wire.layer]
            matrices = [value for value in owned if value.dim() > 1]
            if matrices:
                self._parameters[wire.tap] = matrices[0]
        for wire in wires:
            self._check_pair(wire, wire.aggregation)
        self._open_links(step)
        self._exchange(step)
        self._pairs = self.host.pairs()
        address = {} if self._server is None else {"address": self._server.address}
        if self._server is not None and self._server.needs_token and TOKEN_VARIABLE not in os.environ:
            address["token_file"] = TOKEN_FILE
        self._event(InstrumentStarted, taps=describe(wires), first_step=step, step_s=self._step_s, **address)
        self._describe_aggregations()
        for wire in wires:
            if wire.role in ("weight", "gradient") and wire.tap in self._parameters:
                self._measure(wire, self._sample(wire, self._parameters[wire.tap], wire.vectors))
        if step:
            self._resume(step)

    def _open_links(self, step: int) -> None:
        if self._stream_file is not None:
            file = self._stream_file
            if step:  # a resumed run starts a stream of its own
                file = file.with_stem(f"{file.stem}-from{step}")
            file.unlink(missing_ok=True)
            self.links.append(FileLink(write=file))
        if self.instrument.listen is not None:
            self._server = SocketServer(self.instrument.listen, token=self._token())
            self.links.append(self._server)

    def _token(self) -> str | None:
        """The token that hosts need to send images; None where only this machine can connect, or nobody may."""
        listen = self.instrument.listen
        if not self.instrument.accept_images or listen is None or is_loopback(parse_address(listen)[0]):
            return None
        return server_token(self._token_file)

    def _resume(self, step: int) -> None:
        """Repeat the commands that were given before a step, then continue from the checkpoint's state."""
        for command in self._commands.pending(step - 1) if self._commands is not None else ():
            self._answer(command, step)
        state = self._resumed_state
        if state is None:
            return
        self.host.restore(state["host"])
        self._exchange(step)
        self._previous = {tap: _array(value) for tap, value in state["previous"].items()}
        self.chip.restore(state["chip"], state["frames"])

    def state_dict(self) -> dict[str, Any]:
        """State between two steps, for a checkpoint."""
        previous = {tap: torch.from_numpy(value) for tap, value in self._previous.items()}
        return {
            "frames": self._frames, "chip": self.chip.state(), "host": self.host.state(), "previous": previous,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state once a model is attached."""
        self._resumed_state = state

    def before_step(self, step: int) -> None:
        """Carry out new commands; learning rates take effect now.

        Raises:
            ConfigError: no model is attached.
        """
        if self._host is None:
            raise ConfigError("the instrument has no model: call attach(model, optimizer, step) before the first step")
        self._begun = step
        self._offers = 0
        self._seen.clear()
        for command in self._commands.pending(step) if self._commands is not None else ():
            self._answer(command, step)
        self._receive_images(step)
        self._before.clear()
        for tap, source in self._pairs.items():
            if source == "update" and self.chip.is_due(tap, step - self._first_step):
                self._before[tap] = _array(self._parameters[tap]).copy()

    def __call__(self, step: int, layer: str, role: Any, tensor: Any) -> None:
        """Offer a training tensor to the chip if it is tapped; only the first of a layer and role in a step."""
        self._is_observing = True
        frame = step - self._first_step
        for wire in self._due_wires(layer, role, frame):
            source = self._pairs.get(wire.tap)
            if source is None:
                self._offer(wire, frame, tensor, None)
            elif source == "previous":
                previous, now = self._previous.get(wire.tap), _array(tensor).copy()
                self._previous[wire.tap] = now
                if previous is not None and previous.shape == now.shape:
                    self._offer(wire, frame, previous, now)
                else:
                    self.chip.use_turn(wire.tap, frame)

    @property
    def wants_pairs(self) -> bool:
        """Whether a tap compares tensors before and after rounding."""
        return "rounding" in self._pairs.values()

    def pair(self, step: int, layer: str, role: Any, before: Any, after: Any) -> None:
        """Offer a tensor before and after rounding to the chip if it is tapped for that."""
        self._is_observing = True
        frame = step - self._first_step
        for wire in self._due_wires(layer, role, frame):
            if self._pairs.get(wire.tap) == "rounding":
                self._offer(wire, frame, before, after)

    def _due_wires(self, layer: str, role: Any, frame: int) -> list[Wire]:
        """Wires to a tensor that are due in this step and have not seen one yet."""
        wires = self._wires.get((layer, role), ())
        return [wire for wire in wires if wire.tap not in self._seen and self.chip.is_due(wire.tap, frame)]

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        """Pass the step's packets to the host and its readings to the events.

        Raises:
            ConfigError: the step did not begin with `before_step`, or no tensor was shown that the taps need.
        """
        if self._begun != step:
            raise ConfigError(f"step {step} ends, but before_step({step}) was not called")
        if not self._is_observing and any(self._pairs.get(tap) != "update" for tap in self.host.wires):
            raise ConfigError("the instrument sees no tensors: give it to emulate_ as one of its observers")
        self._begun = None
        frame = step - self._first_step
        self._frames = frame + 1
        for tap, before in self._before.items():
            after = _array(self._parameters[tap])
            self._offer(self.host.wires[tap], frame, after - before, before)
        self._exchange(step)
        return facts

    def finish(self) -> None:
        """Flush and close all links."""
        if self._host is None:
            return
        self.chip.finish()
        self._exchange(self._last_account, final=True)
        self._event(InstrumentEnded)
        for link in self.links:
            link.close()

    def _offer(self, wire: Wire, frame: int, tensor: Any, other: Any) -> None:
        if 0 in tensor.shape:
            return
        self._seen.add(wire.tap)
        step = frame + self._first_step
        at_s = (step + self._offers / (len(self.host.wires) + 1)) * self._step_s
        self._offers += 1
        if self._engine is not None and hasattr(self._engine, "step"):
            self._engine.step = step

        def make() -> Vectors:
            hardware = self.chip.hardware
            vectors = wire.vectors if wire.vectors == "all" or other is None else max(1, wire.vectors // 2)
            parts = [self._sample(wire, part, vectors) for part in (tensor, other) if part is not None]
            self._measure(wire, parts[0])
            words = [to_words(hardware, part.values) for part in parts]
            return (
                cut_tensor(words[0], hardware.lanes) if other is None else cut_pair(words[0], words[1], hardware.lanes)
            )

        self.chip.offer(wire.tap, frame, at_s, make)

    def _sample(self, wire: Wire, tensor: Any, vectors: int | Literal["all"]) -> TapSample:
        return sample(_array(tensor), wire.role, self.chip.hardware.lanes, vectors)

    def _measure(self, wire: Wire, offered: TapSample) -> None:
        """Tell the host the shape that is offered, and warn of counts that may be too large before any comes."""
        values = offered.values
        if not values.size:
            return
        shape = Shape(values.size, values.shape[1], offered.share)
        self.host.shapes[wire.tap] = shape
        named_warning = self.host.count_warning(wire.tap, shape)
        if named_warning is not None:
            aggregation, warning = named_warning
            self._event(InstrumentWarning, tap=wire.name, aggregation=aggregation, **warning._asdict())

    def _describe_aggregations(self) -> None:
        """Tell how the figures of aggregations that are new in this stream are drawn."""
        for event in describe_aggregations_of(self.host.aggregations().values(), self._described):
            self._event(InstrumentAggregation, **event)

    def _exchange(self, step: int, *, final: bool = False) -> None:
        """Pass images one way and packets the other until both sides are quiet."""
        self.readings = []
        while True:
            self.chip.receive(self.host.take())
            packets = self.chip.take()
            if not packets:
                break
            for link in self.links:
                link.send(packets)
            for reading in self.host.feed(packets):
                self.readings.append(reading)
                self._event(InstrumentReading, step=self._first_step + reading.frame, **reading.fields())
        if LEARNING_RATE in self.chip.written:
            self._set_learning_rate(_float_of(self.chip.controls[LEARNING_RATE]))
        self.chip.written.clear()
        if final or step - self._last_account >= ACCOUNT_EVERY:
            self._last_account = step
            ignored = {"ignored_bytes": self._ignored} if self._ignored else {}
            self._event(InstrumentLosses, step=step, **account(self.host, self.chip.reasons), **ignored)

    def _receive_images(self, step: int) -> None:
        """Pass images from hosts on the socket to the chip, which takes or refuses them and reports that in its status.

        If the design does not accept images, these bytes are counted and ignored.
        """
        if self._server is None:
            return
        images = self._server.receive()
        self._ignored += self._server.refused_bytes
        self._server.refused_bytes = 0
        if not self.instrument.accept_images:
            self._ignored += len(images)
        elif images:
            self.chip.receive(images)
            self._exchange(step)

    def _answer(self, command: Command, step: int) -> None:
        try:
            message = self._carry_out(command)
            ticket = self.host.last_ticket
            self._exchange(step)
            if ticket.refusal is not None:
                raise ConfigError(f"the chip refused the image: {ticket.refusal}")
            if command.streams and self.stream not in command.streams:
                message = f"as before the run was resumed: {message}"
            ok = True
        except ConfigError as error:
            ok, message = False, str(error)
        self._pairs = self.host.pairs()
        self._event(
            InstrumentAnswer, command=command.id, ok=ok, step=step, message=message, request=to_builtins(command)
        )
        self._describe_aggregations()

    def _carry_out(self, command: Command) -> str:
        if command.verb == "program" and command.aggregation is not None:
            for wire in self.host.wires_named(command.tap or ""):
                self._check_pair(wire, command.aggregation)
        return carry_out(self.host, command)

    def _check_pair(self, wire: Wire, aggregation: str) -> None:
        """Raise if an aggregation needs pairs that a tap cannot have."""
        source = AGGREGATIONS.load(aggregation).pairs
        if source is None:
            return
        tensor = f"{wire.role} of {wire.layer}"
        with located(f'tap "{wire.name}"'):
            check_pair_source(source, aggregation, tensor, wire.role, has_parameter=wire.tap in self._parameters)
            if source == "rounding" and self._format_of is not None:
                rounded = self._format_of(self._model, wire.layer, wire.role)
                check_rounding(aggregation, tensor, rounded, self.chip.hardware.element)

    def _set_learning_rate(self, value: float) -> None:
        for group in self._optimizer.param_groups if self._optimizer is not None else ():
            group["lr"] = value

    def _event(self, kind: type[InstrumentEvent], **fields: Any) -> None:
        self._emit(kind(stream=self.stream, **fields))


def carry_out(host: Host, command: Command) -> str:
    """Order what a command asks for; returns a sentence about it.

    Raises:
        ConfigError: the command is not possible; nothing was sent.
    """
    match command.verb:
        case "program":
            return host.program(
                command.tap or "", command.aggregation, command.options,
                chains=command.chains, boundaries=command.boundaries,
            )  # fmt: skip
        case "ranges":
            return host.set_ranges(command.tap or "", command.boundaries or [])
        case "sample":
            return host.sample(command.tap or "", command.every or 0)
        case "learning_rate":
            host.control(LEARNING_RATE, learning_rate_bits(command.value))
            return f"learning rate {command.value:g}, in control register {LEARNING_RATE}"


def describe_aggregations_of(built: Iterable[BuiltAggregation], described: set[str]) -> list[dict[str, Any]]:
    """Fields of an `instrument_aggregation` event for each aggregation not yet in `described`, which grows."""
    records = {aggregation.name: aggregation.record for aggregation in built if aggregation.name not in described}
    described.update(records)
    return [{"aggregation": name, "figures": msgspec.to_builtins(record.figures)} for name, record in records.items()]


def account(host: Host, reasons: Sequence[Mapping[str, int]] | None = None) -> dict[str, Any]:
    """Fields of an `instrument_losses` event; `reasons` has the reasons for dropped frames of each tap, if known."""
    losses = host.losses
    names = ("delivered", "dropped", "missing", "torn")
    taps = {}
    for tap, wire in host.wires.items():
        known = UNSET if reasons is None or not reasons[tap] else dict(reasons[tap])
        taps[wire.name] = TapLosses(**{name: getattr(losses.taps[tap], name) for name in names}, reasons=known)
    counts = {name: getattr(losses, name) for name in ("bytes", "packets", "bad_packets", "skipped_bytes")}
    return {"taps": taps, **counts, "lost_packets": losses.lost_packets, "undecodable": host.undecodable}


def describe(wires: Iterable[Wire]) -> list[TapInfo]:
    """The taps, as an `InstrumentStarted` event lists them."""
    return [TapInfo(name=wire.name, group=wire.group, tap=wire.tap, layer=wire.layer, role=wire.role) for wire in wires]


def _array(tensor: Any) -> Any:
    """A torch tensor as a numpy array, which may share its memory."""
    return tensor if not hasattr(tensor, "detach") else tensor.detach().cpu().numpy()


def _float_of(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value
