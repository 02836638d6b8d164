"""Recipes: numerics in a file of their own, packaged by name or written by the user."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from presilicon.base import Source, decode_config, to_plain, to_toml, write_out
from presilicon.designs.inheritance import BASE, is_path, packaged_names, read_whole
from presilicon.designs.numerics import Numerics, decode_format
from presilicon.designs.operators import beside

_ABOUT = ("description", "source")


class Recipe(Struct, frozen=True, kw_only=True):
    """Numerics with a name."""

    name: str
    description: str = ""
    source: str = ""
    """Publication or library that trains with these numerics."""
    numerics: Numerics


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return packaged_names("recipes")


def load_recipe(name_or_path: str | Path) -> Recipe:
    """The recipe of that name, or in that TOML file; a file may begin from another, `base = "fp8-hybrid"`.

    Raises:
        ConfigError: there is no such recipe or file, or something in it is wrong.

    >>> str(load_recipe("bf16").numerics.weight)
    'bfloat16'
    """
    data, source = read_whole(name_or_path, "recipes", "numerics", _beside, _written_out)
    about = {key: str(data.pop(key)) for key in _ABOUT if key in data}
    numerics = decode_config(data, Numerics, source, decode_format, also=(BASE, *_ABOUT))
    return Recipe(name=recipe_label(name_or_path), numerics=numerics, **about)


def load_numerics(name_or_path: str | Path) -> Numerics:
    """The numerics of a recipe, by its name or its TOML file.

    >>> str(load_numerics("mxfp8").weight)
    'mxfp8_e4m3'
    """
    return load_recipe(name_or_path).numerics


def recipe_table(name_or_path: str | Path) -> dict[str, Any]:
    """The `[numerics]` table that a recipe stands for in a design file."""
    data, source = read_whole(name_or_path, "recipes", "numerics", _beside, _written_out)
    table = {key: value for key, value in data.items() if key not in _ABOUT}
    if is_path(str(name_or_path)):
        decode_config(
            table, Numerics, source, decode_format, also=(BASE, *_ABOUT)
        )  # a mistake is reported at its place in this file
    return table


def write_numerics(numerics: Numerics) -> str:
    """The numerics as the text of a TOML file that `load_numerics` reads, without what is left at its default."""
    plain, default = to_plain(numerics), to_plain(Numerics())
    changed = {key: _concise(value) for key, value in plain.items() if value != default[key]}
    return to_toml(changed) if changed else "# every role in float32\n"


def recipe_label(name_or_path: str | Path) -> str:
    """A name for tables: that of the recipe, or of its file without the ending."""
    return Path(name_or_path).stem if is_path(str(name_or_path)) else str(name_or_path)


def _concise(value: Any) -> Any:
    """A table without its empty entries; a role that has nothing but a format is that format."""
    if isinstance(value, dict):
        entries = {key: _concise(item) for key, item in value.items() if item is not None and item != []}
        return entries["format"] if set(entries) == {"format"} else entries
    return [_concise(item) for item in value] if isinstance(value, list) else value


def _written_out(data: dict[str, Any], source: Source) -> dict[str, Any]:
    """Numerics with their roles as tables."""
    about = {key: data[key] for key in _ABOUT if key in data}
    return write_out({key: value for key, value in data.items() if key not in about}, Numerics, source) | about


def _beside(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {**data, "operators": beside(data["operators"], folder)} if "operators" in data else data
