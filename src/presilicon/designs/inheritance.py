"""TOML files of the package, by name, and of the user; a file may begin from another, `base = "h200"`."""

from collections.abc import Callable, Collection
from importlib.resources import files
from pathlib import Path
from typing import Any

from presilicon.base import ConfigError, Source, located, parse_toml, read_toml, unknown

BASE = "base"
"""The key of what a file begins from."""

Beside = Callable[[dict[str, Any], Path], dict[str, Any]]
WriteOut = Callable[[dict[str, Any], Source], dict[str, Any]]


def packaged_names(folder: str) -> list[str]:
    """The TOML files in a folder of this package, without their endings."""
    directory = files("presilicon.designs").joinpath(*folder.split("/"))
    return sorted(entry.name.removesuffix(".toml") for entry in directory.iterdir() if entry.name.endswith(".toml"))


def is_path(name_or_path: str) -> bool:
    """Whether the text names a file, and not something that comes with the package."""
    return name_or_path.endswith(".toml") or "/" in name_or_path or "\\" in name_or_path


def read_packaged(
    name_or_path: str | Path, folder: str, what: str, *, again: bool = False
) -> tuple[dict[str, Any], Source]:
    """The document of that name in a folder of this package, or in the user's file, which may be read `again`.

    `what` is its kind in messages.

    Raises:
        ConfigError: there is neither, or the file is not TOML.
    """
    text, names = str(name_or_path), packaged_names(folder)
    if text in names:
        file = files("presilicon.designs").joinpath(*folder.split("/"), f"{text}.toml")
        return parse_toml(file.read_text(encoding="utf-8"), f"{what} {text}")
    if is_path(text) or _exists(Path(text)):
        return read_toml(Path(text), again=again)
    raise ConfigError(f"{unknown(what, text[:100], names)}; or give a file, whose name ends in .toml")


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that the file system does not take
        return False


def read_whole(
    name_or_path: str | Path,
    folder: str,
    what: str,
    beside: Beside,
    written_out: WriteOut,
    *,
    replaced: Collection[str] = (),
    above: tuple[str, ...] = (),
) -> tuple[dict[str, Any], Source]:
    """`read_packaged`, merged over the document of its base: tables are merged, other values replaced.

    `beside` makes paths in a file relative to the file's folder. `written_out` gives the base with tables in place of
    texts that stand for them, such as a recipe or a format, so that fields of these can be given alone. Tables named in
    `replaced` are not merged but replaced as a whole.

    Raises:
        ConfigError: the base is not a name, does not exist, or is based on the file itself.
    """
    data, source = read_packaged(name_or_path, folder, what)
    presets = packaged_names(folder)
    is_preset = str(name_or_path) in presets
    if not is_preset:
        data = beside(data, Path(name_or_path).parent)
    if BASE not in data:
        return data, source
    base = data.pop(BASE)
    place = source.locate("$.base")
    if not isinstance(base, str):
        raise ConfigError(f"{place}: given {base!r}, expected the name of a preset or a {what} file")
    if base not in presets and not is_preset:
        base = str(Path(name_or_path).parent / base)
    if base in above:
        raise ConfigError(f"{place}: {base} is based on itself")
    with located(place):
        below, origin = read_whole(base, folder, what, beside, written_out, replaced=replaced, above=(*above, base))
        inherited = {key: value for key, value in below.items() if key not in ("name", "description")}
        return _merge(written_out(inherited, origin), data, replaced), source


_FORMS = {"memories": "sram_kib", "sram_kib": "memories"}
"""Two ways to give the same thing, of which the one that is given replaces an inherited other."""


def without_other_form(table: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """A table without what the given fields say in another way."""
    gone = {_FORMS[key] for key in given if key in _FORMS} - set(given)
    return {key: value for key, value in table.items() if key not in gone}


def _merge(below: dict[str, Any], above: dict[str, Any], replaced: Collection[str]) -> dict[str, Any]:
    merged = without_other_form(below, above)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, dict) and isinstance(under, dict) and key not in replaced:
            value = _merge(under, value, replaced)
        merged[key] = value
    return merged
