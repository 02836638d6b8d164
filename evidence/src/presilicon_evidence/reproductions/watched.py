"""Shared by the reproductions with an instrument: synthetic tasks, a design with taps, and watched training."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from msgspec.structs import asdict, replace
from torch import Tensor, nn

from presilicon.designs import Design, Hardware, Instrument, Tap, load_design
from presilicon.formats import parse
from presilicon.instrument import Command
from presilicon.records import (
    Curve,
    Evaluation,
    EvaluationEvent,
    Event,
    InstrumentAnswer,
    InstrumentEvent,
    InstrumentLosses,
    InstrumentReading,
    TapLosses,
    Trace,
)
from presilicon.study import train_watched
from presilicon.workloads import Splits, Workload, sgd

OnEvent = Callable[[Event], None]
CLASSES = 4
SOURCE = (
    "Holanda Noronha et al., Flexible Instrumentation for Live On-Chip Debug of Machine Learning Training on FPGAs "
    "(2021), Figure {}"
)


def spirals() -> Splits:
    """Points of the plane on four arms of a spiral, with noise across them."""
    return Splits(_arms(2048, 1), _arms(512, 2), _arms(512, 3))


def _arms(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (count,), generator=generator)
    radius = torch.rand(count, generator=generator)
    angle = 2 * 3.14159 * label / CLASSES + 4.0 * radius + 0.15 * torch.randn(count, generator=generator)
    return torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], 1) * 2, label


def deep_network(depth: int, width: int, *, leak: float = 0.0) -> nn.Module:
    """`depth` dense layers for points of the plane, with ReLUs between them, leaky if `leak` is above 0."""
    sizes = [2, *[width] * (depth - 1), CLASSES]
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(1, depth + 1):
        parts[f"layer{number}"] = nn.Linear(sizes[number - 1], sizes[number])
        if number < depth:
            parts[f"relu{number}"] = nn.LeakyReLU(leak) if leak else nn.ReLU()
    for layer in parts.values():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return nn.Sequential(parts)


def watched_workload(
    name: str, model: Callable[[], nn.Module], learning_rate: float, steps: int, **rest: Any
) -> Workload:
    """A task that trains for all of its steps, on spirals in batches of 64 unless `rest` says otherwise."""
    optimizer = partial(sgd, learning_rate=learning_rate, momentum=0.9)
    own: dict[str, Any] = {"data": spirals, "batch_size": 64, "evaluate_every": 20} | rest
    return Workload(name=name, model=model, target=1.0, optimizer=optimizer, max_steps=steps, sustain=steps, **own)


def watched_design(name: str, taps: Sequence[Tap], wires: int) -> Design:
    """bfloat16 on the systolic array, with an instrument of 32 lanes of that format and room for these taps.

    A step is assumed to last a millisecond, so that nothing is dropped.
    """
    element = parse("bfloat16")
    hardware = Hardware(element=element, accumulator_bits=32, taps=wires, chains=32, range_rows=16, scratchpad_rows=32)
    instrument = Instrument(hardware=hardware, taps=tuple(taps), step_s=1e-3)
    return replace(load_design("bf16-systolic"), name=name, instrument=instrument)


class Watched(NamedTuple):
    """A training run and the readings of its taps."""

    trace: Trace
    readings: dict[str, list[InstrumentReading]]
    """The readings of each tap."""
    dropped: int
    answers: list[InstrumentAnswer]

    def curve(self, tap: str, figure: str, name: str | None = None) -> Curve:
        """A figure of a tap over the steps."""
        readings = [reading for reading in self.readings[tap] if figure in reading.values]
        steps = tuple(float(reading.step) for reading in readings)
        return Curve(name=name or tap, x=steps, y=tuple(reading.values[figure] for reading in readings))

    def accuracy(self, name: str = "validation accuracy") -> Curve:
        """Validation accuracy over the steps."""
        points = self.trace.evaluations
        return Curve(
            name=name, x=tuple(float(point.step) for point in points), y=tuple(point.value for point in points)
        )


class PlannedCommands:
    """Commands planned in advance, by step."""

    def __init__(self, commands: dict[int, Command]) -> None:
        self._commands = commands

    def pending(self, step: int) -> list[Command]:
        """The command of a step, if there is one."""
        return [self._commands[step]] if step in self._commands else []


def watch(
    workload: Workload,
    design: Design,
    *,
    seed: int,
    on_event: OnEvent | None = None,
    commands: dict[int, Command] | None = None,
) -> Watched:
    """Train on one thread with the design's instrument: emulated numerics, fast model, packets, decoder."""
    readings: dict[str, list[InstrumentReading]] = {}
    answers: list[InstrumentAnswer] = []
    losses: dict[str, TapLosses] = {}
    emit = on_event or (lambda event: None)

    def on_instrument(event: InstrumentEvent) -> None:
        if isinstance(event, InstrumentReading):
            readings.setdefault(event.tap, []).append(event)
        elif isinstance(event, InstrumentAnswer):
            answers.append(event)
        elif isinstance(event, InstrumentLosses):
            losses.update(event.taps)
        emit(replace(event, design=design.name, seed=seed))

    def on_evaluation(point: Evaluation) -> None:
        emit(EvaluationEvent(design=design.name, seed=seed, **asdict(point)))

    trace = train_watched(
        workload, design, seed=seed, emit=on_instrument, on_evaluation=on_evaluation,
        commands=(lambda stream: PlannedCommands(commands)) if commands else None,
    )  # fmt: skip
    return Watched(trace, readings, sum(tap.dropped for tap in losses.values()), answers)


def mean(values: Sequence[float | None]) -> float:
    """Mean of the values that are not None; 0 if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0


def last_accuracy(trace: Trace, count: int = 5) -> float:
    """Mean accuracy of the last few evaluations."""
    return mean([point.value for point in trace.evaluations[-count:]])


def best_accuracy(trace: Trace) -> float:
    """Highest accuracy at an evaluation."""
    return max(point.value for point in trace.evaluations)
