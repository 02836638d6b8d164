"""The instrument of a design in a training that is emulated: taps on tensors, frames through the chip, events out."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from presilicon.base.errors import ConfigError
from presilicon.designs import Instrument
from presilicon.formats import Format, parse
from presilicon.instrument.aggregation_pairs import shows_rounding
from presilicon.instrument.control import Command, learning_rate_bits
from presilicon.instrument.engine import Engine
from presilicon.instrument.host import Host, Reading, Shape
from presilicon.instrument.link import FileLink, Link, SocketServer
from presilicon.instrument.session import Chip, Vectors
from presilicon.instrument.taps import Sample, Wire, sample, wire
from presilicon.instrument.tensors import cut_pair, cut_tensor
from presilicon.instrument.words import to_words
from presilicon.records import StepFacts

LEARNING_RATE = 0
"""The control register that holds the learning rate, as the bits of a float32."""
ACCOUNT_EVERY = 100
"""Steps between two events about losses."""
DEFAULT_STEP_S = 1e-3

Emit = Callable[[dict[str, Any]], None]


class CommandSource(Protocol):
    """Where commands come from: a file that grows, or a list of what was once asked."""

    def pending(self, step: int) -> Sequence[Command]:
        """Those that are new at a step."""
        ...


class TrainingInstrument:
    """An observer and a training hook: give it to `train` as both.

    Tensors that the design taps go through the chip, at its own rate; the chip's packets go to the host and come back
    to `emit` as events. Commands are done between two steps. Training itself is not touched, unless a learning rate is
    set; a host that hangs up on the socket or a stream that cannot be written stops nothing. Its state goes into the
    run's checkpoints, so that what is resumed is seen as if it had never been broken off.
    """

    only_looks_on: Literal[True] = True
    """A run that was kept without it can go on with it."""

    def __init__(
        self,
        instrument: Instrument,
        *,
        layers_of: Callable[[Any], Sequence[str]],
        emit: Emit,
        step_s: float | None = None,
        format_of: Callable[[str, str], Format] | None = None,
        commands: Callable[[str], CommandSource] | None = None,
        stream_file: Path | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.instrument = instrument
        self.stream = uuid4().hex[:12]
        """By which commands and events know this training."""
        self.chip = Chip(instrument, engine)
        self.readings: list[Reading] = []
        """Of the last step."""
        self._engine = engine
        self._layers_of = layers_of
        self._format_of = format_of
        self._emit = emit
        self._step_s = instrument.step_s or step_s or DEFAULT_STEP_S
        self._commands = None if commands is None else commands(self.stream)
        self.links: list[Link] = []
        """Where the packets go, beside the host."""
        self._stream_file = stream_file
        self._server: SocketServer | None = None
        self._wires: dict[tuple[str, str], list[Wire]] = {}
        self._parameters: dict[int, Any] = {}
        self._optimizer: Any = None
        self._host: Host | None = None
        self._first_step = 0
        self._frames = 0
        """Steps that were watched."""
        self._kept: dict[str, Any] | None = None
        """The state from which it goes on."""
        self._offers = 0
        self._seen: set[int] = set()
        self._pairs: dict[int, str] = {}
        """The aggregation of each tap that looks at two tensors."""
        self._before: dict[int, Any] = {}
        self._previous: dict[int, Any] = {}
        self._told_at = 0
        self._ignored = 0
        """Bytes from hosts that may only read."""

    @property
    def host(self) -> Host:
        """The host's side, once training has begun."""
        assert self._host is not None
        return self._host

    def __deepcopy__(self, memo: dict[int, Any]) -> "TrainingInstrument":
        return self  # a model that is copied is watched by the same instrument

    def attach(self, model: Any, optimizer: Any, step: int) -> None:
        """Wire the taps to a model.

        Raises:
            ConfigError: a pattern matches no layer, or the hardware is too small for what is asked of it.
        """
        wires = wire(self.instrument, self._layers_of(model))
        self._optimizer = optimizer
        self._first_step = step
        self._host = Host(self.chip.hardware, wires)
        parameters = dict(model.named_parameters())
        for each in wires:
            self._wires.setdefault((each.layer, each.role), []).append(each)
            owned = [value for name, value in parameters.items() if name.rpartition(".")[0] == each.layer]
            matrices = [value for value in owned if value.dim() > 1]
            if matrices:
                self._parameters[each.tap] = matrices[0]
        for each in wires:
            self._check_pair(each)
        if self._stream_file is not None:
            # A run that is taken up again begins a stream of its own.
            kept = (
                self._stream_file if step == 0 else self._stream_file.with_stem(f"{self._stream_file.stem}-from{step}")
            )
            kept.unlink(missing_ok=True)
            self.links.append(FileLink(write=kept))
        if self.instrument.listen is not None:
            self._server = SocketServer(self.instrument.listen)
            self.links.append(self._server)
        self._exchange(step)
        self._pairs = self.host.pairs()
        address = {} if self._server is None else {"address": self._server.address}
        self._event("instrument_started", taps=describe(wires), first_step=step, step_s=self._step_s, **address)
        for each in wires:
            if each.role in ("weight", "gradient") and each.tap in self._parameters:
                self._measure(each, self._sample(each, self._parameters[each.tap], each.vectors))
        if step:
            self._resume(step)

    def _resume(self, step: int) -> None:
        """Do again what was asked before a step; then go on where the checkpoint was."""
        for command in self._commands.pending(step - 1) if self._commands is not None else ():
            self._answer(command, step)
        if self._kept is None:
            return
        self.host.go_on(self._kept["host"])
        self._exchange(step)
        self._previous = {tap: _array(value) for tap, value in self._kept["previous"].items()}
        self.chip.go_on(self._kept["chip"], self._kept["frames"])

    def state_dict(self) -> dict[str, Any]:
        """What is carried from step to step, for a checkpoint between two of them."""
        import torch

        previous = {tap: torch.from_numpy(value) for tap, value in self._previous.items()}
        return {
            "frames": self._frames, "chip": self.chip.state(), "host": self.host.state(), "previous": previous,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, once a model is attached."""
        self._kept = state

    def before_step(self, step: int) -> None:
        """Do what was asked for; learning rates take effect now."""
        self._offers = 0
        self._seen.clear()
        for command in self._commands.pending(step) if self._commands is not None else ():
            self._answer(command, step)
        self._obey_links(step)
        self._before.clear()
        for tap, pair in self._pairs.items():
            if pair == "update_ratio" and self.chip.is_due(tap, step - self._first_step):
                self._before[tap] = _array(self._parameters[tap]).copy()

    def __call__(self, step: int, layer: str, role: Any, tensor: Any) -> None:
        """A tensor of training: offered if it is tapped, the first of its kind in a step."""
        for each in self._wires.get((layer, role), ()):
            frame = step - self._first_step
            if each.tap in self._seen or not self.chip.is_due(each.tap, frame):
                continue
            pair = self._pairs.get(each.tap)
            if pair is None:
                self._offer(each, frame, tensor, None)
            elif pair == "correlation":
                previous, now = self._previous.get(each.tap), _array(tensor).copy()
                self._previous[each.tap] = now
                if previous is not None and previous.shape == now.shape:
                    self._offer(each, frame, previous, now)
                else:
                    self.chip.use_turn(each.tap, frame)

    @property
    def wants_pairs(self) -> bool:
        """Whether a tap looks at rounding."""
        return "quantization_error" in self._pairs.values()

    def pair(self, step: int, layer: str, role: Any, before: Any, after: Any) -> None:
        """A tensor before and after rounding."""
        for each in self._wires.get((layer, role), ()):
            frame = step - self._first_step
            if each.tap in self._seen or not self.chip.is_due(each.tap, frame):
                continue
            if self._pairs.get(each.tap) == "quantization_error":
                self._offer(each, frame, before, after)

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        """The step's packets to the host, and what it makes of them to the events."""
        frame = step - self._first_step
        self._frames = frame + 1
        for tap, before in self._before.items():
            after = _array(self._parameters[tap])
            self._offer(self.host.wires[tap], frame, after - before, before)
        self._exchange(step)
        return facts

    def finish(self) -> None:
        """Training is over: tell the last of it and hang up."""
        if self._host is None:
            return
        self.chip.finish()
        self._exchange(self._told_at, final=True)
        self._event("instrument_ended")
        for link in self.links:
            link.close()

    def _offer(self, each: Wire, frame: int, tensor: Any, other: Any) -> None:
        if 0 in tensor.shape:
            return
        self._seen.add(each.tap)
        step = frame + self._first_step
        at_s = (step + self._offers / (len(self.host.wires) + 1)) * self._step_s
        self._offers += 1
        if self._engine is not None and hasattr(self._engine, "step"):
            self._engine.step = step

        def make() -> Vectors:
            hardware = self.chip.hardware
            half = each.vectors if each.vectors == "all" or other is None else max(1, each.vectors // 2)
            parts = [self._sample(each, part, half) for part in (tensor, other) if part is not None]
            self._measure(each, parts[0])
            words = [to_words(hardware, part.values) for part in parts]
            return (
                cut_tensor(words[0], hardware.lanes) if other is None else cut_pair(words[0], words[1], hardware.lanes)
            )

        self.chip.offer(each.tap, frame, at_s, make)

    def _sample(self, each: Wire, tensor: Any, vectors: int | Literal["all"]) -> Sample:
        return sample(_array(tensor), each.role, self.chip.hardware.lanes, vectors)

    def _measure(self, each: Wire, offered: Sample) -> None:
        """Tell the host what is offered, and the user of counts that may be too large, before any comes."""
        values = offered.values
        if not values.size:
            return
        shape = Shape(values.size, values.shape[1], offered.share)
        self.host.shapes[each.tap] = shape
        found = self.host.doubt(each.tap, shape)
        if found is not None:
            name, why = found
            self._event("instrument_warning", tap=each.name, aggregation=name, **why._asdict())

    def _exchange(self, step: int, *, final: bool = False) -> None:
        """Images one way and packets the other, until both sides have said what they had to say."""
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
                self._event("instrument", step=self._first_step + reading.frame, **reading.to_plain())
        if LEARNING_RATE in self.chip.written:
            self._set_learning_rate(_float_of(self.chip.controls[LEARNING_RATE]))
        self.chip.written.clear()
        if final or step - self._told_at >= ACCOUNT_EVERY:
            self._told_at = step
            ignored = {"ignored_bytes": self._ignored} if self._ignored else {}
            self._event("instrument_losses", step=step, **account(self.host, self.chip.reasons), **ignored)

    def _obey_links(self, step: int) -> None:
        """Images that hosts on the socket sent: the chip takes or refuses them, and its status tells everybody.

        Where the design does not accept images, what they send is counted and passed over.
        """
        if self._server is None:
            return
        images = self._server.receive()
        if not self.instrument.accept_images:
            self._ignored += len(images)
        elif images:
            self.chip.receive(images)
            self._exchange(step)

    def _answer(self, command: Command, step: int) -> None:
        try:
            message = self._obey(command)
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
        self._event("instrument_answer", command=command.id, ok=ok, step=step, message=message, request=command)

    def _obey(self, command: Command) -> str:
        if command.verb == "program":
            for each in self.host.named(command.tap or ""):
                self._check_pair(each, command.aggregation)
        return obey(self.host, command)

    def _check_pair(self, each: Wire, asked: str | None = None) -> None:
        name = asked or each.aggregation
        if name == "update_ratio" and (each.role != "weight" or each.tap not in self._parameters):
            raise ConfigError(
                f'tap "{each.name}": update_ratio is about weights and their updates, but the tap is on the '
                f'{each.role} of {each.layer}: tap it with role = "weight"'
            )

        if name == "quantization_error" and self._format_of is not None:
            self._check_rounding(each, self._format_of(each.layer, each.role))

    def _check_rounding(self, each: Wire, rounded: Format) -> None:
        if rounded == parse("float32"):
            raise ConfigError(
                f'tap "{each.name}": quantization_error is about rounding, but the design\'s numerics leave the '
                f"{each.role} of {each.layer} in float32"
            )
        element = self.chip.hardware.element
        if not shows_rounding(element, rounded):
            raise ConfigError(
                f'tap "{each.name}": quantization_error would show nothing: the instrument\'s element {element} rounds '
                f"the {each.role} of {each.layer} as coarsely as its format {rounded} does; set a finer element in "
                '[instrument.hardware], as element = "float32"'
            )

    def _set_learning_rate(self, value: float) -> None:
        for group in self._optimizer.param_groups if self._optimizer is not None else ():
            group["lr"] = value

    def _event(self, event: str, **fields: Any) -> None:
        self._emit({"event": event, "stream": self.stream, **fields})


def obey(host: Host, command: Command) -> str:
    """Have the host send what a command asks for; a sentence that says what it was.

    Raises:
        ConfigError: it cannot be; nothing was sent.
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


def account(host: Host, reasons: Sequence[Mapping[str, int]] | None = None) -> dict[str, Any]:
    """What got lost so far, as the fields of an event, and why frames of each tap were dropped, where it is known."""
    losses = host.losses
    names = ("delivered", "dropped", "missing", "torn")
    taps: dict[str, dict[str, Any]] = {}
    for tap, each in host.wires.items():
        taps[each.name] = {name: getattr(losses.taps[tap], name) for name in names}
        if reasons is not None and reasons[tap]:
            taps[each.name]["reasons"] = dict(reasons[tap])
    counts = {name: getattr(losses, name) for name in ("bytes", "packets", "bad_packets", "skipped_bytes")}
    return {"taps": taps, **counts, "lost_packets": losses.lost_packets, "undecodable": host.undecodable}


def describe(wires: Iterable[Wire]) -> list[dict[str, Any]]:
    """The taps, as `instrument_started` tells them."""
    return [
        {"name": each.name, "group": each.group, "tap": each.tap, "layer": each.layer, "role": each.role}
        for each in wires
    ]


def _array(tensor: Any) -> Any:
    """A torch tensor as a numpy array, which may share its memory."""
    return tensor if not hasattr(tensor, "detach") else tensor.detach().cpu().numpy()


def _float_of(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value
