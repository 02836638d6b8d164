"""Hardware, firmware and vectors in JSON files, as `presilicon instrument` reads them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from presilicon.base import LARGEST_DATA, ConfigError, Source, decode_config, did_you_mean, located, np, read_json
from presilicon.designs import Hardware, decode_format
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.firmware.ranges import RangeRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMED = {"nan": float("nan"), "inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf")}
"""Numbers that JSON cannot write."""


def read_hardware(path: Path) -> tuple[Hardware, dict[int, RangeRow]]:
    """The hardware in a file: the fields of `Hardware`, and `range_boundaries`, the rows of ranges from 0 on.

    A row is a list of `ranges` + 1 numbers, "-inf" or "inf", or `{"classes": [...]}` with a class or a list of classes
    for each range.

    Raises:
        ConfigError: an unknown key, a wrong type or an impossible value, with its path and what is allowed.
    """
    data = read_json(path, LARGEST_DATA)
    if not isinstance(data, dict):
        raise ConfigError(f'{path}: {_shown(data)}, expected an object like {{"lanes": 8, "ranges": 4}}')
    fields = {key: value for key, value in data.items() if key != "range_boundaries"}
    hardware = decode_config(fields, Hardware, Source(str(path)), decode_format)
    rows = data.get("range_boundaries", [])
    if not isinstance(rows, list):
        raise ConfigError(f"{path}, $.range_boundaries: {_shown(rows)}, expected a list of rows")
    read = {}
    for number, row in enumerate(rows):
        with located(f"{path}, $.range_boundaries[{number}]"):
            read[number] = _row(row)
            if number >= hardware.range_rows:
                raise ConfigError(f"there are {hardware.range_rows} range rows, but this is row {number}, from 0")
            read[number].check(hardware)
    return hardware, read


def _row(data: Any) -> RangeRow:
    if isinstance(data, dict):
        if set(data) != {"classes"}:
            wrong = next((key for key in data if key != "classes"), None)
            raise ConfigError(f'unknown key "{wrong}". Allowed: classes' if wrong else '"classes" is missing')
        if not isinstance(data["classes"], list):
            raise ConfigError(f"classes are {_shown(data['classes'])}, expected a list")
        return RangeRow.of_classes(data["classes"])
    if not isinstance(data, list):
        raise ConfigError(f"{_shown(data)}, expected a list of numbers")
    return RangeRow.of_boundaries(data)


def read_firmware(path: Path, rows: dict[int, RangeRow] | None = None) -> Firmware:
    """The firmware in a file: a list of chains, each a list of instructions, with range rows beside it.

    Or `{"chains": [...], "range_boundaries": [...]}`, whose rows, from 0 on, replace those of the same number.

    Raises:
        ConfigError: with the chain and the instruction, counted from 1.
    """
    chains, own = read_chains(path)
    with located(path):
        return Firmware.from_chains(chains, (rows or {}) | range_rows(own))


def read_chains(path: Path) -> tuple[list[Any], list[Any]]:
    """The chains of a firmware file and its own range rows, as in JSON.

    Raises:
        ConfigError: it is neither a list of chains nor an object with chains and range rows.
    """
    data = read_json(path, LARGEST_DATA)
    if isinstance(data, list):
        return data, []
    if not isinstance(data, dict) or "chains" not in data:
        raise ConfigError(
            f'{path}: {_shown(data)}, expected a list of chains, or {{"chains": [...], "range_boundaries": [...]}}'
        )
    for key, value in data.items():
        if key not in ("chains", "range_boundaries"):
            raise ConfigError(
                f'{path}, $.{key}: unknown key "{key}": {did_you_mean(key, ("chains", "range_boundaries"))}'
            )
        if not isinstance(value, list):
            raise ConfigError(f"{path}, $.{key}: {_shown(value)}, expected a list")
    return data["chains"], data.get("range_boundaries", [])


def range_rows(rows: Sequence[Any]) -> dict[int, RangeRow]:
    """Rows of ranges from 0 on, each a list of boundaries or `{"classes": [...]}`.

    Raises:
        ConfigError: with the row.
    """
    read = {}
    for number, row in enumerate(rows):
        with located(f"range row {number}"):
            read[number] = _row(row)
    return read


def read_vectors(path: Path, hardware: Hardware) -> "tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]":
    """The vectors in a file: values [V, N], frame ends [V, 2], taps [V].

    Each is `{"vector": [...], "last": [false, true], "tap": 0}`; the last two may be left out. JSON has no infinities
    and NaN: they are written as "inf", "-inf", "nan".

    Raises:
        ConfigError: with the index of the vector, counted from 0 as in a JSON path.
    """
    data = read_json(path, LARGEST_DATA)
    if not isinstance(data, list):
        raise ConfigError(f'{path}: {_shown(data)}, expected a list of {{"vector": [...], "last": [false, false]}}')
    values = np.zeros((len(data), hardware.lanes))
    last = np.zeros((len(data), 2), dtype=np.bool_)
    taps = np.zeros(len(data), dtype=np.int64)
    for index, item in enumerate(data):
        try:
            values[index], last[index], taps[index] = _vector(item, hardware)
        except ConfigError as error:
            raise ConfigError(f"{path}, $[{index}]{error}") from None
    return values, last, taps


def _vector(item: Any, hardware: Hardware) -> tuple[list[float], list[bool], int]:
    """One vector; errors begin with the path within it."""
    if not isinstance(item, dict):
        raise ConfigError(f': {_shown(item)}, expected an object like {{"vector": [...], "last": [false, false]}}')
    for key in item:
        if key not in ("vector", "last", "tap"):
            raise ConfigError(f'.{key}: unknown key "{key}": {did_you_mean(key, ("vector", "last", "tap"))}')
    if "vector" not in item:
        raise ConfigError(': the required key "vector" is missing')
    vector, last, tap = item["vector"], item.get("last", [False, False]), item.get("tap", 0)
    if not isinstance(vector, list) or len(vector) != hardware.lanes:
        actual = f"{len(vector)} numbers" if isinstance(vector, list) else _shown(vector)
        raise ConfigError(f".vector: {actual}, expected a list of {hardware.lanes}, one for each lane")
    if not isinstance(last, list) or len(last) != 2 or not all(isinstance(flag, bool) for flag in last):
        raise ConfigError(f".last: {_shown(last)}, expected two of true and false: the ends of levels 0 and 1")
    if not isinstance(tap, int) or isinstance(tap, bool) or not 0 <= tap < hardware.taps:
        raise ConfigError(f".tap: {_shown(tap)}, expected 0 to {hardware.taps - 1}")
    return [_number(value, lane) for lane, value in enumerate(vector)], last, tap


def _number(value: Any, lane: int) -> float:
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f'.vector[{lane}]: {_shown(value)}, expected a number, "inf", "-inf" or "nan"')
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
