"""Event logs whose fields are missing or odd: views, exports and the report leave them out; nothing raises."""

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from presilicon.base import ConfigError
from presilicon.designs import Hardware, Instrument, Tap, load_design
from presilicon.formats import parse
from presilicon.instrument import Command, render_watch
from presilicon.records import EvaluationEvent, ResultEvent, SeedFinished
from presilicon.report import print_run, render_page, run_to_json
from presilicon.report.history import export_report
from presilicon.report.page.instrument import render_instrument
from presilicon.runs import EXPORT_FORMATS, create_run, export_run, load_run, watch_run
from presilicon.runs.readings import to_plain
from presilicon.study.instrumented import train_watched
from presilicon.workloads import load_workload

ODD: tuple[Any, ...] = (
    None, True, "", "odd", "inf", -1, 0, 2**70, 1e308, -1e308, 0.5, [], [1, None], [[1]], {}, {"a": [1]}, "<b>",
    "\ud800",
)  # fmt: skip
MUTATIONS = 200


class Asked:
    """Commands at given steps."""

    def __init__(self, commands: dict[int, Command]) -> None:
        self._commands = commands

    def pending(self, step: int) -> list[Command]:
        return [self._commands.pop(step)] if step in self._commands else []


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, comparison: Any) -> tuple[Path, list[dict[str, Any]]]:
    """A run with an instrument's events of every kind, and its events."""
    root = tmp_path_factory.mktemp("runs")
    taps = (
        Tap(name="in", layers="hidden*", aggregation="norm_check", options={"bins": 8}, every=1),
        Tap(name="weights", layers="output", role="weight", aggregation="summary", vectors="all", every=3),
    )
    hardware = Hardware(lanes=8, taps=8, chains=32, element=parse("bfloat16"))
    instrument = Instrument(hardware=hardware, taps=taps, listen="127.0.0.1:0")
    design = msgspec.structs.replace(load_design("bf16-systolic"), instrument=instrument)
    commands = {
        4: Command(id="1", streams=(), verb="program", tap="weights", aggregation="sparsity"),
        6: Command(id="2", streams=(), verb="program", tap="weights", aggregation="correlation", options={"odd": 1}),
    }
    workload = replace(load_workload("digits-mlp"), max_steps=10, evaluate_every=5)
    with create_run(root, "evaluate", {"designs": []}, seed=0) as run:
        train_watched(
            workload, design, commands=lambda stream: Asked(commands),
            emit=lambda event: run.record(msgspec.structs.replace(event, design=design.name, seed=0)),
        )  # fmt: skip
        for step in (5, 10):
            run.record(EvaluationEvent(design=design.name, seed=0, step=step, value=0.5, loss=1.0))
        run.record(SeedFinished(design=design.name, seed=0, steps=10, ending="budget", test_value=0.5))
        run.record(ResultEvent(comparison=msgspec.to_builtins(comparison)))
    lines = (run.path / "events.jsonl").read_text().splitlines()
    return root, [json.loads(line) for line in lines]


def damage(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """The same event with one field dropped, doubled, or made odd, at any depth."""
    if isinstance(value, dict) and value and (depth == 0 or chance.random() < 0.7):
        key = chance.choice(list(value))
        if chance.random() < 0.3:
            return {name: item for name, item in value.items() if name != key}
        return value | {key: damage(value[key], chance, depth + 1)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        index = chance.randrange(len(value))
        return [*value[:index], damage(value[index], chance, depth + 1), *value[index + chance.randrange(2) :]]
    return chance.choice(ODD)


def look(root: Path, *, has_damaged_result: bool) -> None:
    """Read a run in every way that reads events."""
    run = load_run(root, "latest")
    watcher = watch_run(run.path)
    assert json.dumps(to_plain(watcher))
    assert ("Instrument readings" in render_instrument(watcher)) == bool(watcher.streams)
    Console(file=io.StringIO(), width=100).print(render_watch(watcher, name=run.name, status="running"))
    for format in EXPORT_FORMATS:
        assert export_run(run, format)
    assert json.loads(run_to_json(run))
    try:
        print_run(run, io.StringIO())
        if has_damaged_result:
            assert export_report(run, "html")
    except ConfigError:  # a damaged result is refused
        assert has_damaged_result


def test_the_undamaged_log_has_every_kind_of_event(log: Any, comparison: Any) -> None:
    root, events = log
    kinds = {event["event"] for event in events}
    wanted = {"", "_started", "_aggregation", "_losses", "_warning", "_answer", "_ended"}
    assert {f"instrument{suffix}" for suffix in wanted} < kinds
    look(root, has_damaged_result=False)
    watcher = watch_run(load_run(root, "latest").path)
    assert watcher.unreadable == 0
    assert "damaged" not in render_page(comparison, watcher)


def test_damaged_events_are_left_out_and_raise_nothing(log: Any, tmp_path: Path) -> None:
    root, events = log
    (source,) = root.iterdir()
    target = tmp_path / source.name
    target.mkdir()
    (target / "run.json").write_bytes((source / "run.json").read_bytes())
    chance = random.Random(0)
    lines = [json.dumps(event) for event in events]
    kinds = [event["event"] for event in events]
    unreadable = 0
    for _ in range(MUTATIONS):
        damaged = dict(enumerate(lines))
        chosen = chance.choices(sorted(set(kinds)), k=chance.randrange(1, 4))
        for kind in chosen:
            index = chance.choice([index for index, name in enumerate(kinds) if name == kind])
            damaged[index] = json.dumps(damage(events[index], chance))
        (target / "events.jsonl").write_text("\n".join(damaged.values()) + "\n")
        look(tmp_path, has_damaged_result="result" in chosen)
        unreadable += watch_run(target).unreadable
    assert unreadable > MUTATIONS // 4, "the damage is seen"
