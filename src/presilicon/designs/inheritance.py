"""Files that begin from another, `base = "h200"`, and give the differences."""

from collections.abc import Callable, Collection
from importlib.resources import files
from pathlib import Path
from typing import Any

from presilicon.base import ConfigError, Source, located

Read = Callable[[str | Path], tuple[dict[str, Any], Source]]
Beside = Callable[[dict[str, Any], Path], dict[str, Any]]


def packaged_names(folder: str) -> list[str]:
    """The TOML files in a folder of this package, without their endings."""
    directory = files("presilicon.designs").joinpath(*folder.split("/"))
    return sorted(entry.name.removesuffix(".toml") for entry in directory.iterdir() if entry.name.endswith(".toml"))


def read_whole(
    name_or_path: str | Path,
    *,
    what: str,
    presets: Collection[str],
    read: Read,
    beside: Beside,
    replaced: Collection[str] = (),
    above: tuple[str, ...] = (),
) -> tuple[dict[str, Any], Source]:
    """The document of a file merged over that of its base: tables are merged, other values replaced.

    `what` names the kind of file in messages, `beside` makes paths in it relative to the file's folder. Tables named in
    `replaced` are not merged but replaced as a whole.

    Raises:
        ConfigError: the base is not a name, does not exist, or is based on the file itself.
    """
    data, source = read(name_or_path)
    is_preset = str(name_or_path) in presets
    folder = Path(name_or_path).parent
    if not is_preset:
        data = beside(data, folder)
    if "base" not in data:
        return data, source
    base = data.pop("base")
    place = source.locate("$.base")
    if not isinstance(base, str):
        raise ConfigError(f"{place}: given {base!r}, expected the name of a preset or a {what} file")
    if base not in presets and not is_preset:
        base = str(folder / base)
    if base in above:
        raise ConfigError(f"{place}: {base} is based on itself")
    with located(place):
        below, _ = read_whole(
            base, what=what, presets=presets, read=read, beside=beside, replaced=replaced, above=(*above, base)
        )
    inherited = {key: value for key, value in below.items() if key not in ("name", "description")}
    return _merge(inherited, data, replaced), source


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
