"""Captured steps that are kept on disk: a step of the package's own workloads is captured once."""

import hashlib
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import msgspec

from presilicon.base import RunFailedError, cache_directory, write_atomically
from presilicon.records import StepGraph
from presilicon.workloads.workload import Workload

_ROOMS = ("base", "records", "workloads")
"""The rooms whose source decides what is captured."""
_PACKAGES = ("torch", "transformers", "msgspec")


def step_graph(workload: Workload, batch_size: int | None = None) -> StepGraph:
    """`capture_workload`, without torch if the same step of a workload of the package was captured before.

    A workload of the user's own is captured each time, because what its code depends on is not known.
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
    parts = (workload.model, workload.loss, workload.optimizer, workload.example, workload.data)
    try:
        spelled = [_spell(part) for part in parts]
    except TypeError:
        return None
    facts = [workload.name, workload.accumulate, batch_size or workload.batch_size, *spelled, *_origins()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _spell(value: Any) -> str:
    """Functions and classes of the package, and plain values, as text.

    Raises:
        TypeError: it is something else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_spell, value))}]"
    if isinstance(value, partial):
        keywords = sorted(f"{key}={_spell(part)}" for key, part in value.keywords.items())
        return f"{_spell(value.func)}({', '.join([*map(_spell, value.args), *keywords])})"
    if callable(value):
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "<")
        is_bound = getattr(value, "__self__", None) is not None  # to something that its name does not tell
        if module.startswith("presilicon.workloads.") and "<" not in name and not is_bound:
            return f"{module}:{name}"
    raise TypeError(f"{value!r} has no name in this package")


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
