"""Extension points: the members that come with the package, and those that installed packages register.

A package adds a member with an entry point in its `pyproject.toml`:

    [project.entry-points."presilicon.machines"]
    my-machine = "my_package.machine:MyMachine"

Members are imported when they are asked for by name. The package's own members are listed in the same
`name = "module:object"` form next to the extension point, so that they are found in a source tree too.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from presilicon.base.errors import ConfigError, PresiliconError, unknown

T = TypeVar("T")

_points: "list[ExtensionPoint[Any]]" = []


class ExtensionWarning(UserWarning):
    """An installed package registers a member that cannot be used."""


class ExtensionPoint(Generic[T]):
    """Named members of one kind, such as number-format families or machine kinds.

    >>> encodings = ExtensionPoint("presilicon.encodings", "encoding", {"json": "msgspec.json:encode"})
    >>> encodings.names()
    ['json']
    >>> encodings.load("json")([1])
    b'[1]'
    >>> encodings.load("jsn")
    Traceback (most recent call last):
    presilicon.base.errors.ConfigError: unknown encoding "jsn": did you mean "json"? Allowed: json
    """

    def __init__(
        self,
        group: str,
        noun: str,
        builtin: Mapping[str, str],
        kind: Any = object,
        aliases: Callable[[T], Iterable[str]] | None = None,
        reserved: Iterable[str] = (),
        decides: Literal["named", "always", "never"] = "named",
    ) -> None:
        """`kind` is the type of all members; `aliases` gives further names under which a member may be used.

        Names in `reserved` cannot be registered, as those of `builtin` cannot. `decides` says which
        members are part of the identity of a run: those that its configuration names, always all, or none, even if a
        word of the configuration is their name.
        """
        self._decides = decides
        self._reserved = frozenset(builtin) | frozenset(reserved)
        _points.append(self)
        self._aliases = aliases
        self.group = group
        self.noun = noun
        self._builtin = dict(builtin)
        self._kind = kind
        self._loaded: dict[str, T] = {}

    def names(self) -> list[str]:
        """Names of all members, the package's own first."""
        return [*self._builtin, *self._registered]

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._registered

    def load(self, name: str) -> T:
        """The member of a name.

        Raises:
            ConfigError: there is no such member, or the package that registers it cannot be imported.
        """
        if name not in self._loaded:
            if name in self._builtin:
                module, _, attribute = self._builtin[name].partition(":")
                self._loaded[name] = getattr(import_module(module), attribute)
            elif name in self._registered:
                self._loaded[name] = self._load_registered(self._registered[name])
            else:
                raise unknown(self.noun, name, self.names())
        return self._loaded[name]

    def _registered_if_needed(self, name: str) -> Mapping[str, EntryPoint]:
        """Registered members, without a search of the installed packages for a name of the package's own."""
        return {} if name in self._builtin else self._registered

    @contextmanager
    def errors_of(self, name: str) -> Iterator[None]:
        """Turns an error inside a registered member into a `ConfigError` that names it; our own errors pass."""
        try:
            yield
        except PresiliconError:
            raise
        except Exception as error:
            point = self._registered_if_needed(name).get(name)
            if point is None:
                raise
            raise ConfigError(
                f'{self.noun} "{name}" of {_origin(point)} failed: {type(error).__name__}: {error}'
            ) from error

    def members(self) -> dict[str, T]:
        """All members by name. One that cannot be loaded is left out with an `ExtensionWarning`."""
        members = {}
        for name in self.names():
            try:
                members[name] = self.load(name)
            except ConfigError as error:
                warnings.warn(str(error), ExtensionWarning, stacklevel=2)
        return members

    @cached_property
    def _registered(self) -> dict[str, EntryPoint]:
        """Entry points of installed packages; a name of the package's own cannot be taken over."""
        registered: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self._reserved:
                message = f"{_origin(point)}: {self.noun} {point.name} comes with presilicon; choose another name"
                warnings.warn(message, ExtensionWarning, stacklevel=2)
            else:
                registered.setdefault(point.name, point)
        return registered

    def _load_registered(self, point: EntryPoint) -> T:
        try:
            member: T = point.load()
        except (Exception, SystemExit) as error:  # a package of somebody else's may raise anything
            raise ConfigError(
                f'{self.noun} "{point.name}" cannot be loaded from {_origin(point)}: {type(error).__name__}: {error}'
            ) from error
        fits = issubclass(member, self._kind) if isinstance(member, type) else isinstance(member, self._kind)
        if not fits:
            raise ConfigError(
                f'{self.noun} "{point.name}" of {_origin(point)} must be a {self._kind.__name__}, not {member!r}'
            )
        return member


def extension_points() -> "list[ExtensionPoint[Any]]":
    """The extension points of the package, by the names of their groups."""
    for module in _HOMES.values():
        import_module(f"presilicon.{module}")
    return sorted((point for point in _points if point.group in _HOMES), key=lambda point: point.group)


_HOMES = {
    "presilicon.aggregations": "instrument",
    "presilicon.formats": "formats",
    "presilicon.machines": "designs",
    "presilicon.methods": "designs",
    "presilicon.ops": "ops",
    "presilicon.reproductions": "study.reproducing",
    "presilicon.workloads": "workloads.registry",
}
"""Where each group is declared."""


def extensions_named_in(text: str) -> dict[str, str]:
    """Package, version and source hash of each registered member that is part of the identity of a run.

    `text` is a configuration as JSON. The hash covers the member's own module, not what that imports.
    """
    named = {}
    for point in (point for point in _points if point._decides != "never"):
        for name, entry in point._registered.items():
            words = {name}
            if point._aliases is not None:
                with suppress(ConfigError):
                    words |= set(point._aliases(point.load(name)))
            if point._decides == "always" or any(
                re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) for word in words
            ):
                point.load(name)
                named[f"{point.group}:{name}"] = _fingerprint(entry)
    return dict(sorted(named.items()))


def _fingerprint(point: EntryPoint) -> str:
    module = sys.modules.get(point.module)
    file = getattr(module, "__file__", None)
    digest = sha256(Path(file).read_bytes()).hexdigest()[:16] if file else "unknown"
    package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an installed package"
    return f"{package}, {point.value}, source {digest}"


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else "an installed package"
    return f"{package} ({point.value})"
