"""A host at the end of a link: what a board's instrument sends becomes events, and commands become images."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from presilicon.base.errors import ConfigError
from presilicon.designs import Instrument
from presilicon.instrument.control import Command
from presilicon.instrument.host import Host, Reading, Ticket
from presilicon.instrument.link import FileLink, Link
from presilicon.instrument.sending import Clock
from presilicon.instrument.taps import wire
from presilicon.instrument.training import CommandSource, Emit, account, describe, obey


class _Asked(NamedTuple):
    """A command whose image is on its way."""

    command: Command
    message: str
    """Where it is carried out."""
    ticket: Ticket


class Listener:
    """Reads one instrument over a link; call `poll` now and then.

    It programs the taps when it starts, and appends the bytes that come to the file `keep`, if there is one. A frame's
    number is taken for the training step: the circuit offers one frame of each tap in each step.
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
        self.host = Host(instrument.built, wire(instrument, layers), clock=clock)
        self.is_quiet = False
        """Whether nothing came at the last look."""
        self._link = link
        self._kept = None if keep is None else FileLink(write=keep)
        self._emit = emit
        self._commands = None if commands is None else commands(self.stream)
        self._step = 0
        self._breaks = 0
        self._asked: deque[_Asked] = deque()
        self._event("instrument_started", taps=describe(self.host.wires.values()), first_step=0)
        self._link.send(self.host.take())

    def poll(self) -> int:
        """Take in what came and do what was asked; how many frames there were."""
        for command in self._commands.pending(self._step) if self._commands is not None else ():
            self._ask(command)
        breaks = getattr(self._link, "breaks", 0)
        if breaks != self._breaks:
            self._breaks = breaks
            self.host.disconnected()
        data = self._link.receive()
        self.is_quiet = not data
        if self._kept is not None:
            self._kept.send(data)
        readings = self.host.feed(data)
        self._show(readings)
        self._link.send(self.host.take())
        self._answer()
        return len(readings)

    def finish(self) -> None:
        """No more of it: tell what got lost."""
        self._show(self.host.finish())
        self._answer()
        for command, _, _ in self._asked:
            self._tell(command, False, "listening ended before the chip said what became of the image")
        self._event("instrument_losses", step=self._step, **account(self.host))
        self._event("instrument_ended")
        self._link.close()

    def _show(self, readings: Sequence[Reading]) -> None:
        for reading in readings:
            self._step = max(self._step, reading.frame)
            self._event("instrument", step=reading.frame, **reading.to_plain())

    def _ask(self, command: Command) -> None:
        try:
            message = obey(self.host, command)
        except ConfigError as error:
            self._tell(command, False, str(error))
            return
        self._asked.append(_Asked(command, message, self.host.last_ticket))
        self._link.send(self.host.take())

    def _answer(self) -> None:
        """To each command, when the chip's status has said what became of its image; they go one after the other."""
        while self._asked and self._asked[0].ticket.is_settled:
            command, message, ticket = self._asked.popleft()
            refused = ticket.refusal
            self._tell(command, refused is None, f"the chip refused the image: {refused}" if refused else message)

    def _tell(self, command: Command, ok: bool, message: str) -> None:
        self._event("instrument_answer", command=command.id, ok=ok, step=self._step, message=message, request=command)

    def _event(self, event: str, **fields: Any) -> None:
        self._emit({"event": event, "stream": self.stream, **fields})
