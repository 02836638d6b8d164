"""Operators in a design file: a function from a Python file, or a ready-made kind."""

import dataclasses
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct

from presilicon.base import ConfigError, located, read_file
from presilicon.formats import parse
from presilicon.ops import (
    Backward,
    Fit,
    Interpolation,
    Operator,
    Outside,
    check_function,
    load_operator,
    piecewise_linear,
    split_pattern,
    table,
)

_EXPONENTIALS = frozenset(["exp", "softmax.exp"])
_OF_KIND = {
    "table": frozenset(["entries", "interpolation"]),
    "piecewise-linear": frozenset(["pieces", "fit", "breakpoints", "outside"]),
}


class OperatorSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replacement of a function. In a design file, the reference to a Python function alone is enough.

    >>> OperatorSpec(kind="table", low=-4, high=4, entries=64).make("tanh").cost.entries
    64
    """

    shorthand: ClassVar[str] = "source"

    replaces: str | None = None
    """The function, or pattern of layers and function, where its name is not the key."""
    source: str | None = None
    """A Python file and a name in it, as `my_ops.py:approximate_tanh`; relative to the design's own file."""
    digest: str | None = None
    """Digest of the file's text, filled in when the design is read, so that a change of it makes another design."""
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
    """None here and in the fields below: as the operator's own file, or the kind, has it."""
    format: str | None = None
    cycles: int | None = None
    pipelined: bool | None = None

    def make(self, name: str) -> Operator:
        """The operator that takes the place of the function `name`.

        Raises:
            ConfigError: there is no such function, file or operator, or the figures do not fit together.
        """
        check_function(name)
        if (self.source is None) == (self.kind is None):
            raise ConfigError('name either a source, as "my_ops.py:approximate_tanh", or a kind, as "table"')
        shared = {key: value for key in _SHARED if (value := getattr(self, key)) is not None}
        if self.kind is not None:
            return _make_kind(self, name)
        figures = [key for key in _FIGURES if getattr(self, key) is not None]
        if figures:
            raise ConfigError(f"{', '.join(figures)}: only a kind takes that, not a source")
        assert self.source is not None
        if self.digest is not None and digest_of(self.source) != self.digest:
            raise ConfigError(f"{self.source}: the file has changed since the design was read")
        operator = load_operator(self.source)
        function, own = split_pattern(name)[1], operator.replaces and split_pattern(operator.replaces)[1]
        if own not in (None, function) and not {own, function} <= _EXPONENTIALS:
            raise ConfigError(f"{self.source} replaces {operator.replaces}, not {name}")
        if "format" in shared:
            shared["format"] = parse(shared["format"])
        return dataclasses.replace(operator.replacing(name), **shared)


class Operators(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replacement of each function, everywhere in a model; functions that are not named stay exact."""

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
    functions: tuple[OperatorSpec, ...] = ()
    """Any other function of torch, each with what it `replaces`: a name (`softmax`, `conv2d`), or a pattern of layers
    and a name (`blocks.*.relu`). In a design file these stand beside the others."""

    def check(self) -> None:
        """Every operator must be one that can be made."""
        self.make()

    def make(self) -> tuple[Operator, ...]:
        """The operators of all replaced functions.

        Raises:
            ConfigError: one cannot be made; the message names the function.
        """
        operators = []
        own = {field: getattr(self, field) for field in self.__struct_fields__ if field != "functions"}
        for field, spec in [*own.items(), *((spec.replaces or "", spec) for spec in self.functions)]:
            with located(field):
                name = "softmax.exp" if field == "softmax_exp" else field
                operators += [] if spec is None else [spec.make(name)]
        return tuple(operators)


_SHARED = ("backward", "format", "cycles", "pipelined")
_FIGURES = ("low", "high", "entries", "interpolation", "pieces", "fit", "breakpoints", "outside")


@lru_cache(maxsize=64)
def _make_kind(spec: OperatorSpec, name: str) -> Operator:
    assert spec.kind is not None
    figures: dict[str, Any] = {key: value for key in _FIGURES if (value := getattr(spec, key)) is not None}
    foreign = sorted(figures.keys() - _OF_KIND[spec.kind] - {"low", "high"})
    if foreign:
        raise ConfigError(f"{', '.join(foreign)}: a {spec.kind} has no such figure")
    missing = [key for key in ("low", "high") if key not in figures]
    if spec.kind == "table" and "entries" not in figures:
        missing.append("entries")
    if missing:
        raise ConfigError(f"a {spec.kind} needs {', '.join(missing)}")
    figures |= {key: value for key in _SHARED if (value := getattr(spec, key)) is not None}
    return table(name, **figures) if spec.kind == "table" else piecewise_linear(name, **figures)


def digest_of(source: str) -> str | None:
    """A digest of the text of the file that a source names; None where it cannot be read."""
    try:
        return sha256(read_file(Path(source.rpartition(":")[0]), again=True)).hexdigest()[:16]
    except ConfigError:
        return None


def beside(operators: Any, folder: Path) -> Any:
    """The table of operators of a design file, with sources relative to its folder and their digests filled in."""
    if not isinstance(operators, dict):
        return operators
    located: dict[str, Any] = {}
    known = frozenset(Operators.__struct_fields__)
    for name, spec in operators.items():
        if name == "functions" and isinstance(spec, list):
            located.setdefault(name, []).extend(_beside(entry, folder) for entry in spec)
        elif name in known:
            located[name] = _beside(spec, folder)
        else:
            spec = _beside(spec, folder)
            located.setdefault("functions", []).append({**spec, "replaces": name} if isinstance(spec, dict) else spec)
    return located


def _beside(spec: Any, folder: Path) -> Any:
    spec = {"source": spec} if isinstance(spec, str) else spec
    if isinstance(spec, dict) and isinstance(spec.get("source"), str):
        source = str(folder / spec["source"])
        spec = {**spec, "source": source, "digest": spec.get("digest") or digest_of(source)}
    return spec
