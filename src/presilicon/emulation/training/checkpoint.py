"""Checkpoints: a training run on disk, from which it continues to the same bits, and all that determines these.

A checkpoint is a safetensors file with a JSON document in its header and a hash over both; never pickle.
"""

import json
import math
import os
import secrets
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from presilicon.base import ConfigError, RunFailedError, describe_processor, write_atomically
from presilicon.emulation.training.record import changed_parts
from presilicon.records import Evaluation, FactsRun, PassiveHook, RoleShares, Stateful, Trace


class Checkpoint(NamedTuple):
    """The file that a training run is saved to, and how often."""

    path: Path
    every: int | None = None
    """Number of evaluations between two writes; None: as often as `SHARE` of the run's time allows."""
    any_processor: bool = False
    """Whether a run that began on another kind of processor may continue here, though its bits are then of neither."""


SHARE = 0.03
"""The largest part of a run's time that is spent on checkpoints, unless their number is given."""
_FIRST_S, _FIRST_BYTES_PER_S = 0.005, 1e8
"""Time and speed of a write that are expected before the first."""


class Pace:
    """Decides after which evaluations a checkpoint is written."""

    def __init__(self, every: int | None, size: int = 0) -> None:
        """`size` is what a checkpoint will have, in bytes."""
        self._every = every
        self._began = time.perf_counter()
        self._spent_s, self._last_s = 0.0, _FIRST_S + size / _FIRST_BYTES_PER_S

    def is_due(self, evaluations: int) -> bool:
        """Whether to write now, after that many evaluations."""
        if self._every is not None:
            return evaluations % self._every == 0
        return self._spent_s + self._last_s <= SHARE * (time.perf_counter() - self._began)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context in which a checkpoint is written, and timed."""
        start = time.perf_counter()
        yield
        self._last_s = time.perf_counter() - start
        self._spent_s += self._last_s


class Progress(NamedTuple):
    """The parts of a trace that grow while a run is in progress."""

    losses: list[float]
    runs: list[FactsRun]
    evaluations: list[Evaluation]
    shares: list[RoleShares]

    @classmethod
    def none(cls) -> "Progress":
        """That of a run which has not begun."""
        return cls([], [], [], [])


class ModelState:
    """A model's parameters and buffers, including those that `state_dict` leaves out."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """The model's own state and its non-persistent buffers."""
        own = self._model.state_dict()
        others = {name: buffer for name, buffer in self._model.named_buffers() if name not in own}
        return {"own": dict(own), "others": others}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy a state into the model in place."""
        self._model.load_state_dict(state["own"])
        buffers = dict(self._model.named_buffers())
        with torch.no_grad():
            for name, value in state["others"].items():
                buffers[name].copy_(value)


class Snapshot:
    """A run in progress, in memory: a place to return to."""

    def __init__(self, states: Mapping[str, Stateful], progress: Progress) -> None:
        self._states = {name: deepcopy(state.state_dict()) for name, state in states.items()}
        losses, runs, evaluations, shares = progress
        self._progress = Progress(losses.copy(), runs.copy(), evaluations.copy(), shares.copy())

    def restore(self, states: Mapping[str, Stateful], progress: Progress) -> None:
        """Return a run to where it was."""
        for name, state in states.items():
            state.load_state_dict(self._states[name])
        progress.losses[:], progress.runs[:], progress.evaluations[:], progress.shares[:] = self._progress


