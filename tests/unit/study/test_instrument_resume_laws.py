"""A watched training that was interrupted, twice and anywhere, shows from there what the uninterrupted one shows."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace as changed

import presilicon as ps
from presilicon.designs import Hardware, Instrument, Tap
from presilicon.emulation import Checkpoint
from presilicon.formats import parse
from presilicon.instrument.host.control import Command
from presilicon.records import Event
from presilicon.runs import EventLog
from presilicon.study.instrumented import train_watched
from presilicon_evidence.reproductions.watched import PlannedCommands

STEPS = 30
WORKLOAD = replace(ps.load_workload("digits-mlp"), target=1.0, max_steps=STEPS, evaluate_every=5, sustain=6)
HARDWARE = Hardware(
    element=parse("bfloat16"), accumulator_bits=32, taps=5, chains=40, range_rows=16, scratchpad_rows=40
)  # fmt: skip
KINDS = (
    {"role": "activation", "aggregation": "norm_check"},
    {"role": "activation", "aggregation": "predictiveness", "options": {"window": 4}},
    {"role": "weight", "aggregation": "correlation"},
    {"role": "gradient", "aggregation": "gradient_norm"},
)


class Killed:
    """A hook that interrupts a training before a step."""

    is_passive = True

    def __init__(self, step: int) -> None:
        self._step = step

    def before_step(self, step: int) -> None:
        if step == self._step:
            raise KeyboardInterrupt

    def after_step(self, step: int, facts: Any) -> Any:
        return facts


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_watch(draw: random.Random) -> tuple[ps.Design, dict[int, Command]]:
    """A design whose instrument can just keep up, or cannot, and the commands that it gets."""
    layers = ("hidden1", "output")
    taps = tuple(
        Tap(name=f"tap{index}", layers=draw.choice(layers), every=draw.randint(1, 4), **kind)
        for index, kind in enumerate(draw.sample(KINDS, 3))
    )
    # A step brings some hundred vectors; at 0.1 MHz they take longer than it, so that frames wait for one another.
    instrument = Instrument(
        hardware=HARDWARE, taps=taps, step_s=draw.choice((1e-3, 1e-2)), clock_mhz=draw.choice((0.02, 0.1, 100.0)),
        link_bytes_per_s=draw.choice((5e4, 2e5, 1e7)), output_bytes=draw.choice((400, 700, 4096)),
    )  # fmt: skip
    commands = {
        draw.randint(1, 8): Command(id="1", streams=(), verb="sample", tap="tap0", every=draw.randint(1, 5)),
        draw.randint(9, 14): Command(id="2", streams=(), verb="program", tap="tap1", aggregation="norm_check"),
        draw.randint(15, 28): Command(id="3", streams=(), verb="sample", tap="tap2", every=draw.randint(1, 3)),
    }
    return changed(ps.load_design("bf16-systolic"), instrument=instrument), commands


def looks(events: list[dict[str, Any]], first: int, last: int = STEPS) -> list[dict[str, Any]]:
    kept = ("step", "tap", "aggregation", "values", "histogram", "lanes")
    shown = [event for event in events if event["event"] == "instrument" and first <= event["step"] < last]
    return [{name: event[name] for name in kept if name in event} for event in shown]


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(more, marks=pytest.mark.slow) for more in range(2, 24))])
def test_interruptions_change_nothing_that_is_shown_later(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    design, commands = random_watch(draw)
    whole: list[dict[str, Any]] = []
    trace = train_watched(
        WORKLOAD, design, emit=lambda event: whole.append(msgspec.to_builtins(event)),
        commands=lambda stream: PlannedCommands(commands),
    )  # fmt: skip
    log = EventLog(tmp_path / "events.jsonl")
    kills = sorted(draw.sample(range(6, STEPS), 2))
    seen: list[list[dict[str, Any]]] = []
    for kill in (*kills, None):
        events: list[dict[str, Any]] = []
        seen.append(events)

        def emit(event: Event, events: list[dict[str, Any]] = events) -> None:
            events.append(msgspec.to_builtins(event))
            log.append(changed(event, design="bf16-systolic", seed=0))

        first = len(seen) == 1
        options: dict[str, Any] = {"commands": lambda stream: PlannedCommands(commands)} if first else {}
        hooks = [] if kill is None else [Killed(kill)]
        arguments = {"emit": emit, "hooks": hooks, "directory": tmp_path, **options}
        arguments["checkpoint"] = Checkpoint(tmp_path / "kept.safetensors", 1)
        if kill is None:
            assert train_watched(WORKLOAD, design, **arguments) == trace
        else:
            with pytest.raises(KeyboardInterrupt):
                train_watched(WORKLOAD, design, **arguments)
    late = {step: command for step, command in commands.items() if step >= kills[0]}
    for events, end in zip(seen, (*kills, STEPS), strict=True):
        [start] = [event["first_step"] for event in events if event["event"] == "instrument_started"]
        end = min(end, *late) if late else end  # commands of later steps were never given to the resumed ones
        assert looks(events, start, end) == looks(whole, start, end)
    assert looks(whole, 0)
