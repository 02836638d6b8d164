"""Links between instrument and host: a file, a socket, a serial port, or none at all. Bytes both ways, never waiting.

Packets go one way and images the other. Neither end waits for the other: packets that a slow or absent host does not
take are lost on the link, the packet numbers show it, and training continues.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from presilicon.base import ConfigError, MissingToolError
from presilicon.instrument.host.token import GREETING, MAX_GREETING, REFUSAL, TOKEN_VARIABLE, greeting, is_greeting

LOCAL = "127.0.0.1"
PIECE = 65536
BACKLOG = 1 << 20
"""Bytes that are kept for a host that is slow to read; further ones are lost."""


class Link(Protocol):
    """One end of a link."""

    def send(self, data: bytes) -> None:
        """Pass bytes to the other end, or lose them; it neither waits nor fails."""

    def receive(self) -> bytes:
        """Bytes that arrived since the last call, perhaps none."""
        ...

    def close(self) -> None:
        """Close this end."""


def _pour(
    data: bytearray, send: Callable[[bytearray], int], failures: tuple[type[Exception], ...] = (OSError,)
) -> bool:
    """Send as much of the data as is taken at once, and remove it; returns whether the link still works."""
    try:
        while data:
            del data[: send(data[:PIECE])]
    except BlockingIOError:
        return True
    except failures:
        return False
    return True


def _drain(end: socket.socket) -> tuple[bytes, bool]:
    """Bytes that have arrived at a socket, and whether it is still open."""
    data = bytearray()
    try:
        while piece := end.recv(PIECE):
            data += piece
    except BlockingIOError:
        return bytes(data), True
    except OSError:
        pass
    return bytes(data), False


class FileLink:
    """Bytes appended to one file and read from another as it grows; either may be left out."""

    def __init__(self, *, write: Path | None = None, read: Path | None = None) -> None:
        self._write, self._read = write, read
        self._position = 0
        if write is not None:
            try:
                write.parent.mkdir(parents=True, exist_ok=True)
                write.touch()
            except OSError as error:
                raise ConfigError(f"cannot write {write}: {error.strerror or error}") from None

    def send(self, data: bytes) -> None:
        """Append; bytes that a full disk does not take are lost."""
        if self._write is None or not data:
            return
        with suppress(OSError), self._write.open("ab", buffering=0) as file:
            file.write(data)

    def receive(self) -> bytes:
        """Bytes by which the file has grown; none while there is no file."""
        if self._read is None:
            return b""
        try:
            with self._read.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return b""
        self._position += len(data)
        return data

    def close(self) -> None:
        """Nothing is held open."""


@dataclass
class _Connection:
    """A host that is connected to the server."""

    backlog: bytearray = field(default_factory=bytearray)
    greeting: bytearray = field(default_factory=bytearray)
    state: Literal["new", "trusted", "refused"] = "new"


class SocketServer:
    """The instrument's end of a TCP link: every host that connects gets the packets from then on, and may send images.

    It listens on this machine only unless another address is given, and does its work when `send` or `receive` is
    called. With a token, a host must send the greeting with that token before its first image; a host that sends
    something else is told so, and its bytes are ignored. Hosts that send nothing need no token.
    """

    def __init__(self, address: str = "", *, token: str | None = None) -> None:
        host, port = parse_address(address or f"{LOCAL}:0")
        try:
            self._listener = socket.create_server((host, port), family=_family(host))
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"cannot listen on {host}:{port}: {reason}; port 0 is any free one") from None
        self._listener.setblocking(False)
        self._token = token
        self._connections: dict[socket.socket, _Connection] = {}
        self.lost = 0
        """Bytes that slow hosts did not take."""
        self.refused_bytes = 0
        """Bytes of hosts without the right token."""

    @property
    def address(self) -> str:
        """`host:port`, with the port that was found free if 0 was asked for."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def needs_token(self) -> bool:
        """Whether hosts need a token to send images."""
        return self._token is not None

    @property
    def hosts(self) -> int:
        """Number of connected hosts."""
        return len(self._connections)

    def send(self, data: bytes) -> None:
        """Send to every host; one whose backlog is full misses all of it, one that is gone is dropped."""
        self._accept()
        for host, connection in list(self._connections.items()):
            if len(connection.backlog) + len(data) > BACKLOG:
                self.lost += len(data)
            else:
                connection.backlog += data
            self._flush(host, connection)

    def _flush(self, host: socket.socket, connection: _Connection) -> None:
        if not _pour(connection.backlog, host.send):
            self._drop(host)

    def receive(self) -> bytes:
        """Images that hosts sent, each whole only if hosts do not send at the same time."""
        self._accept()
        arrived = bytearray()
        for host, connection in list(self._connections.items()):
            data, is_open = _drain(host)
            arrived += self._admit(connection, data)
            if is_open:
                self._flush(host, connection)
            else:
                self._drop(host)
        return bytes(arrived)

    def _admit(self, connection: _Connection, data: bytes) -> bytes:
        """The part of a host's bytes that is images from a host with the right token."""
        if self._token is None or connection.state == "trusted":
            return data
        if connection.state == "refused" or not data:
            self.refused_bytes += len(data)
            return b""
        connection.greeting += data
        line, end, images = bytes(connection.greeting).partition(b"\n")
        if end and is_greeting(line + end, self._token):
            connection.state = "trusted"
            return images
        is_begun = GREETING.startswith(line[: len(GREETING)]) and len(line) < MAX_GREETING
        if end or not is_begun:
            is_wrong = line.startswith(GREETING)
            reason = b"the token is wrong" if is_wrong else b"a host that sends images needs a token"
            connection.state = "refused"
            connection.backlog += REFUSAL + reason + b"\n"
            self.refused_bytes += len(connection.greeting)
        return b""

    def close(self) -> None:
        """Close all connections and stop listening."""
        for host in list(self._connections):
            self._drop(host)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                host, _ = self._listener.accept()
                host.setblocking(False)
                self._connections[host] = _Connection()

    def _drop(self, host: socket.socket) -> None:
        self._connections.pop(host, None)
        host.close()


