"""A board at the end of a serial line: programmed, read, given orders, and its broken bytes accounted for."""

import os
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins

from oracles.loopback import Loopback
from presilicon.designs import Hardware, Instrument, Tap
from presilicon.formats import parse
from presilicon.instrument import to_words
from presilicon.instrument.host.control import Command
from presilicon.instrument.host.link import SerialLink
from presilicon.instrument.host.listener import Listener
from presilicon.instrument.host.tensors import cut_tensor
from presilicon.instrument.model.chip import Chip
from presilicon.records import InstrumentEvent

HARDWARE = Hardware(lanes=8, ranges=8, taps=2, element=parse("bfloat16"), accumulator_bits=32, range_rows=16)
INSTRUMENT = Instrument(hardware=HARDWARE, taps=(Tap(name="in", layers="*", every=1),))


def plain(events: list[dict[str, Any]]) -> Callable[[InstrumentEvent], None]:
    """Appends events to a list as plain data."""
    return lambda event: events.append(to_builtins(event))


@contextmanager
def board(flip_every: int = 0) -> Iterator[tuple[str, Chip]]:
    """A chip at the other end of a pseudo terminal, which offers a frame of ones for each tap again and again."""
    chip_end, host_end = os.openpty()
    tty.setraw(chip_end)
    os.set_blocking(chip_end, False)
    chip = Chip(INSTRUMENT)
    done = threading.Event()

    def work() -> None:
        frame = sent = 0
        while not done.is_set():
            with suppress(BlockingIOError):
                chip.receive(os.read(chip_end, 4096))
            for tap in range(2):
                words = to_words(HARDWARE, np.full((4, 8), tap + 1.0))
                chip.offer(tap, frame, frame * 1e-3 + tap * 5e-4, lambda words=words: cut_tensor(words, 8))
            frame += 1
            data = bytearray(chip.take())
            sent += 1
            if data and flip_every and sent % flip_every == 0:
                data[len(data) // 2] ^= 0x10
            while data and not done.is_set():
                try:
                    del data[: os.write(chip_end, data)]
                except BlockingIOError:
                    time.sleep(0.001)
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield os.ttyname(host_end), chip
    finally:
        done.set()
        thread.join()
        os.close(chip_end)
        os.close(host_end)


class Once:
    """Commands that are there at the first look."""

    def __init__(self, *commands: Command) -> None:
        self.commands = list(commands)

    def pending(self, step: int) -> list[Command]:
        found, self.commands = self.commands, []
        return found


def listen(port: str, until: Any, *commands: Command) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    link = SerialLink(port, 3_000_000)
    listener = Listener(
        INSTRUMENT,
        ["a", "b"],
        link,
        emit=plain(events),
        commands=lambda stream: Once(*commands),
    )
    deadline = time.monotonic() + 30
    while not until(events):
        assert time.monotonic() < deadline
        if not listener.poll():
            time.sleep(0.002)
    listener.finish()
    return events


def readings(events: list[dict[str, Any]], tap: str) -> list[dict[str, Any]]:
    return [each for each in events if each["event"] == "instrument" and each["tap"] == tap]


def test_a_board_is_programmed_and_read() -> None:
    with board() as (port, _):
        events = listen(port, lambda events: len(readings(events, "in.b")) > 20)
    assert events[0]["event"] == "instrument_started"
    assert {each["values"]["sum"] for each in readings(events, "in.a")} == {32.0}
    assert {each["values"]["sum"] for each in readings(events, "in.b")} == {64.0}
    account = events[-2]
    assert (account["event"], account["lost_packets"], account["bad_packets"]) == ("instrument_losses", 0, 0)


def test_orders_are_answered_when_the_chip_has_taken_them() -> None:
    good = Command(id="1", streams=(), verb="program", tap="in.a", aggregation="gradient_norm")
    bad = Command(id="2", streams=(), verb="program", tap="in.a", aggregation="gradient_nrom")
    rate = Command(id="3", streams=(), verb="learning_rate", value=0.5)

    def done(events: list[dict[str, Any]]) -> bool:
        answers = sum(each["event"] == "instrument_answer" for each in events)
        return answers == 3 and any(each["aggregation"] == "gradient_norm" for each in readings(events, "in.a"))

    with board() as (port, chip):
        events = listen(port, done, good, bad, rate)
        assert chip.controls[0] == 0x3F000000
    answers = {each["command"]: each for each in events if each["event"] == "instrument_answer"}
    assert (answers["1"]["ok"], answers["2"]["ok"], answers["3"]["ok"]) == (True, False, True)
    norms = [each for each in readings(events, "in.a") if each["aggregation"] == "gradient_norm"]
    assert norms[0]["values"]["norm"] == pytest.approx(32**0.5)


class Desk:
    """A chip and a listener, whose bytes pass from one to the other only when they are told to."""

    def __init__(self, *commands: Command) -> None:
        self.chip, self.link = Chip(INSTRUMENT), Loopback()
        self.events: list[dict[str, Any]] = []
        self.source = Once()
        self.listener = Listener(
            INSTRUMENT,
            ["a", "b"],
            self.link,
            emit=plain(self.events),
            commands=lambda stream: self.source,
        )
        self.pass_on()
        self.source.commands = list(commands)

    def pass_on(self, *, garbled: bool = False) -> None:
        self.listener.poll()
        image = bytearray(self.link.other.receive())
        if garbled:
            image[-1] ^= 1
        self.chip.receive(bytes(image))
        self.link.other.send(self.chip.take())
        self.listener.poll()

    @property
    def answers(self) -> list[tuple[str, bool, str]]:
        found = [each for each in self.events if each["event"] == "instrument_answer"]
        return [(each["command"], each["ok"], each["message"]) for each in found]


THREE = [
    Command(id="1", streams=(), verb="program", tap="in.a", aggregation="gradient_norm"),
    Command(id="2", streams=(), verb="sample", tap="in.b", every=7),
    Command(id="3", streams=(), verb="learning_rate", value=0.5),
]


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_of_several_orders_each_has_its_own_answer(refused: int) -> None:
    desk = Desk(*THREE)
    for place in range(3):
        assert len(desk.answers) == place, "each is answered when its own image is"
        desk.pass_on(garbled=place == refused)
    assert [(command, ok) for command, ok, _ in desk.answers] == [(str(at + 1), at != refused) for at in range(3)]
    said = [message for _, _, message in desk.answers]
    assert said[refused] == "the chip refused the image: a wrong checksum"
    good = ["in.a: aggregation gradient_norm, ", "in.b: every 7 steps", "learning rate 0.5"]
    assert all(said[at].startswith(good[at]) for at in range(3) if at != refused)


def test_an_order_that_the_chip_never_answered_is_answered_at_the_end() -> None:
    desk = Desk(*THREE)
    desk.pass_on()
    desk.listener.finish()
    assert [(command, ok) for command, ok, _ in desk.answers] == [("1", True), ("2", False), ("3", False)]
    assert desk.answers[1][2] == "listening ended before the chip answered the image"


def test_an_image_that_got_lost_is_sent_again() -> None:
    now = [0.0]
    chip, link = Chip(INSTRUMENT), Loopback()
    events: list[dict[str, Any]] = []
    order = Command(id="1", streams=(), verb="program", tap="in.a", aggregation="gradient_norm")
    listener = Listener(
        INSTRUMENT,
        ["a", "b"],
        link,
        emit=plain(events),
        commands=lambda stream: Once(order),
        clock=lambda: now[0],
    )
    for _ in range(3):
        chip.receive(link.other.receive())
        link.other.send(chip.take())
        if not now[0]:
            listener.poll()
            assert link.other.receive(), "the order's image, which never arrives"
        now[0] += 3
        listener.poll()
    (answer,) = [each for each in events if each["event"] == "instrument_answer"]
    assert answer["ok"]


def test_broken_bytes_are_accounted_for() -> None:
    with board(flip_every=10) as (port, _):
        events = listen(port, lambda events: len(readings(events, "in.b")) > 60)
    assert {each["values"]["sum"] for each in readings(events, "in.b")} == {64.0}
    assert events[-2]["bad_packets"] + events[-2]["lost_packets"] > 0
    assert events[-2]["skipped_bytes"] > 0
