"""Captured steps that are kept on disk: a step of the package's own workloads is captured once."""

import hashlib
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import msgspec

from presilicon.base import RunFailedError, cache_directory, content_of, extensions_named_in, write_atomically
from presilicon.ops import entered
from presilicon.records import StepGraph
from presilicon.workloads.workload import Workload

_ROOMS = ("base", "records", "ops", "workloads")
"""The rooms whose source decides what is captured."""
_PACKAGES = ("torch", "transformers", "msgspec")


def step_graph(workload: Workload, batch_size: int | None = None) -> StepGraph:
    """`capture_workload`, without torch if the same step of a workload of the package was captured before.

    A workload of the user's own is captured each time, because what its code depends on is not known, and so is every
    workload while the program has entries of its own in the op table.
    """
    name = _name(workload, batch_size)
    kept = None if name is None else _read(name)
    if kept is not None:
        return kept
    from presilicon.workloads.capturing.step_capture import capture_workload

    graph = capture_workload(workload, batch_size)
    if name is not None:
        _write(name, graph)
    return graph


def _read(name: str) -> StepGraph | None:
    """The graph of a name; None if there is none that can be read."""
    try:
        data = (cache_directory("graphs") / name).read_bytes()
        return msgspec.msgpack.decode(data, type=StepGraph)
    except (OSError, msgspec.DecodeError):
        return None


def _write(name: str, graph: StepGraph) -> None:
    """Keep a graph; a directory that cannot be written to only costs time."""
    path = cache_directory("graphs") / name
    with suppress(OSError, RunFailedError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.msgpack.encode(graph))


def _name(workload: Workload, batch_size: int | None) -> str | None:
    """The hash of everything that the captured step depends on; None if it cannot be known."""
    contents = [content_of(getattr(workload, part)) for part in ("model", "loss", "optimizer", "example", "data")]
    if entered() or any(content.unknown or content.modules for content in contents):
        return None
    facts: list[Any] = [workload.name, workload.accumulate, batch_size or workload.batch_size, *_origins()]
    facts.append(extensions_named_in(""))  # packages that change the op table
    facts += [content.digest for content in contents]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _origins() -> tuple[str, ...]:
    """The source of the package, and the versions of those that it captures with."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted(str(path) for path in _modules(files("presilicon") / room)):
            digest.update(path.encode())
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest(), *map(_version, _PACKAGES)


def _modules(directory: Any) -> list[Any]:
    found = []
    for path in directory.iterdir():
        if path.is_dir():
            found += _modules(path)
        elif path.name.endswith(".py"):
            found.append(path)
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