class SocketLink:
    """The host's end of a TCP link. If the other end goes away, every call tries to connect again."""

    def __init__(self, address: str, *, token: str | None = None) -> None:
        self._address = parse_address(address)
        self._greeting = b"" if token is None else greeting(token)
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self._tail = b""
        self.breaks = 0
        """How often the link broke; tell the decoder when it grows."""
        self._connect()
        if self._socket is None:
            raise ConfigError(f"nothing answers at {address}: is the instrument running there?")

    def send(self, data: bytes) -> None:
        """Send an image, or a part of one; bytes that the link does not take at once go with the next call."""
        self._unsent += data
        self._connect()
        if self._socket is None:
            return
        if not _pour(self._unsent, self._socket.send):
            self._broken()

    def receive(self) -> bytes:
        """Bytes that arrived since the last call.

        Raises:
            ConfigError: the instrument refused this host's token, or needs one.
        """
        self._connect()
        if self._socket is None:
            return b""
        arrived, is_open = _drain(self._socket)
        self._check_refusal(arrived)
        if not is_open:
            self._broken()
        return arrived

    def _check_refusal(self, arrived: bytes) -> None:
        data = self._tail + arrived
        _, mark, rest = data.partition(REFUSAL)
        reason, end, _ = rest.partition(b"\n")
        if mark and end:
            self.close()
            host, port = self._address
            text = reason.decode("ascii", "replace")
            raise ConfigError(
                f"{host}:{port} refused this host: {text}; give the token of its run, with --token-file or in "
                f"{TOKEN_VARIABLE}"
            )
        self._tail = data[-2 * MAX_GREETING :]

    def close(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        if self._socket is not None:
            return
        with suppress(OSError):
            self._socket = socket.create_connection(self._address, timeout=1.0)
            self._socket.setblocking(False)
            self._unsent[:0] = self._greeting

    def _broken(self) -> None:
        self.breaks += 1
        self._unsent.clear()
        self.close()


class SerialLink:
    """A serial port, through pyserial; both ends of a UART are the same."""

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
        """Send; bytes that the port does not take at once go with the next call."""
        self._unsent += data
        if len(self._unsent) > BACKLOG:
            del self._unsent[:-BACKLOG]
        if not _pour(self._unsent, lambda data: os.write(self._port.fileno(), data), self._failures):
            self._unsent.clear()

    def receive(self) -> bytes:
        """Bytes that arrived since the last call."""
        try:
            waiting = self._port.in_waiting
            return bytes(self._port.read(waiting)) if waiting else b""
        except self._failures:
            return b""

    def close(self) -> None:
        """Close the port."""
        with suppress(*self._failures):
            self._port.close()


def connect(where: str, *, baud: int = 115200, token: str | None = None) -> Link:
    """The host's end of a link: `HOST:PORT`, a serial device (`/dev/tty...`, `COM3`), or a file of packets.

    `token` is that of an instrument on another machine.

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
        return SocketLink(where, token=token)
    raise ConfigError(f'"{where}" is not a link: give HOST:PORT, a serial device as /dev/ttyUSB0, or a recorded file')


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; a port alone is one of this machine.

    >>> parse_address("127.0.0.1:7000"), parse_address(":7000"), parse_address("7000")
    (('127.0.0.1', 7000), ('127.0.0.1', 7000), ('127.0.0.1', 7000))
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f'"{text}" is not an address: give HOST:PORT, as in 127.0.0.1:7000')
    return host.strip("[]") or LOCAL, int(port)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
