"""Recipes: numerics that have a name, as packaged TOML, each with its source."""

from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Struct

from presilicon.base import Source, decode_config, parse_toml, unknown
from presilicon.designs.inheritance import packaged_names
from presilicon.designs.numerics import Numerics, decode_format

_ABOUT = ("description", "source")


class Recipe(Struct, frozen=True, kw_only=True):
    """Numerics with a name."""

    name: str
    description: str
    source: str
    """Publication or library that trains with these numerics."""
    numerics: Numerics


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return packaged_names("recipes")


@cache
def load_recipe(name: str) -> Recipe:
    """The recipe called `name`.

    Raises:
        ConfigError: there is no such recipe.

    >>> str(load_recipe("bf16").numerics.weight)
    'bfloat16'
    """
    data, source = _read(name)
    about = {key: data.pop(key) for key in _ABOUT}
    return Recipe(name=name, numerics=decode_config(data, Numerics, source, decode_format), **about)


def recipe_table(name: str) -> dict[str, Any]:
    """The `[numerics]` table that a recipe stands for in a design file."""
    data, _ = _read(name)
    return {key: value for key, value in data.items() if key not in _ABOUT}


def _read(name: str) -> tuple[dict[str, Any], Source]:
    if name not in recipe_names():
        raise unknown("numerics", name, recipe_names())
    text = (files("presilicon.designs") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    return parse_toml(text, f"numerics {name}")
