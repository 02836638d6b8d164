"""The token that hosts on other machines need to program an instrument: a secret that both sides know.

It comes from the environment variable, or is generated and kept in the run's directory, readable by its owner alone. It
appears in no event, design or provenance.
"""

import hmac
import ipaddress
import os
import secrets
from contextlib import suppress
from pathlib import Path

from presilicon.base import ConfigError

TOKEN_VARIABLE = "PRESILICON_INSTRUMENT_TOKEN"
TOKEN_FILE = "instrument-token"
GREETING = b"presilicon-token "
MAX_GREETING = 512
REFUSAL = b"\npresilicon: refused: "


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host name or address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "board.local")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_token(file: Path | None) -> str:
    """The instrument's token: that of the environment, or one kept in `file`, which is generated if there is none.

    Raises:
        ConfigError: there is neither, or the file cannot be used.
    """
    if TOKEN_VARIABLE in os.environ:
        return check_token(os.environ[TOKEN_VARIABLE], f"${TOKEN_VARIABLE}")
    if file is None:
        raise ConfigError(
            f"accept_images at an address that other machines reach needs a token: set {TOKEN_VARIABLE}, or listen on "
            "127.0.0.1"
        )
    if not file.exists():
        # Linked into place when it is complete: several trainings of a run share it.
        draft = file.with_name(f"{file.name}-{secrets.token_hex(4)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as stream:
                stream.write(secrets.token_hex(32) + "\n")
            with suppress(FileExistsError):
                os.link(draft, file)
        except OSError as error:
            raise ConfigError(f"{file}: the token cannot be written: {error.strerror or error}") from None
        finally:
            draft.unlink(missing_ok=True)
    return read_token(file)


def client_token(file: Path | None) -> str | None:
    """A host's token: from a file, or from the environment; None if there is neither.

    Raises:
        ConfigError: the file cannot be read, or its text is not a token.
    """
    if file is not None:
        return read_token(file)
    text = os.environ.get(TOKEN_VARIABLE)
    return None if text is None else check_token(text, f"${TOKEN_VARIABLE}")


def read_token(file: Path) -> str:
    """The token in a file.

    Raises:
        ConfigError: the file cannot be read, or its text is not a token.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(MAX_GREETING).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{file}: the token cannot be read: {error.strerror or error}") from None
    return check_token(text, str(file))


def check_token(text: str, source: str) -> str:
    """A token without blanks around it.

    Raises:
        ConfigError: it is not 16 to 256 printable ASCII characters without blanks; the error does not show it.
    """
    token = text.strip()
    if not 16 <= len(token) <= 256 or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{source}: a token must be 16 to 256 printable ASCII characters without blanks")
    return token


def greeting(token: str) -> bytes:
    """The first line that a host sends."""
    return GREETING + token.encode("ascii") + b"\n"


def is_greeting(line: bytes, token: str) -> bool:
    """Whether a line, with its end, is the greeting with this token; compared in constant time."""
    return hmac.compare_digest(line, greeting(token))
