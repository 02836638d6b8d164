"""Emulated training with the design's instrument attached."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from presilicon.base import ConfigError, file_stem, located
from presilicon.designs import Design, Instrument, Numerics
from presilicon.emulation import train
from presilicon.instrument import (
    CONTROL_FILE,
    TOKEN_FILE,
    Agreement,
    Commands,
    CommandSource,
    InstrumentEngine,
    Repeated,
    Resumed,
    TrainingInstrument,
    check_taps,
    compare_streams,
)
from presilicon.records import Event, InstrumentAnswer, InstrumentEvent, InstrumentStarted, Trace
from presilicon.runs import EVENTS_FILE, read_events
from presilicon.workloads import Workload, ends_of, multiplying_layers


class InstrumentTask(NamedTuple):
    """The instrument of one training run, for the process that trains."""

    instrument: Instrument
    step_s: float | None = None
    """Duration of a step on the machine."""
    directory: Path | None = None
    """The run's directory, with commands and the recorded stream."""


def instrument_of(
    task: InstrumentTask,
    numerics: Numerics,
    emit: Callable[[InstrumentEvent], None],
    *,
    name: str,
    engine: InstrumentEngine | None = None,
    commands: Callable[[str], CommandSource] | None = None,
) -> TrainingInstrument:
    """The observer and hook for `train`; `name` is that of the training, for its stream file."""
    directory = task.directory
    if commands is None and directory is not None:
        commands = _commands_in(directory, name)
    return TrainingInstrument(
        task.instrument,
        layers_of=multiplying_layers,
        emit=emit,
        step_s=task.step_s,
        format_of=lambda model, layer, role: numerics.resolve(role, layer, ends=ends_of(model)).format,  # type: ignore[arg-type]
        commands=commands,
        stream_file=directory / stream_file(name) if directory is not None and task.instrument.record else None,
        token_file=None if directory is None else directory / TOKEN_FILE,
        engine=engine,
    )


def _commands_in(directory: Path, name: str) -> Callable[[str], CommandSource]:
    """The commands of a training: those it had carried out before it was interrupted, then new ones."""
    answers = [
        event
        for event in read_events(directory / EVENTS_FILE)
        if isinstance(event, InstrumentAnswer) and f"{event.design}-seed{event.seed}" == name
    ]
    return lambda stream: Resumed(Repeated(answers), Commands(directory / CONTROL_FILE, stream))


def stream_file(name: str) -> str:
    """Name of the file in a run's directory with the stream of a training."""
    return f"stream-{file_stem(name)}.bin"


def check_instrument(design: Design, workload: Workload) -> None:
    """Check that a design's instrument can be wired to a workload's model and programmed.

    Raises:
        ConfigError: a pattern matches no layer, or the hardware is too small for the aggregations.
    """
    if design.instrument is None:
        return
    with located(f'design "{design.name}"'):
        check_taps(design.instrument, layers_of_workload(workload))


def layers_of_workload(workload: Workload) -> list[str]:
    """Layers of a workload's model that can be tapped."""
    with torch.random.fork_rng(devices=[]):
        return multiplying_layers(workload.model())


def train_watched(
    workload: Workload,
    design: Design,
    *,
    seed: int = 0,
    device: str = "cpu",
    emit: Callable[[InstrumentEvent], None] = lambda event: None,
    step_s: float | None = None,
    directory: Path | None = None,
    engine: InstrumentEngine | None = None,
    commands: Callable[[str], CommandSource] | None = None,
    links: Sequence[Any] = (),
    **options: Any,
) -> Trace:
    """`presilicon.train` with the design's numerics and its instrument; `emit` gets the instrument's events.

    `engine` replaces the fast model: the reference, the circuit in a simulator, or two in lockstep. `links` get the
    bytes of the instrument beside its own ones. Other options are those of `train`.

    Raises:
        ConfigError: the design has no instrument, or it does not fit the model.
    """
    if design.instrument is None:
        raise ConfigError(f'design "{design.name}" has no [instrument] section')
    task = InstrumentTask(design.instrument, step_s, directory)
    name = f"{design.name}-seed{seed}"
    watching = instrument_of(task, design.numerics, emit, name=name, engine=engine, commands=commands)
    watching.links.extend(links)
    hooks = [*options.pop("hooks", ()), watching]
    observers = [*options.pop("observers", ()), watching]
    options |= {"update_rule": design.machine.update_rule, "methods": design.methods}
    try:
        return train(workload, design.numerics, seed=seed, device=device, observers=observers, hooks=hooks, **options)
    finally:
        watching.finish()


def compare_with_stream(
    recorded: bytes, workload: Workload, design: Design, events: Sequence[Event], *, seed: int = 0, **options: Any
) -> Agreement:
    """Compare a recorded stream with a fresh emulation of its training, with the same commands.

    `recorded` is the stream of a chip, of the circuit in a simulator, or of an earlier emulation; `events` are those of
    the run: answers of other trainings are ignored. "Here" is the fresh emulation, "there" the recorded stream. Other
    options are those of `train_watched`.
    """
    assert design.instrument is not None
    sent = bytearray()
    names: dict[int, str] = {}

    def note(event: InstrumentEvent) -> None:
        if isinstance(event, InstrumentStarted):
            names.update({tap.tap: tap.name for tap in event.taps})

    answers = [event for event in events if isinstance(event, InstrumentAnswer)]
    source = Repeated(
        answer for answer in answers if not answer.design or (answer.design, answer.seed) == (design.name, seed)
    )
    train_watched(
        workload, design, seed=seed, emit=note, commands=lambda stream: source, links=[_RecordingLink(sent)], **options
    )
    return compare_streams(bytes(sent), recorded, design.instrument.built, names=names)


class _RecordingLink:
    """A link that records the sent bytes."""

    def __init__(self, sent: bytearray) -> None:
        self._sent = sent

    def send(self, data: bytes) -> None:
        self._sent += data

    def receive(self) -> bytes:
        return b""

    def close(self) -> None:
        pass