class History:
    """The growing part of a run on disk: a file that is only appended to, beside its checkpoint.

    The checkpoint names the file, says how much of it belongs to it, and has its hash: what a crash left behind that is
    cut off. Each process that writes has a file of its own, which begins with a copy of what it continues.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.path = checkpoint.with_suffix(f".{secrets.token_hex(4)}.history")
        self._continued: tuple[Path, bytes] | None = None
        self._size, self._hash = 0, sha256()
        self._written = (0, 0, 0, 0)

    def append(self, progress: Progress) -> dict[str, Any]:
        """Write what is new; returns the part of the checkpoint that says how far the file is its own.

        Raises:
            RunFailedError: the file cannot be written.
        """
        losses, runs, evaluations, shares = self._written
        chunk = _Chunk(
            losses=array("d", progress.losses[losses:]).tobytes(),
            runs_from=max(runs - 1, 0),  # the last one may have grown
            runs=progress.runs[max(runs - 1, 0) :],
            evaluations=progress.evaluations[evaluations:],
            shares=progress.shares[shares:],
        )
        line = msgspec.msgpack.encode(chunk)
        data = len(line).to_bytes(8, "little") + line
        before = b"" if self._continued is None else self._continued[1]
        start = self._size - len(before)
        try:
            with self.path.open("r+b" if start else "wb") as file:
                file.truncate(start)
                file.seek(start)
                file.write(before + data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunFailedError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        self._note(data, progress)
        return {"file": self.path.name, "bytes": self._size, "sha256": self._hash.hexdigest()}

    def leave_continued(self) -> None:
        """Remove the file that this one continues, when no checkpoint names it any more."""
        if self._continued is not None:
            with suppress(OSError):
                self._continued[0].unlink(missing_ok=True)
            self._continued = None

    def read(self, own: Mapping[str, Any]) -> Progress:
        """The progress of a checkpoint, whose part of the file is `own`.

        Raises:
            ValueError: the file is not as the checkpoint says.
        """
        path = self.path.with_name(Path(own["file"]).name)
        with path.open("rb") as file:
            data = file.read(own["bytes"])
        if len(data) != own["bytes"] or sha256(data).hexdigest() != own["sha256"]:
            raise ValueError(f"{path.name} does not match it")
        progress, start = Progress.none(), 0
        while start < len(data):
            end = start + 8 + int.from_bytes(data[start : start + 8], "little")
            chunk = _decoder.decode(data[start + 8 : end])
            progress.losses.extend(array("d", chunk.losses))
            progress.runs[chunk.runs_from :] = chunk.runs
            progress.evaluations.extend(chunk.evaluations)
            progress.shares.extend(chunk.shares)
            start = end
        self._continued, self._size, self._hash = (path, data), 0, sha256()
        self._note(data, progress)
        return progress

    def _note(self, data: bytes, progress: Progress) -> None:
        self._hash.update(data)
        self._size += len(data)
        losses, runs, evaluations, shares = progress
        self._written = len(losses), len(runs), len(evaluations), len(shares)


class _Chunk(msgspec.Struct):
    """The part of a history that one checkpoint adds."""

    losses: bytes
    runs_from: int
    runs: list[FactsRun]
    evaluations: list[Evaluation]
    shares: list[RoleShares]


_decoder = msgspec.msgpack.Decoder(_Chunk)


class SavedRun:
    """The files of a training run: its checkpoint and its history."""

    def __init__(self, checkpoint: Checkpoint, identity: Mapping[str, Any]) -> None:
        """`identity` says which run it is, as plain data."""
        self.path, self._identity = checkpoint.path, dict(identity)
        self._any_processor = checkpoint.any_processor
        self._history = History(checkpoint.path)
        self.processors: list[Any] = [self._identity.get("processor")]
        """The kinds of processors that the run has used."""

    def write_progress(self, progress: Progress, states: Mapping[str, Stateful]) -> None:
        """Save a run in progress, replacing the checkpoint; a crash leaves the old one or the new one.

        Raises:
            RunFailedError: a file cannot be written.
        """
        self._write({"states": {name: state.state_dict() for name, state in states.items()}}, progress)

    def read_progress(self, states: Mapping[str, Stateful]) -> Progress:
        """The progress of the run, empty if there is no checkpoint; each of `states` is restored from it.

        Raises:
            ConfigError: the checkpoint is damaged, or belongs to another run.
        """
        document, progress = self._read()
        if document is None:
            return progress
        saved = document["states"]
        missing = [name for name, state in states.items() if name not in saved and not isinstance(state, PassiveHook)]
        if missing:
            raise ConfigError(
                f"{self.path.name}: this checkpoint has no state of {', '.join(missing)}; use the same hooks as "
                "before, or delete the checkpoint to start again"
            )
        for name, state in states.items():
            if name in saved:
                state.load_state_dict(saved[name])
        return progress

    def write_trace(self, trace: Trace) -> None:
        """Save a finished run: its trace, without its weights.

        Raises:
            RunFailedError: a file cannot be written.
        """
        progress = Progress(list(trace.losses), list(trace.runs), list(trace.evaluations), list(trace.shares))
        names = [name for name in Trace.__struct_fields__ if name not in Progress._fields]
        self._write({"trace": {name: msgspec.to_builtins(getattr(trace, name)) for name in names}}, progress)

    def read_trace(self) -> Trace | None:
        """The trace of a run that has finished; None if there is no checkpoint, or the run in it goes on.

        Raises:
            ConfigError: the checkpoint is damaged, or belongs to another run.
        """
        document, progress = self._read()
        if document is None or "trace" not in document:
            return None
        trace = msgspec.convert({**document["trace"], "losses": (), "runs": (), "evaluations": (), "shares": ()}, Trace)
        grown = {name: tuple(values) for name, values in progress._asdict().items()}
        return msgspec.structs.replace(trace, **grown)

    def _write(self, content: dict[str, Any], progress: Progress) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFailedError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        history = self._history.append(progress)
        _write(self.path, {"identity": self._identity, "history": history, "processors": self.processors, **content})
        self._history.leave_continued()

    def _read(self) -> tuple[dict[str, Any] | None, Progress]:
        """The checkpoint's document and its progress, if there is one and it belongs to this run."""
        document = _read(self.path)
        if document is None:
            return None, Progress.none()
        expected = json.loads(json.dumps(self._identity))
        saved = json.loads(json.dumps(document["identity"]))  # in JSON, tuples are lists
        if self._any_processor:
            saved |= {"processor": expected.get("processor")}
        different = changed_parts(saved, expected)
        if different:
            kinds = [saved.get("processor"), expected.get("processor")]
            is_elsewhere = all(name.startswith("processor") for name in different)
            raise ConfigError(
                f"{self.path.name}: this checkpoint belongs to a run with a different {', '.join(different)}"
                + (
                    f" ({' then, '.join(map(describe_processor, kinds))} now), which decides bits; "
                    if is_elsewhere
                    else "; "
                )
                + ("--any-processor continues all the same, and marks the result; " if is_elsewhere else "")
                + "use another folder, or delete it to start again"
            )
        if expected.get("unknown"):
            raise ConfigError(
                f"{self.path.name}: this checkpoint cannot be compared with the run, which depends on "
                f"{', '.join(expected['unknown'])}; use another folder, or delete it to start again"
            )
        self.processors = [
            *document["processors"],
            *(kind for kind in self.processors if kind not in document["processors"]),
        ]
        try:
            return document, self._history.read(document["history"])
        except (OSError, KeyError, ValueError, msgspec.MsgspecError) as error:
            raise _damaged(self.path, error) from None


