"""A training run on disk, from which it goes on to the same bits: safetensors with a JSON header, never pickle."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import torch
from torch import Tensor, nn

from presilicon.base.errors import ConfigError, RunFailedError
from presilicon.records import Evaluation, FactsRun, Trace
from presilicon.runs.run import write_atomically

EVERY = 10
"""Evaluations between two checkpoints, unless told otherwise."""


@runtime_checkable
class Stateful(Protocol):
    """Whatever carries state from one training step to the next: torch's optimizers, a loss scaler, a training hook.

    The state is made of dicts, lists, tuples, tensors, numbers, texts and None.
    """

    def state_dict(self) -> dict[str, Any]:
        """The state, as it is now."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Go back to a state."""
        ...


@runtime_checkable
class Onlooker(Stateful, Protocol):
    """Whoever carries state but changes nothing: a run that was kept without it can go on with it."""

    only_looks_on: Literal[True]


class Checkpoint(NamedTuple):
    """Where a training run is kept, and how often."""

    path: Path
    every: int = EVERY
    """Evaluations between two writes."""


class Progress(NamedTuple):
    """How far a run is: what its trace holds so far."""

    losses: list[float]
    runs: list[FactsRun]
    evaluations: list[Evaluation]


class ModelState:
    """A model's parameters and buffers, those too that `state_dict` leaves out."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """The model's own state, and the other buffers beside it."""
        kept = self._model.state_dict()
        return {"kept": dict(kept), "others": {n: b for n, b in self._model.named_buffers() if n not in kept}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy a state into the model, where it lies."""
        self._model.load_state_dict(state["kept"])
        buffers = dict(self._model.named_buffers())
        with torch.no_grad():
            for name, value in state["others"].items():
                buffers[name].copy_(value)


class Generators:
    """torch's own random generators, of the CPU and of the device in use."""

    def __init__(self, device: str) -> None:
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        """The states of both; that of a GPU only where one is used."""
        found = {"cpu": torch.get_rng_state()}
        return found | ({"cuda": torch.cuda.get_rng_state(self._device)} if self._device.startswith("cuda") else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set both generators."""
        torch.set_rng_state(state["cpu"])
        if "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self._device)


def write_progress(path: Path, of: Mapping[str, Any], progress: Progress, states: Mapping[str, Stateful]) -> None:
    """Keep a run that is under way, in place of what the file held; a crash leaves the old file or the new one.

    `of` says which run it is, as plain data. Each of `states` is asked for its state.
    """
    _write(path, {"of": dict(of), "states": {n: s.state_dict() for n, s in states.items()}, **_packed(progress)})


def read_progress(path: Path, of: Mapping[str, Any], states: Mapping[str, Stateful]) -> Progress:
    """How far the run in a file is, nothing when there is no file; each of `states` is set to what it was then.

    Raises:
        ConfigError: the file cannot be read, or is of another run.
    """
    found = _read(path, of)
    if found is None:
        return Progress([], [], [])
    kept = found["states"]
    missing = [name for name, state in states.items() if name not in kept and not isinstance(state, Onlooker)]
    if missing:
        raise ConfigError(
            f"{path.name}: this checkpoint has no state of {', '.join(missing)}; give the same hooks as then, "
            "or delete it to begin anew"
        )
    for name, state in states.items():
        if name in kept:
            state.load_state_dict(kept[name])
    return _unpacked(found)


def write_trace(path: Path, of: Mapping[str, Any], trace: Trace) -> None:
    """Keep a finished run: its trace, and no longer its weights."""
    progress = Progress(list(trace.losses), list(trace.runs), list(trace.evaluations))
    names = [name for name in Trace.__struct_fields__ if name not in _PACKED]
    ended = {name: msgspec.to_builtins(getattr(trace, name)) for name in names}
    _write(path, {"of": dict(of), "ended": ended, **_packed(progress)})


def read_trace(path: Path, of: Mapping[str, Any]) -> Trace | None:
    """The trace in a file, None when there is no file or the run in it has not ended.

    Raises:
        ConfigError: the file cannot be read, or is of another run.
    """
    found = _read(path, of)
    if found is None or "ended" not in found:
        return None
    losses, runs, evaluations = _unpacked(found)
    ended = msgspec.convert({**found["ended"], "losses": [], "runs": [], "evaluations": []}, Trace)
    return msgspec.structs.replace(ended, losses=tuple(losses), runs=tuple(runs), evaluations=tuple(evaluations))


_PACKED = ("losses", "runs", "evaluations")
"""Fields of a trace that `_packed` keeps."""


def _packed(progress: Progress) -> dict[str, Any]:
    """Numbers as tensors of 64 bits: a loss may be no number, which JSON could not say."""
    points = [[point.step, point.accuracy, point.loss] for point in progress.evaluations]
    return {
        "losses": torch.tensor(progress.losses, dtype=torch.float64),
        "evaluations": torch.tensor(points, dtype=torch.float64).reshape(-1, 3),
        "runs": msgspec.to_builtins(progress.runs),
    }


def _unpacked(found: Mapping[str, Any]) -> Progress:
    points = [Evaluation(step=int(step), accuracy=a, loss=loss) for step, a, loss in found["evaluations"].tolist()]
    return Progress(found["losses"].tolist(), msgspec.convert(found["runs"], list[FactsRun]), points)


def _write(path: Path, state: dict[str, Any]) -> None:
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    document = json.dumps(_plain(state, "", tensors), allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(tensors, {"state": document}))
    except OSError as error:
        raise RunFailedError(f"the checkpoint {path.name} cannot be written: {error.strerror or error}") from None


def _read(path: Path, of: Mapping[str, Any]) -> dict[str, Any] | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            document = json.loads(file.metadata()["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found: dict[str, Any] = _alive(document, tensors)
        kept = found["of"]
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path.name}: this checkpoint cannot be read ({error}); delete it to begin anew") from None
    # Compared as JSON has them, in which tuples are lists.
    wanted = json.loads(json.dumps(dict(of)))
    different = [name for name in {**wanted, **kept} if wanted.get(name) != kept.get(name)]
    if different:
        raise ConfigError(
            f"{path.name}: this checkpoint is of a run with other {', '.join(different)}; "
            "use another folder, or delete it to begin anew"
        )
    return found


def _plain(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """A state as JSON in which tensors are named; the tensors themselves are put into `tensors`."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().clone().contiguous()
        return {"tensor": path}
    if isinstance(value, Mapping):
        # As pairs, because an optimizer's keys are numbers.
        return {"dict": [[key, _plain(each, f"{path}/{key}", tensors)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_plain(each, f"{path}/{index}", tensors) for index, each in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(
        f"a checkpoint cannot keep {path}, a {type(value).__name__}: state is made of tensors, numbers, texts, lists "
        "and dicts"
    )


def _alive(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float(content)
    if kind == "dict":
        return {key: _alive(each, tensors) for key, each in content}
    parts: Sequence[Any] = [_alive(each, tensors) for each in content]
    return tuple(parts) if kind == "tuple" else parts
