"""Links between instrument and host: a file, a socket, a serial port, or none at all. Bytes both ways, never waiting.

Packets go one way and images the other. Neither end waits for the other: what a slow or absent host does not take is
lost on the link, the packet numbers show it, and training goes on.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from presilicon.base.errors import ConfigError, MissingToolError

LOCAL = "127.0.0.1"
PIECE = 65536
BACKLOG = 1 << 20
"""Bytes that are kept for a host that is slow to read; what comes on top is lost."""


class Link(Protocol):
    """One end of a link."""

    def send(self, data: bytes) -> None:
        """Hand bytes to the other end, or lose them; it neither waits nor fails."""

    def receive(self) -> bytes:
        """What has come since the last call, perhaps nothing."""
        ...

    def close(self) -> None:
        """No more of it."""


class Loopback:
    """An end of a link within this process; `other` is the other end."""

    def __init__(self, other: "Loopback | None" = None) -> None:
        self._come = bytearray()
        self.other: Loopback = other or Loopback(self)

    def send(self, data: bytes) -> None:
        """To the other end."""
        self.other._come += data

    def receive(self) -> bytes:
        """All that came."""
        data = bytes(self._come)
        self._come.clear()
        return data

    def close(self) -> None:
        """Nothing to do."""


class FileLink:
    """Bytes appended to one file and read from another as it grows; either may be left out."""

    def __init__(self, *, write: Path | None = None, read: Path | None = None) -> None:
        self._write, self._read = write, read
        self._place = 0
        if write is not None:
            try:
                write.parent.mkdir(parents=True, exist_ok=True)
                write.touch()
            except OSError as error:
                raise ConfigError(f"cannot write {write}: {error.strerror or error}") from None

    def send(self, data: bytes) -> None:
        """Append; a disk that is full loses what does not fit."""
        if self._write is None or not data:
            return
        with suppress(OSError), self._write.open("ab", buffering=0) as file:
            file.write(data)

    def receive(self) -> bytes:
        """What the file has grown by; nothing while there is none."""
        if self._read is None:
            return b""
        try:
            with self._read.open("rb") as file:
                file.seek(self._place)
                data = file.read()
        except OSError:
            return b""
        self._place += len(data)
        return data

    def close(self) -> None:
        """Nothing is held open."""


class SocketServer:
    """The instrument's end of a TCP link: every host that connects gets the packets from then on, and may send images.

    It listens on this machine only unless another address is given, and does its work when `send` or `receive` is
    called.
    """

    def __init__(self, address: str = "") -> None:
        host, port = parse_address(address or f"{LOCAL}:0")
        try:
            self._listener = socket.create_server((host, port), family=_family(host))
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"cannot listen on {host}:{port}: {reason}; port 0 is any free one") from None
        self._listener.setblocking(False)
        self._hosts: dict[socket.socket, bytearray] = {}
        self.lost = 0
        """Bytes that slow hosts did not take."""

    @property
    def address(self) -> str:
        """`host:port`, the port that was found free where 0 was asked for."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def hosts(self) -> int:
        """How many are connected."""
        return len(self._hosts)

    def send(self, data: bytes) -> None:
        """To every host; one whose backlog is full misses all of it, one that has gone is forgotten."""
        self._accept()
        for host, backlog in list(self._hosts.items()):
            if len(backlog) + len(data) > BACKLOG:
                self.lost += len(data)
            else:
                backlog += data
            try:
                while backlog:
                    del backlog[: host.send(backlog[:PIECE])]
            except BlockingIOError:
                continue
            except OSError:
                self._forget(host)

    def receive(self) -> bytes:
        """What hosts sent: images, each whole only if hosts do not send at the same time."""
        self._accept()
        come = bytearray()
        for host in list(self._hosts):
            try:
                while data := host.recv(PIECE):
                    come += data
            except BlockingIOError:
                continue
            except OSError:
                pass
            self._forget(host)
        return bytes(come)

    def close(self) -> None:
        """Hang up."""
        for host in list(self._hosts):
            self._forget(host)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                host, _ = self._listener.accept()
                host.setblocking(False)
                self._hosts[host] = bytearray()

    def _forget(self, host: socket.socket) -> None:
        self._hosts.pop(host, None)
        host.close()


