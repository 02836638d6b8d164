"""Bytes both ways over every link; a host that goes away or sleeps holds nobody up."""

import os
import socket
import time
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from oracles.loopback import Loopback
from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.instrument.host import link as links
from presilicon.instrument.host.decoder import Decoder, Frame
from presilicon.instrument.host.link import FileLink, Link, SerialLink, SocketLink, SocketServer, connect
from presilicon.instrument.host.stream import StreamWriter


def gather(end: Link, size: int, other: Link | None = None) -> bytes:
    """Until `size` bytes have come; the other end is kept at work meanwhile."""
    come = b""
    deadline = time.monotonic() + 20
    while len(come) < size and time.monotonic() < deadline:
        if other is not None:
            other.send(b"")
        come += end.receive()
    return come


def wait_for(condition: Callable[[], bool], work: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        work()


def test_within_the_process() -> None:
    chip = Loopback()
    host = chip.other
    chip.send(b"packets")
    host.send(b"image")
    assert (host.receive(), chip.receive(), host.receive()) == (b"packets", b"image", b"")


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    chip, host = FileLink(write=tmp_path / "deep" / "stream"), connect(str(tmp_path / "deep" / "stream"))
    assert host.receive() == b""
    chip.send(b"one")
    assert host.receive() == b"one"
    chip.send(b"two")
    chip.send(b"three")
    assert host.receive() == b"twothree"
    assert FileLink(read=tmp_path / "not there").receive() == b""


def test_a_socket_both_ways_and_on_this_machine_only() -> None:
    server = SocketServer()
    assert server.address.startswith("127.0.0.1:")
    host = SocketLink(server.address)
    data = os.urandom(300_000)
    server.send(data)
    assert gather(host, len(data), server) == data
    image = os.urandom(100_000)
    host.send(image)
    assert gather(server, len(image), host) == image
    host.close()
    server.close()


def test_a_host_that_goes_away_stops_nobody_and_comes_back() -> None:
    hardware = Hardware(taps=2)
    writer = StreamWriter(hardware)
    server = SocketServer()
    address = server.address
    host = SocketLink(address)
    number = 0

    def send() -> None:
        nonlocal number
        server.send(writer.frame(0, number, [[number] * 32]))
        number += 1

    wait_for(lambda: server.hosts == 1, send)
    host.close()
    wait_for(lambda: server.hosts == 0, send)
    again = connect(address)
    wait_for(lambda: server.hosts == 1, send)
    decoder = Decoder(hardware, from_start=False)
    found: list[object] = []

    def work() -> None:
        send()
        found.extend(decoder.feed(again.receive()))

    wait_for(lambda: len(found) > 10, work)
    numbers = [frame.number for frame in found if isinstance(frame, Frame)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    again.close()
    server.close()


def test_a_link_that_breaks_is_taken_up_again() -> None:
    first = SocketServer()
    address = first.address
    host = SocketLink(address)
    wait_for(lambda: first.hosts == 1, first.receive)
    first.close()
    wait_for(lambda: host.breaks == 1, host.receive)
    second = SocketServer(address)
    wait_for(lambda: second.hosts == 1, lambda: (host.receive(), second.receive()))
    second.send(b"again")
    assert gather(host, 5, second) == b"again"
    host.close()
    second.close()


def test_a_host_that_sleeps_loses_bytes_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "BACKLOG", 1000)
    server = SocketServer()
    with socket.create_connection(links.parse_address(server.address)):
        wait_for(lambda: server.hosts == 1, server.receive)
        wait_for(lambda: server.lost > 0, lambda: server.send(bytes(900)))
        assert server.hosts == 1
    server.close()


def test_a_serial_port_both_ways() -> None:
    chip, device = os.openpty()
    tty.setraw(chip)
    os.set_blocking(chip, False)
    host = SerialLink(os.ttyname(device), 3_000_000)
    packet = StreamWriter(Hardware(taps=2)).frame(1, 0, [list(range(32))])
    os.write(chip, packet)
    assert gather(host, len(packet)) == packet
    host.send(b"PSFW")
    assert os.read(chip, 100) == b"PSFW"
    host.close()
    os.close(chip)
    os.close(device)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("127.0.0.1:1", "nothing answers"),
        ("nonsense", "is not a link"),
        ("/dev/ttyNOTHERE", "cannot open the serial port"),
    ],
)
def test_where_nothing_is(where: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        connect(where)


def test_addresses() -> None:
    for text in ("here", "here:", "here:99999", ""):
        with pytest.raises(ConfigError, match="HOST:PORT"):
            links.parse_address(text)
    server = SocketServer()
    with pytest.raises(ConfigError, match="cannot listen"):
        SocketServer(server.address)
    server.close()
