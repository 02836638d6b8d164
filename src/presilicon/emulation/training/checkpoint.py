"""Checkpoints: a training run on disk, from which it continues to the same bits, and all that determines these.

A checkpoint is a safetensors file with a JSON document in its header and a hash over both; never pickle.
"""

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from presilicon.base import ConfigError, RunFailedError, extensions_named_in, meaning, to_plain, write_atomically
from presilicon.designs import MINIBATCH, Method, Numerics, UpdateRule
from presilicon.operators import Operator
from presilicon.records import Evaluation, FactsRun, PassiveHook, Stateful, Trace, TrainingHook
from presilicon.runs import CHECKPOINT_EVERY, versions
from presilicon.workloads import Workload


class Checkpoint(NamedTuple):
    """The file that a training run is saved to, and how often."""

    path: Path
    every: int = CHECKPOINT_EVERY
    """Number of evaluations between two writes."""


class Progress(NamedTuple):
    """The parts of a trace that grow while a run is in progress."""

    losses: list[float]
    runs: list[FactsRun]
    evaluations: list[Evaluation]


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


class Generators:
    """torch's random generators, of the CPU and of the device in use."""

    def __init__(self, device: str) -> None:
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        """The states of both; the GPU's only if one is used."""
        state = {"cpu": torch.get_rng_state()}
        return state | ({"cuda": torch.cuda.get_rng_state(self._device)} if self._device.startswith("cuda") else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set both generators."""
        torch.set_rng_state(state["cpu"])
        if "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self._device)


class Snapshot:
    """A run in progress, in memory: a place to return to."""

    def __init__(self, states: Mapping[str, Stateful], progress: Progress) -> None:
        self._states = {name: deepcopy(state.state_dict()) for name, state in states.items()}
        self._progress = Progress(progress.losses.copy(), progress.runs.copy(), progress.evaluations.copy())

    def restore(self, states: Mapping[str, Stateful], progress: Progress) -> None:
        """Return a run to where it was."""
        for name, state in states.items():
            state.load_state_dict(self._states[name])
        progress.losses[:], progress.runs[:], progress.evaluations[:] = self._progress


def write_progress(path: Path, identity: Mapping[str, Any], progress: Progress, states: Mapping[str, Stateful]) -> None:
    """Save a run in progress, replacing the file; a crash leaves the old file or the new one.

    `identity` says which run it is, as plain data.

    Raises:
        RunFailedError: the file cannot be written.
    """
    saved = {name: state.state_dict() for name, state in states.items()}
    _write(path, {"identity": dict(identity), "states": saved, **_packed(progress)})


def read_progress(path: Path, identity: Mapping[str, Any], states: Mapping[str, Stateful]) -> Progress:
    """The progress of the run in a file, empty if there is no file; each of `states` is restored from it.

    Raises:
        ConfigError: the file is damaged, or belongs to another run.
    """
    document = _read(path, identity)
    if document is None:
        return Progress([], [], [])
    saved = document["states"]
    missing = [name for name, state in states.items() if name not in saved and not isinstance(state, PassiveHook)]
    if missing:
        raise ConfigError(
            f"{path.name}: this checkpoint has no state of {', '.join(missing)}; use the same hooks as before, "
            "or delete the checkpoint to start again"
        )
    for name, state in states.items():
        if name in saved:
            state.load_state_dict(saved[name])
    return _unpacked(document)


def write_trace(path: Path, identity: Mapping[str, Any], trace: Trace) -> None:
    """Save a finished run: its trace, without its weights.

    Raises:
        RunFailedError: the file cannot be written.
    """
    progress = Progress(list(trace.losses), list(trace.runs), list(trace.evaluations))
    names = [name for name in Trace.__struct_fields__ if name not in _PACKED]
    trace_fields = {name: msgspec.to_builtins(getattr(trace, name)) for name in names}
    _write(path, {"identity": dict(identity), "trace": trace_fields, **_packed(progress)})


def read_trace(path: Path, identity: Mapping[str, Any]) -> Trace | None:
    """The trace in a file; None if there is no file or the run in it has not finished.

    Raises:
        ConfigError: the file is damaged, or belongs to another run.
    """
    document = _read(path, identity)
    if document is None or "trace" not in document:
        return None
    losses, runs, evaluations = _unpacked(document)
    trace = msgspec.convert({**document["trace"], "losses": [], "runs": [], "evaluations": []}, Trace)
    return msgspec.structs.replace(trace, losses=tuple(losses), runs=tuple(runs), evaluations=tuple(evaluations))


_PACKED = ("losses", "runs", "evaluations")
"""Fields of a trace that `_packed` saves."""


def _packed(progress: Progress) -> dict[str, Any]:
    """Numbers as float64 tensors, because a loss may be NaN, which JSON cannot express."""
    points = [list(msgspec.structs.astuple(point)) for point in progress.evaluations]
    return {
        "losses": torch.tensor(progress.losses, dtype=torch.float64),
        "evaluations": torch.tensor(points, dtype=torch.float64).reshape(-1, len(Evaluation.__struct_fields__)),
        "runs": msgspec.to_builtins(progress.runs),
    }


def _unpacked(document: Mapping[str, Any]) -> Progress:
    names = Evaluation.__struct_fields__
    rows = [dict(zip(names, row, strict=True)) for row in document["evaluations"].tolist()]
    points = [msgspec.convert(row, Evaluation, strict=False) for row in rows]
    return Progress(document["losses"].tolist(), msgspec.convert(document["runs"], list[FactsRun]), points)


def _write(path: Path, state: dict[str, Any]) -> None:
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    document = json.dumps(_plain(state, "", tensors), allow_nan=False)
    header = json.dumps({"document": document, "sha256": _digest(document, tensors)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(tensors, {"state": header}))
    except OSError as error:
        raise RunFailedError(f"{path}: cannot be written ({error.strerror or error})") from None


def _read(path: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document in a file whose hash is right, with its tensors in place."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads(file.metadata()["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["sha256"] != _digest(header["document"], tensors):
            raise ValueError("its contents do not match its hash")
        document: dict[str, Any] = _with_tensors(json.loads(header["document"]), tensors)
        saved = json.loads(json.dumps(document["identity"]))  # in JSON, tuples are lists
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ConfigError(
            f"{path.name}: this checkpoint is damaged or of an older version ({reason}); delete it to start again"
        ) from None
    expected = json.loads(json.dumps(dict(identity)))
    different = [name for name in {**expected, **saved} if expected.get(name) != saved.get(name)]
    if different:
        raise ConfigError(
            f"{path.name}: this checkpoint belongs to a run with a different {', '.join(different)}; "
            "use another folder, or delete it to start again"
        )
    return document


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


def identity(
    workload: Workload,
    numerics: Numerics,
    seed: int,
    device: str,
    operators: Sequence[Operator] = (),
    hooks: Sequence[TrainingHook] = (),
    update_rule: UpdateRule = MINIBATCH,
    methods: Sequence[Method] = (),
) -> dict[str, Any]:
    """Everything that determines the bits of a run; a checkpoint must agree with it."""
    plain: dict[str, Any] = {"workload": workload.describe(), "numerics": to_plain(numerics)}
    plain["meaning of training"] = meaning()["training"]
    if operators:
        plain["operators"] = [operator.describe() for operator in operators]
    active = [_describe_hook(hook) for hook in hooks if not isinstance(hook, PassiveHook)]
    if active:
        plain["hooks"] = active
    if update_rule != MINIBATCH:
        plain["update_rule"] = to_plain(update_rule)
    if methods:
        plain["methods"] = [to_plain(method) for method in methods]
    extensions = extensions_named_in(json.dumps(plain, default=str))
    if extensions:
        plain["extensions"] = extensions
    return plain | {"seed": seed, "device": device, "versions": versions()}


def _describe_hook(hook: TrainingHook) -> Any:
    """A hook's own `describe()`, which should contain its parameters, or else the name of its type."""
    name = f"{type(hook).__module__}.{type(hook).__qualname__}"
    describe = getattr(hook, "describe", None)
    return name if describe is None else {name: to_plain(describe())}
