"""Hosts on other machines need a token to program an instrument; the token is nobody else's business."""

import stat
import time
from pathlib import Path

import pytest

from presilicon.base import ConfigError
from presilicon.instrument.host.link import SocketLink, SocketServer
from presilicon.instrument.host.token import (
    MAX_GREETING,
    TOKEN_VARIABLE,
    check_token,
    client_token,
    greeting,
    is_loopback,
    server_token,
)

TOKEN = "0123456789abcdef0123456789abcdef"
IMAGE = b"PSFW and more"


@pytest.fixture(autouse=True)
def _no_token_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def received(server: SocketServer) -> bytes:
    data, until = b"", time.monotonic() + 5
    while not data and not server.refused_bytes and time.monotonic() < until:
        data += server.receive()
    return data


def refusal(host: SocketLink) -> str:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            host.receive()
        except ConfigError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("token", [TOKEN, None])
def test_the_right_token_and_a_server_without_one_take_images(token: str | None) -> None:
    server = SocketServer(token=token)
    host = SocketLink(server.address, token=token)
    host.send(IMAGE)
    assert received(server) == IMAGE
    server.send(b"packets")
    assert host.receive() == b"packets" or received_later(host) == b"packets"
    host.close()
    server.close()


def received_later(host: SocketLink) -> bytes:
    data, until = b"", time.monotonic() + 5
    while not data and time.monotonic() < until:
        data = host.receive()
    return data


@pytest.mark.parametrize(
    ("token", "first", "said"),
    [
        (None, IMAGE, "needs a token"),
        (TOKEN[:-1] + "0", IMAGE, "the token is wrong"),
        (TOKEN[:-1], IMAGE, "the token is wrong"),
        (None, b"presilicon-token \n" + IMAGE, "the token is wrong"),
        (None, b"x" * MAX_GREETING, "needs a token"),
        (None, b"presilicon-token " + b"x" * MAX_GREETING, "the token is wrong"),
    ],
)
def test_a_missing_or_wrong_token_is_refused_and_nothing_gets_through(
    token: str | None, first: bytes, said: str
) -> None:
    server = SocketServer(token=TOKEN)
    host = SocketLink(server.address, token=token)
    host.send(first)
    assert received(server) == b""
    message = refusal(host)
    assert said in message
    assert "--token-file" in message
    assert TOKEN not in message
    server.close()


def test_a_refused_host_does_not_get_in_later() -> None:
    server = SocketServer(token=TOKEN)
    host = SocketLink(server.address)
    host.send(IMAGE)
    assert received(server) == b""
    server.refused_bytes = 0
    host.send(greeting(TOKEN) + IMAGE)
    assert received(server) == b""
    host.close()
    server.close()


def test_a_greeting_may_come_in_pieces_and_a_reader_needs_none() -> None:
    server = SocketServer(token=TOKEN)
    reader, host = SocketLink(server.address), SocketLink(server.address)
    line = greeting(TOKEN)
    for piece in (line[:5], line[5:-1]):
        host.send(piece)
        time.sleep(0.02)
        assert server.receive() == b""
    host.send(line[-1:] + IMAGE)
    assert received(server) == IMAGE
    server.send(b"packets")
    assert received_later(reader) == b"packets"
    for end in (reader, host, server):
        end.close()


def test_a_generated_token_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "instrument-token"
    token = server_token(file)
    assert len(token) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert server_token(file) == client_token(file) == token
    assert list(tmp_path.iterdir()) == [file], "no draft is left"
    assert server_token(tmp_path / "another") != token


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, f" {TOKEN}\n")
    assert server_token(tmp_path / "none") == TOKEN
    assert client_token(None) == TOKEN
    assert list(tmp_path.iterdir()) == []


def test_no_token_anywhere() -> None:
    assert client_token(None) is None
    with pytest.raises(ConfigError, match=f"needs a token: set {TOKEN_VARIABLE}"):
        server_token(None)
    with pytest.raises(ConfigError, match="cannot be read"):
        client_token(Path("/nowhere/token"))


@pytest.mark.parametrize("text", ["", "short", "x" * 257, "0123456789 abcdef0", "\x00" * 20, "ä" * 20])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(ConfigError, match="16 to 256 printable") as error:
        check_token(text, "somewhere")
    assert not text or text not in str(error.value)


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.2", True), ("::", False), ("", False), ("10.0.0.1", False)])
def test_which_addresses_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected
