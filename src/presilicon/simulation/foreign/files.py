"""Files with times of ops: our own CSV and JSON, SCALE-Sim's report, Timeloop's statistics, PyTorch's profiles."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterable
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Any

from presilicon.base import ConfigError, did_you_mean, read_file
from presilicon.records import ForeignTime, ForeignTimes, OpCost
from presilicon.simulation.foreign.profiles import is_averages, read_averages, read_profile

_COLUMNS = ("op", "time_s", "cycles", "energy_j")
_OP_KEYS = frozenset(_COLUMNS) | frozenset(OpCost.__struct_fields__)
"""Keys of an op in JSON, those that `simulate --json` writes included."""
_SCALE_SIM = "LayerID"
_LARGEST = 1 << 30
"""Bytes of the largest file that is read, unpacked: traces of profilers are long."""
_STATS = ("*/timeloop-mapper.stats.txt", "*/timeloop-model.stats.txt", "*.stats.txt")


def read_times(path: Path | str, clock_ghz: float | None = None) -> ForeignTimes:
    """The times in a file, whose kind is recognised by its content.

    - CSV with the columns `op`, `time_s` or `cycles`, and `energy_j` if known. A single row `step` is the whole step.
    - JSON `{"ops": [{"op": ..., "time_s": ...}, ...]}`, as `presilicon simulate --json` writes it too, or
      `{"step": {"time_s": ...}}`.
    - SCALE-Sim's `COMPUTE_REPORT.csv`: the total cycles of each layer; the layers are the matrix products in order.
    - Timeloop's statistics of one op, `OP.stats.txt` or `OP/timeloop-mapper.stats.txt`, or a directory of such.
    - A Chrome trace that PyTorch's profiler exported (`.json`, `.json.gz`), or its averages by operator as CSV.

    `clock_ghz` turns cycles into seconds.

    Raises:
        ConfigError: the file cannot be read or is none of these, a figure is missing, negative or not a number, or
            cycles were given without a clock. The message says where.
    """
    path = Path(path)
    if clock_ghz is not None and not (isfinite(clock_ghz) and clock_ghz > 0):
        raise ConfigError(f"the clock must be a number of GHz above 0, not {clock_ghz!r}")
    if path.is_dir():
        return _read_statistics(path, clock_ghz)
    text = _text(path)
    if "Summary Stats" in text and path.suffix == ".txt":
        return _timeloop(path, [_statistics(path, text, clock_ghz)])
    if text.lstrip().startswith(("{", "[")):
        return _read_json(path, text, clock_ghz)
    return _read_csv(path, text, clock_ghz)


def _text(path: Path) -> str:
    content = read_file(path, _LARGEST)
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ConfigError(f"{path}: more than {_LARGEST >> 20} MiB unpacked, the most that is read of such a file")
        return content.decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error):
        raise ConfigError(f"{path}: not a text file, so no times can be read from it") from None


def _read_csv(path: Path, text: str, clock_ghz: float | None) -> ForeignTimes:
    reader = csv.reader(text.splitlines())
    try:
        rows = [[cell.strip() for cell in row] for row in reader]
    except csv.Error as error:
        raise ConfigError(f"{path} line {reader.line_num}: not valid CSV: {error}") from None
    if not rows or not any(rows[0]):
        raise ConfigError(f"{path}: the file is empty; its first line should name columns, as in op,time_s,energy_j")
    header = _header(path, rows[0])
    places = [f"{path} line {number}" for number in range(2, len(rows) + 1)]
    table = []
    for place, row in zip(places, rows[1:], strict=True):
        if not any(row):
            continue
        if len(row) < len(header) or any(row[len(header) :]):
            raise ConfigError(f"{place}: {len(row)} values for {len(header)} columns ({', '.join(header)})")
        table.append((place, dict(zip(header, row, strict=False))))
    if not table:
        raise ConfigError(f"{path}: there are columns and no rows")
    if header[0] == _SCALE_SIM:
        return _scale_sim(path, header, table, clock_ghz)
    if is_averages(header):
        return read_averages(path, header, table)
    unknown = next((name for name in header if name not in _COLUMNS), None)
    if unknown is not None or "op" not in header:
        raise ConfigError(
            f'{path} line 1: unknown column "{unknown}": {did_you_mean(unknown, _COLUMNS)}'
            if unknown is not None
            else f'{path} line 1: the column "op" is missing; give op,time_s or op,cycles, and energy_j if known'
        )
    return _own(path, [(place, row) for place, row in table], clock_ghz)


def _header(path: Path, row: list[str]) -> list[str]:
    """The names of the columns; only trailing ones may be empty."""
    header = list(row)
    while not header[-1]:
        header.pop()
    for number, name in enumerate(header):
        if not name:
            raise ConfigError(f"{path} line 1: column {number + 1} has no name")
        if name in header[:number]:
            raise ConfigError(f'{path} line 1: the column "{name[:40]}" comes twice; give each once')
    return header


def _read_json(path: Path, text: str, clock_ghz: float | None) -> ForeignTimes:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} line {error.lineno}: not valid JSON: {error.msg}") from None
    except ValueError:
        raise ConfigError(f"{path}: not valid JSON: a number has thousands of digits") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid JSON: nested too deeply") from None
    if isinstance(document, list) or "traceEvents" in document:
        return read_profile(path, document if isinstance(document, list) else document["traceEvents"])
    is_ours = "schema" in document  # our own documents have one, and many other keys
    if is_ours and "designs" in document:
        document = _only_design(path, document["designs"])
    if "step" in document and "ops" in document:
        raise ConfigError(f'{path}: "step" is the whole step; give it alone, or give "ops"')
    if not is_ours:
        _refuse_unknown(str(path), document, ("ops", "step"), ("ops", "step"))
    if isinstance(document.get("step"), dict):
        _refuse_unknown(f"{path} $.step", document["step"], _COLUMNS[1:], _COLUMNS[1:])
        return _own(path, [(f"{path} $.step", {"op": "step", **document["step"]})], clock_ghz)
    ops = document.get("ops")
    if not isinstance(ops, list) or not all(isinstance(op, dict) for op in ops) or not ops:
        raise ConfigError(
            f'{path}: expected {{"ops": [{{"op": NAME, "time_s": SECONDS}}, ...]}}, {{"step": {{"time_s": SECONDS}}}} '
            "or a trace of PyTorch's profiler"
        )
    for number, op in enumerate(ops):
        _refuse_unknown(f"{path} $.ops[{number}]", op, _OP_KEYS, _COLUMNS)
    rows = [(f"{path} $.ops[{number}]", {"op": op.get("name"), **op}) for number, op in enumerate(ops)]
    return _own(path, rows, clock_ghz)


def _only_design(path: Path, designs: Any) -> dict[str, Any]:
    """The step of the one design in a document of `simulate --json`; before schema 2 it was the document itself."""
    if not isinstance(designs, list) or not all(isinstance(design, dict) for design in designs) or not designs:
        raise ConfigError(f"{path} $.designs: expected the step of one design, as `presilicon simulate --json` writes")
    if len(designs) > 1:
        names = ", ".join(str(design.get("design"))[:60] for design in designs)
        raise ConfigError(f"{path} $.designs: times of {len(designs)} designs ({names}): give the step of one design")
    return designs[0]  # type: ignore[no-any-return]


def _refuse_unknown(place: str, keys: Iterable[str], known: Collection[str], proposed: Iterable[str]) -> None:
    key = next((key for key in keys if key not in known), None)
    if key is not None:
        raise ConfigError(f'{place}: unknown key "{key[:40]}": {did_you_mean(key[:40], proposed)}')


def _own(path: Path, rows: list[tuple[str, dict[str, Any]]], clock_ghz: float | None) -> ForeignTimes:
    entries = []
    for place, row in rows:
        name = row.get("op")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{place}: the name of the op is missing")
        cycles = None
        if row.get("cycles") not in (None, ""):
            cycles = round(figure(row["cycles"], "cycles", place))
        if row.get("time_s") not in (None, ""):
            time_s = figure(row["time_s"], "time_s", place)
        elif cycles is not None:
            time_s = _seconds(cycles, clock_ghz, place)
        else:
            raise ConfigError(f'{place}: "{name}" has neither time_s nor cycles')
        energy = row.get("energy_j")
        energy_j = None if energy in (None, "") else figure(energy, "energy_j", place)
        entries.append(ForeignTime(names=(name,), time_s=time_s, energy_j=energy_j, cycles=cycles, place=place))
    whole = [entry for entry in entries if entry.names == ("step",)]
    if whole and len(entries) > 1:
        raise ConfigError(f'{whole[0].place}: "step" is the whole step; give it alone, or give ops')
    return ForeignTimes(source=str(path), kind="presilicon", matching="step" if whole else "op", entries=tuple(entries))


def _scale_sim(
    path: Path, header: list[str], table: list[tuple[str, dict[str, str]]], clock_ghz: float | None
) -> ForeignTimes:
    if "Total Cycles" not in header:
        raise ConfigError(f'{path} line 1: the column "Total Cycles" of SCALE-Sim\'s COMPUTE_REPORT.csv is missing')
    entries = []
    for place, row in table:
        cycles = round(figure(row["Total Cycles"], "Total Cycles", place))
        time_s = _seconds(cycles, clock_ghz, place)
        entries.append(ForeignTime(names=(row[_SCALE_SIM],), time_s=time_s, cycles=cycles, place=place))
    return ForeignTimes(source=str(path), kind="scale-sim", matching="order", entries=tuple(entries))


def _read_statistics(directory: Path, clock_ghz: float | None) -> ForeignTimes:
    files = sorted(set().union(*(directory.glob(pattern) for pattern in _STATS)))
    if not files:
        raise ConfigError(f"{directory}: no Timeloop statistics there: OP.stats.txt or OP/timeloop-mapper.stats.txt")
    return _timeloop(directory, [_statistics(file, _text(file), clock_ghz) for file in files])


def _timeloop(path: Path, entries: list[ForeignTime]) -> ForeignTimes:
    return ForeignTimes(source=str(path), kind="timeloop", matching="op", entries=tuple(entries))


def _statistics(path: Path, text: str, clock_ghz: float | None) -> ForeignTime:
    """Cycles, and energy in microjoules, from the summary at the end of Timeloop's statistics."""
    name = path.parent.name if path.name.startswith("timeloop-") else path.name.removesuffix(".stats.txt")
    start = text.rfind("Summary Stats")
    first = text[:start].count("\n") + 1
    figures: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(text[start:].splitlines() if start >= 0 else [], start=first):
        match = re.match(r"(Cycles|Energy):\s*(\S+)\s*(\S*)", line)
        if match:
            if match[1] == "Energy" and match[3] != "uJ":
                raise ConfigError(f"{path} line {number}: the energy should be in uJ, not in {match[3] or 'no unit'!r}")
            figures.setdefault(match[1], (match[2], f"{path} line {number}"))
    if "Cycles" not in figures:
        raise ConfigError(f'{path}: no "Cycles:" under "Summary Stats", so it is no statistics file of Timeloop')
    cycles = round(figure(*_named(figures["Cycles"], "Cycles")))
    energy_j = figure(*_named(figures["Energy"], "Energy")) * 1e-6 if "Energy" in figures else None
    place = figures["Cycles"][1]
    return ForeignTime(
        names=(name,), time_s=_seconds(cycles, clock_ghz, place), energy_j=energy_j, cycles=cycles, place=place
    )


def _named(entry: tuple[str, str], what: str) -> tuple[str, str, str]:
    return entry[0], what, entry[1]


def figure(value: Any, what: str, place: str) -> float:
    """A number that is finite and not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{place}: {what} is {str(value)[:40]!r}, expected a number") from None
    except OverflowError:
        raise ConfigError(f"{place}: {what} is {str(value)[:12]}..., more than a float can hold") from None
    if isinstance(value, bool) or not isfinite(number) or number < 0:
        raise ConfigError(f"{place}: {what} is {str(value)[:40]}, expected a finite number of at least 0")
    return number


def _seconds(cycles: int, clock_ghz: float | None, place: str) -> float:
    if clock_ghz is None:
        raise ConfigError(f"{place}: it counts cycles; give their clock, as in --clock-ghz 1.0")
    time_s = cycles * 1e-9 / clock_ghz
    if not isfinite(time_s):
        raise ConfigError(f"{place}: {cycles:.3g} cycles at {clock_ghz:g} GHz are more seconds than a float can hold")
    return time_s
