"""A host at the end of a link: frames of a board's instrument become events, and commands become images."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from msgspec import to_builtins

from presilicon.base import ConfigError
from presilicon.designs import Instrument
from presilicon.instrument.host.control import Command
from presilicon.instrument.host.host import Host, Ticket
from presilicon.instrument.host.link import FileLink, Link
from presilicon.instrument.host.reading import Reading
from presilicon.instrument.host.sender import Clock
from presilicon.instrument.host.taps import wire_taps
from presilicon.instrument.host.training import (
    CommandSource,
    Emit,
    account,
    carry_out,
    describe,
    describe_aggregations_of,
)
from presilicon.records import (
    InstrumentAggregation,
    InstrumentAnswer,
    InstrumentEnded,
    InstrumentEvent,
    InstrumentLosses,
    InstrumentReading,
    InstrumentStarted,
)


class _PendingCommand(NamedTuple):
    """A command whose image is on its way."""

    command: Command
    message: str
    """The answer if it is carried out."""
    ticket: Ticket


class Listener:
    """Reads one instrument over a link; call `poll` repeatedly.

    It programs the taps when it starts, and appends the bytes it receives to the file `keep`, if there is one. A
    frame's number is taken for the training step: the circuit offers one frame of each tap in each step.
    """

    def __init__(
        self,
        instrument: Instrument,
        layers: Sequence[str],
        link: Link,
        *,
        emit: Emit,
        commands: Callable[[str], CommandSource] | None = None,
        keep: Path | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.stream = uuid4().hex[:12]
        self.host = Host(instrument.built, wire_taps(instrument, layers), clock=clock)
        self.is_quiet = False
        """Whether the last poll received nothing."""
        self._link = link
        self._record = None if keep is None else FileLink(write=keep)
        self._emit = emit
        self._commands = None if commands is None else commands(self.stream)
        self._step = 0
        self._breaks = 0
        self._pending: deque[_PendingCommand] = deque()
        self._described: set[str] = set()
        self._event(InstrumentStarted, taps=describe(self.host.wires.values()), first_step=0)
        self._describe_aggregations()
        self._link.send(self.host.take())

    def poll(self) -> int:
        """Read new bytes and carry out new commands; returns the number of frames."""
        for command in self._commands.pending(self._step) if self._commands is not None else ():
            self._order(command)
        breaks = getattr(self._link, "breaks", 0)
        if breaks != self._breaks:
            self._breaks = breaks
            self.host.disconnected()
        data = self._link.receive()
        self.is_quiet = not data
        if self._record is not None:
            self._record.send(data)
        readings = self.host.feed(data)
        self._show(readings)
        self._link.send(self.host.take())
        self._answer()
        return len(readings)

    def finish(self) -> None:
        """Emit the final account and close the link."""
        self._show(self.host.finish())
        self._answer()
        for command, _, _ in self._pending:
            self._tell(command, False, "listening ended before the chip answered the image")
        self._event(InstrumentLosses, step=self._step, **account(self.host))
        self._event(InstrumentEnded)
        self._link.close()

    def _show(self, readings: Sequence[Reading]) -> None:
        for reading in readings:
            self._step = max(self._step, reading.frame)
            self._event(InstrumentReading, step=reading.frame, **reading.fields())

    def _order(self, command: Command) -> None:
        try:
            message = carry_out(self.host, command)
        except ConfigError as error:
            self._tell(command, False, str(error))
            return
        self._pending.append(_PendingCommand(command, message, self.host.last_ticket))
        self._link.send(self.host.take())

    def _answer(self) -> None:
        """Answer each command once the chip has taken or refused its image; images go one after the other."""
        while self._pending and self._pending[0].ticket.is_settled:
            command, message, ticket = self._pending.popleft()
            refused = ticket.refusal
            self._tell(command, refused is None, f"the chip refused the image: {refused}" if refused else message)

    def _tell(self, command: Command, ok: bool, message: str) -> None:
        self._event(
            InstrumentAnswer, command=command.id, ok=ok, step=self._step, message=message, request=to_builtins(command)
        )
        self._describe_aggregations()

    def _describe_aggregations(self) -> None:
        for event in describe_aggregations_of(self.host.aggregations().values(), self._described):
            self._event(InstrumentAggregation, **event)

    def _event(self, kind: type[InstrumentEvent], **fields: Any) -> None:
        self._emit(kind(stream=self.stream, **fields))