def _write(path: Path, state: dict[str, Any]) -> None:
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    document = json.dumps(_plain(state, "", tensors), allow_nan=False)
    header = json.dumps({"document": document, "sha256": _digest(document, tensors)})
    write_atomically(path, save(tensors, {"state": header}))


def _read(path: Path) -> dict[str, Any] | None:
    """The document in a file whose hash is right, with its tensors in place; None if there is no file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads(file.metadata()["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["sha256"] != _digest(header["document"], tensors):
            raise ValueError("its contents do not match its hash")
        document: dict[str, Any] = _with_tensors(json.loads(header["document"]), tensors)
        missing = [name for name in ("identity", "history", "processors") if name not in document]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _damaged(path, error) from None
    return document


def _damaged(path: Path, error: Exception) -> ConfigError:
    reason = f"{error} is missing" if isinstance(error, KeyError) else error
    return ConfigError(
        f"{path.name}: this checkpoint is damaged or of an older version ({reason}); delete it to start again"
    )


def pack(state: Mapping[str, Any]) -> bytes:
    """A state of dicts, lists, tuples, tensors, numbers, strings and None as bytes, without pickle.

    >>> unpack(pack({"step": 3, "scales": [1.0, torch.ones(2)]}))
    {'step': 3, 'scales': [1.0, tensor([1., 1.])]}
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    document = json.dumps(_plain(state, "", tensors), allow_nan=False)
    return bytes(save(tensors, {"state": document}))


def unpack(data: bytes) -> dict[str, Any]:
    """The inverse of `pack`.

    Raises:
        ValueError: these bytes are no packed state.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        size = int.from_bytes(data[:8], "little")
        document = json.loads(data[8 : 8 + size])["__metadata__"]["state"]
        state: dict[str, Any] = _with_tensors(json.loads(document), load(data))
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"no packed state: {error}") from None
    return state


def _digest(document: str, tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of a checkpoint's contents: its document, and name, type, shape and bytes of each tensor."""
    digest = sha256(document.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _plain(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """A state as JSON in which tensors are referred to by name; the tensors are added to `tensors`."""
    if isinstance(value, Tensor):
        while path in tensors:  # a key may contain the separator
            path += "+"
        tensors[path] = value.detach().cpu().clone().contiguous()
        return {"tensor": path}
    if isinstance(value, Mapping):
        # As pairs, because the keys of an optimizer's state are numbers.
        return {"dict": [[key, _plain(item, f"{path}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_plain(item, f"{path}/{index}", tensors) for index, item in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(
        f"a checkpoint cannot save {path}, a {type(value).__name__}: state must consist of tensors, numbers, strings, "
        "lists and dicts"
    )


def _with_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `_plain`."""
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float(content)
    if kind == "dict":
        return {key: _with_tensors(item, tensors) for key, item in content}
    items: Sequence[Any] = [_with_tensors(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