class SocketLink:
    """The host's end of a TCP link. When the other end goes away it tries to come back at every call."""

    def __init__(self, address: str) -> None:
        self._address = parse_address(address)
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self.breaks = 0
        """How often the link broke; tell the decoder when it grows."""
        self._connect()
        if self._socket is None:
            raise ConfigError(f"nothing answers at {address}: is the instrument running there?")

    def send(self, data: bytes) -> None:
        """An image, or a part of one; what the link does not take at once goes with the next call."""
        self._unsent += data
        self._connect()
        if self._socket is None:
            return
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent[:PIECE])]
        except BlockingIOError:
            return
        except OSError:
            self._broken()

    def receive(self) -> bytes:
        """What came."""
        self._connect()
        come = bytearray()
        if self._socket is None:
            return b""
        try:
            while data := self._socket.recv(PIECE):
                come += data
        except BlockingIOError:
            return bytes(come)
        except OSError:
            pass
        self._broken()
        return bytes(come)

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        if self._socket is not None:
            return
        with suppress(OSError):
            self._socket = socket.create_connection(self._address, timeout=1.0)
            self._socket.setblocking(False)

    def _broken(self) -> None:
        self.breaks += 1
        self._unsent.clear()
        self.close()


class SerialLink:
    """A serial port, through pyserial; a UART's ends are alike."""

    def __init__(self, port: str, baud: int = 115200) -> None:
        try:
            import serial
        except ImportError:
            raise MissingToolError("a serial port needs pyserial: pip install 'presilicon[serial]'") from None
        self._failures = (serial.SerialException, OSError)
        try:
            self._port: Any = serial.Serial(port, baud, timeout=0, write_timeout=0)
        except (serial.SerialException, ValueError, OSError) as error:
            raise ConfigError(f"cannot open the serial port {port} at {baud} baud: {error}") from None
        self._unsent = bytearray()

    def send(self, data: bytes) -> None:
        """What the port does not take at once goes with the next call."""
        self._unsent += data
        if len(self._unsent) > BACKLOG:
            del self._unsent[:-BACKLOG]
        try:
            while self._unsent:
                taken = os.write(self._port.fileno(), self._unsent[:PIECE])
                del self._unsent[:taken]
        except BlockingIOError:
            return
        except self._failures:
            self._unsent.clear()

    def receive(self) -> bytes:
        """What came."""
        try:
            waiting = self._port.in_waiting
            return bytes(self._port.read(waiting)) if waiting else b""
        except self._failures:
            return b""

    def close(self) -> None:
        """Let the port go."""
        with suppress(*self._failures):
            self._port.close()


def connect(where: str, *, baud: int = 115200) -> Link:
    """The host's end of a link: `HOST:PORT`, a serial device (`/dev/tty...`, `COM3`), or a file of packets.

    Raises:
        ConfigError: nothing is there.
        MissingToolError: a serial port, and pyserial is not installed.
    """
    if where.startswith(("/dev/", "COM")):
        return SerialLink(where, baud)
    if Path(where).is_file():
        return FileLink(read=Path(where))
    _, colon, port = where.rpartition(":")
    if colon and port.isdigit():
        return SocketLink(where)
    raise ConfigError(f'"{where}" is no link: give HOST:PORT, a serial device as /dev/ttyUSB0, or a recorded file')


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; a port alone is one of this machine.

    >>> parse_address("127.0.0.1:7000"), parse_address(":7000"), parse_address("7000")
    (('127.0.0.1', 7000), ('127.0.0.1', 7000), ('127.0.0.1', 7000))
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f'"{text}" is no address: give HOST:PORT, as in 127.0.0.1:7000')
    return host.strip("[]") or LOCAL, int(port)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
