"""Designs: machine and numerics in one TOML file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from presilicon.base import (
    ConfigError,
    Source,
    apply_settings,
    decode_config,
    located,
    to_plain,
    write_out,
)
from presilicon.designs.inheritance import BASE, is_path, packaged_names, read_whole, without_other_form
from presilicon.designs.instrument import Instrument
from presilicon.designs.machine import Machine
from presilicon.designs.method import METHODS, Method, method_tables
from presilicon.designs.numerics import Numerics, decode_format
from presilicon.designs.operators import beside
from presilicon.designs.recipe import recipe_table
from presilicon.designs.technology import Technology, load_technology


class Design(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is decided about the hardware, in one file that emulation, simulation and RTL all read."""

    name: str
    machine: Machine
    numerics: Numerics = Numerics()
    methods: tuple[Method, ...] = ()
    """Training methods; the first is the outermost."""
    instrument: Instrument | None = None
    description: str = ""

    def check(self) -> None:
        """The name must be printable, the technology table have the DRAM, and the machine fit the numerics."""
        if not self.name.strip():
            raise ConfigError("name must not be empty")
        if not self.name.isprintable() or len(self.name) > 100:
            raise ConfigError(f"name must be printable and at most 100 characters long, not {self.name[:120]!r}")
        technology, kind = self.technology, self.machine.dram_kind
        if technology is not None and kind is not None:
            technology.dram_figure(kind)
        self.machine.check_design(self)
        names = [method.member_name for method in self.methods]
        for index, method in enumerate(self.methods):
            if names[index] in names[:index]:
                raise ConfigError(f'methods: "{names[index]}" is there twice; give it once')
            with METHODS.errors_of(names[index]):
                method.check_design(self)

    @property
    def technology(self) -> Technology | None:
        """The technology table that the machine names; None for a machine with figures of its own."""
        name = self.machine.technology
        return None if name is None else load_technology(name)

    def to_plain(self) -> dict[str, Any]:
        """The whole design as dicts, strings and numbers, with defaults, without absent methods and instrument."""
        plain: dict[str, Any] = to_plain(self)
        for name in ("instrument", "methods"):
            if not plain[name]:
                del plain[name]
        return plain


def load_design(
    name_or_path: str | Path, settings: Iterable[str] = (), *, numerics: str | None = None, methods: Iterable[str] = ()
) -> Design:
    """The design of a preset name or a TOML file, with `machine.rows=128`-like settings applied.

    A name that holds a path separator or ends in `.toml` is a file. `numerics` names a recipe (`bf16`) or its file
    (`my.toml`) that takes the place of the design's own; a design may name one too, `numerics = "bf16"`. `methods` are
    added to those of the design, as names or as `NAME.parameter=value`. Paths of a technology table or a recipe are
    relative to the design's own file; in options, to the working directory. A file may begin from another design,
    `base = "h200"`, and give the differences.

    Raises:
        ConfigError: there is no such preset or file, or something in it is wrong.

    >>> load_design("bf16-systolic", ["machine.rows=64"]).machine.rows
    64
    """
    # A file that lists matrix units replaces those of its base; merging would keep units that the chip does not have.
    data, source = read_whole(name_or_path, "presets", "design", _beside, _written_out, replaced=("matrix",))
    if numerics is not None:
        data = {**data, "numerics": recipe_table(numerics)}
    elif isinstance(data.get("numerics"), str):
        with located(source.locate("$.numerics")):
            data = {**data, "numerics": recipe_table(data["numerics"])}
    methods = list(methods)
    if methods:
        data = {**data, "methods": method_tables(data.get("methods", []), methods)}
        source = Source(f"{source.name} with --method {' '.join(methods)}", source.text)
    settings = list(settings)
    if settings:
        given = [setting.partition("=")[0].removeprefix("machine.") for setting in settings]
        data = {**data, "machine": without_other_form(data["machine"], given)} if "machine" in data else data
        data = apply_settings(data, settings, Design, source, also=(BASE,))
        source = Source(f"{source.name} with {' '.join(settings)}", source.text)
    _check_technology(data, source)
    return decode_config(data, Design, source, decode_format, also=(BASE,))


def design_names() -> list[str]:
    """The designs that come with the package."""
    return packaged_names("presets")


def diff_designs(left: Design, right: Design) -> list[tuple[str, Any, Any]]:
    """Path, left value and right value of every field in which two designs differ; a missing field is None."""
    return diff_plain(left.to_plain(), right.to_plain())


def diff_plain(left: dict[str, Any], right: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Path, left value and right value of every field in which two documents differ; a missing field is None."""
    left_fields, right_fields = flat_fields(left), flat_fields(right)
    paths = list(dict.fromkeys([*left_fields, *right_fields]))
    return [
        (path, left_fields.get(path), right_fields.get(path))
        for path in paths
        if left_fields.get(path) != right_fields.get(path)
    ]


def _written_out(data: dict[str, Any], source: Source) -> dict[str, Any]:
    """A design with its recipe and its roles as tables."""
    recipe = data.get("numerics")
    if isinstance(recipe, str):
        with located(source.locate("$.numerics")):
            data = {**data, "numerics": recipe_table(recipe)}
    return write_out(data, Design, source)


def _beside(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`data` with the paths of its technology table and operators taken relative to `folder`."""
    numerics = data.get("numerics")
    if isinstance(numerics, str) and is_path(numerics):
        data = {**data, "numerics": str(folder / numerics)}
    if isinstance(numerics, dict) and "operators" in numerics:
        data = {**data, "numerics": {**numerics, "operators": beside(numerics["operators"], folder)}}
    machine = data.get("machine")
    name = machine.get("technology") if isinstance(machine, dict) else None
    if not isinstance(machine, dict) or not isinstance(name, str) or not is_path(name):
        return data
    return {**data, "machine": {**machine, "technology": str(folder / name)}}


def _check_technology(data: dict[str, Any], source: Source) -> None:
    """Read the technology table before the design, so that an error in it is reported at `$.machine.technology`."""
    machine = data.get("machine")
    name = machine.get("technology") if isinstance(machine, dict) else None
    if isinstance(name, str):
        with located(source.locate("$.machine.technology")):
            load_technology(name)


def flat_fields(value: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a document by path; the items of a list of tables have their index in it."""
    if value in ({}, []):
        return {}
    if isinstance(value, dict):
        branches = [flat_fields(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()]
        return {leaf: item for branch in branches for leaf, item in branch.items()}
    if isinstance(value, list) and isinstance(value[0], dict):
        return {
            leaf: item for index, row in enumerate(value) for leaf, item in flat_fields(row, f"{path}[{index}]").items()
        }
    return {path: value}
