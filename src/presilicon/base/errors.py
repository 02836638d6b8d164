"""Errors that a user can act on.

Every message says where the trouble is, what was given, what is allowed and what to try. Only the command line turns
these into exit codes; inside the package they are ordinary exceptions.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class PresiliconError(Exception):
    """The base of every error that Presilicon raises on purpose."""

    exit_code = 1

    def __str__(self) -> str:
        return shorten(super().__str__())


class ConfigError(PresiliconError):
    """Something the user wrote (a file, an option, an argument) is not what it should be."""

    exit_code = 2


class FormatError(ConfigError):
    """A number format that cannot be read or cannot exist, or data that a format cannot take."""


class MissingToolError(PresiliconError):
    """An optional package, a program or a device is needed and absent; the message says how to get it."""

    exit_code = 3


class RunFailedError(PresiliconError):
    """The work started and then failed."""


UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises for a text that it cannot read, perhaps because it is long or nested."""

_LONGEST_VALUE = 240
_VALUES = re.compile(
    rf"""(?<!\w)(?P<quote>["'])(?:(?!(?P=quote)).){{{_LONGEST_VALUE},}}(?P=quote)(?!\w)|[^\s"']{{{_LONGEST_VALUE},}}(?<![:;,.])""",
    re.DOTALL,
)


def shorten(message: str) -> str:
    """A message in which long values that were given, quoted or without a space, are cut.

    >>> shorten(f"rows must be a number, not '{'9' * 5000}'")
    "rows must be a number, not '99999999999999999999...99999999' (5,000 characters)"
    >>> shorten("rows must be a number, not '9'")
    "rows must be a number, not '9'"
    """

    def cut(match: re.Match[str]) -> str:
        quote = match["quote"] or ""
        value = match[0][len(quote) : len(match[0]) - len(quote)]
        return f"{quote}{value[:20]}...{value[-8:]}{quote} ({len(value):,} characters)"

    return _VALUES.sub(cut, message)


@contextmanager
def located(where: object) -> Iterator[None]:
    """A context whose configuration errors begin with the place where the trouble is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """A sentence that proposes the nearest allowed word and lists the rest.

    >>> did_you_mean("rowz", ["rows", "cols"])
    'did you mean "rows"? Allowed: cols, rows'
    >>> did_you_mean("zebra", ["rows", "cols"])
    'Allowed: cols, rows'
    """
    words = sorted(allowed)
    listing = f"Allowed: {', '.join(words)}" if words else "nothing is allowed here"
    near = get_close_matches(given.lower(), words, n=1, cutoff=0.6)
    return f'did you mean "{near[0]}"? {listing}' if near else listing


def unknown(what: str, given: str, allowed: Iterable[str]) -> ConfigError:
    """The error for a name that is not in a list of names.

    >>> str(unknown("workload", "digits-cn", ["digits-cnn", "digits-mlp"]))
    'unknown workload "digits-cn": did you mean "digits-cnn"? Allowed: digits-cnn, digits-mlp'
    """
    return ConfigError(f'unknown {what} "{given}": {did_you_mean(given, allowed)}')
