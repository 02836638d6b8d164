"""Operators in a design file: a function of one's own, or a ready-made kind."""

import dataclasses
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct

from presilicon.base.errors import ConfigError
from presilicon.base.files import read_file
from presilicon.formats import parse
from presilicon.operators import Backward, Fit, Interpolation, Operator, Outside, load_operator, piecewise_linear, table

_EXPONENTIALS = frozenset(["exp", "softmax.exp"])
_OF_KIND = {
    "table": frozenset(["entries", "interpolation"]),
    "piecewise-linear": frozenset(["pieces", "fit", "breakpoints", "outside"]),
}


class OperatorSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What takes the place of a function. In a file, the place of a function of one's own alone is enough.

    >>> OperatorSpec(kind="table", low=-4, high=4, entries=64).make("tanh").cost.entries
    64
    """

    shorthand: ClassVar[str] = "source"

    source: str | None = None
    """A Python file and a name in it, as `my_ops.py:approximate_tanh`; counted from the design's own file."""
    digest: str | None = None
    """Of the file's text; filled in when the design is read, so that two designs with other texts are not the same."""
    kind: Literal["table", "piecewise-linear"] | None = None
    low: float | None = None
    high: float | None = None
    entries: int | None = None
    interpolation: Interpolation | None = None
    pieces: int | None = None
    fit: Fit | None = None
    breakpoints: tuple[float, ...] | None = None
    outside: Outside | None = None
    backward: Backward | None = None
    """What is not named is as the operator's own file, or the kind, has it; so with the fields below."""
    format: str | None = None
    cycles: int | None = None
    pipelined: bool | None = None

    def make(self, name: str) -> Operator:
        """The operator that takes the place of the function `name`.

        Raises:
            ConfigError: there is no such function, file or operator, or the figures do not fit together.
        """
        if (self.source is None) == (self.kind is None):
            raise ConfigError('name either a source, as "my_ops.py:approximate_tanh", or a kind, as "table"')
        shared = {key: value for key in _SHARED if (value := getattr(self, key)) is not None}
        if self.kind is not None:
            return _make_kind(self, name)
        given = [key for key in _FIGURES if getattr(self, key) is not None]
        if given:
            raise ConfigError(f"{', '.join(given)}: only a kind takes that, not a source")
        assert self.source is not None
        if self.digest is not None and digest_of(self.source) != self.digest:
            raise ConfigError(f"{self.source}: the file has changed since the design was read")
        found = load_operator(self.source)
        if found.replaces != name and not {found.replaces, name} <= _EXPONENTIALS:
            raise ConfigError(f"{self.source} replaces {found.replaces}, not {name}")
        if "format" in shared:
            shared["format"] = parse(shared["format"])
        return dataclasses.replace(found.replacing(name), **shared)


class Operators(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What takes the place of each function, everywhere in a model; what is not named stays exact."""

    tanh: OperatorSpec | None = None
    sigmoid: OperatorSpec | None = None
    gelu: OperatorSpec | None = None
    silu: OperatorSpec | None = None
    softplus: OperatorSpec | None = None
    erf: OperatorSpec | None = None
    exp: OperatorSpec | None = None
    softmax_exp: OperatorSpec | None = None
    """The exponential inside softmax: in Python its name is `softmax.exp`."""
    log: OperatorSpec | None = None
    sqrt: OperatorSpec | None = None
    rsqrt: OperatorSpec | None = None
    """Inside normalizations, too."""
    reciprocal: OperatorSpec | None = None
    sin: OperatorSpec | None = None
    cos: OperatorSpec | None = None

    def check(self) -> None:
        """Every operator must be there."""
        self.make()

    def make(self) -> tuple[Operator, ...]:
        """All of them.

        Raises:
            ConfigError: one cannot be made; the message names the function.
        """
        made = []
        for field in self.__struct_fields__:
            spec: OperatorSpec | None = getattr(self, field)
            try:
                made += [] if spec is None else [spec.make(field.replace("softmax_", "softmax."))]
            except ConfigError as error:
                raise ConfigError(f"{field}: {error}") from None
        return tuple(made)


_SHARED = ("backward", "format", "cycles", "pipelined")
_FIGURES = ("low", "high", "entries", "interpolation", "pieces", "fit", "breakpoints", "outside")


@lru_cache(maxsize=64)
def _make_kind(spec: OperatorSpec, name: str) -> Operator:
    assert spec.kind is not None
    given: dict[str, Any] = {key: value for key in _FIGURES if (value := getattr(spec, key)) is not None}
    foreign = sorted(given.keys() - _OF_KIND[spec.kind] - {"low", "high"})
    if foreign:
        raise ConfigError(f"{', '.join(foreign)}: a {spec.kind} has no such figure")
    missing = [key for key in ("low", "high") if key not in given]
    if spec.kind == "table" and "entries" not in given:
        missing.append("entries")
    if missing:
        raise ConfigError(f"a {spec.kind} needs {', '.join(missing)}")
    given |= {key: value for key in _SHARED if (value := getattr(spec, key)) is not None}
    return table(name, **given) if spec.kind == "table" else piecewise_linear(name, **given)


def digest_of(source: str) -> str | None:
    """A digest of the text of the file that a source names; None where it cannot be read."""
    try:
        return sha256(read_file(Path(source.rpartition(":")[0]))).hexdigest()[:16]
    except ConfigError:
        return None


def beside(operators: Any, folder: Path) -> Any:
    """The table of operators of a design file, with sources counted from its folder and their digests filled in."""
    if not isinstance(operators, dict):
        return operators
    located = {}
    for name, spec in operators.items():
        spec = {"source": spec} if isinstance(spec, str) else spec
        if isinstance(spec, dict) and isinstance(spec.get("source"), str):
            source = str(folder / spec["source"])
            spec = {**spec, "source": source, "digest": spec.get("digest") or digest_of(source)}
        located[name] = spec
    return located
