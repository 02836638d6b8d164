"""Time-to-accuracy and energy-to-accuracy of designs on a workload: emulation and simulation, joined."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from presilicon.base.errors import ConfigError, MissingToolError
from presilicon.designs import Design, load_design, load_technology
from presilicon.records import Comparison, Result, SeedResult, StepGraph, Trace
from presilicon.runs import commit, config_hash, versions
from presilicon.simulation import simulate
from presilicon.study.price import price_trace
from presilicon.study.seeds import OnEvent, SeedTask, train_seeds
from presilicon.study.statistics import interval, method
from presilicon.workloads import Workload, load_workload
from presilicon.workloads.capture import capture_workload


def evaluate(
    design: Design | str,
    workload: Workload | str,
    *,
    seeds: int = 5,
    seed: int = 0,
    jobs: int = 1,
    device: str = "cpu",
    on_event: OnEvent | None = None,
) -> Result:
    """How long, and how many joules, `design` needs to train `workload` to its accuracy target.

    Trains `seeds` times (seeds `seed`, `seed` + 1, ...) with the design's numerics, prices every step on its machine,
    and gives medians with intervals. A text names a preset, a design file, or a workload that comes with the package.
    `jobs` > 1 trains in spawned processes: a script that does so needs the usual `if __name__ == "__main__":`. The
    numbers do not depend on `jobs`.
    """
    found = compare([design], workload, seeds=seeds, seed=seed, jobs=jobs, device=device, on_event=on_event)
    return found.designs[0]


def compare(
    designs: Sequence[Design | str],
    workload: Workload | str,
    *,
    seeds: int = 5,
    seed: int = 0,
    jobs: int = 1,
    device: str = "cpu",
    on_event: OnEvent | None = None,
) -> Comparison:
    """`evaluate` for several designs on the same workload and seeds.

    `on_event` hears of evaluations and finished seeds as they happen: dicts with `event`, `design` and `seed`.
    """
    workload = load_workload(workload) if isinstance(workload, str) else workload
    loaded = [load_design(design) if isinstance(design, str) else design for design in designs]
    if not loaded:
        raise ConfigError("there is nothing to compare; give at least one design")
    twice = [name for name, count in Counter(design.name for design in loaded).items() if count > 1]
    if twice:
        raise ConfigError(f'two designs are called "{twice[0]}"; give each its own name, as in --set name=other')
    workload.require_data()
    if workload.max_steps < workload.sustain * workload.evaluate_every:
        raise ConfigError(
            f"max_steps is {workload.max_steps}, but holding the target takes {workload.sustain} evaluations, one in "
            f"every {workload.evaluate_every} steps: give at least {workload.sustain * workload.evaluate_every} steps"
        )
    if jobs > 1:
        workload.require_picklable()
    if seeds < 1:
        raise ConfigError(f"seeds: given {seeds}, expected at least 1")
    check_device(device)
    graph = capture_workload(workload)
    chosen = range(seed, seed + seeds)
    tasks = [SeedTask(design.name, design.numerics, workload, each, device) for design in loaded for each in chosen]
    traces = train_seeds(tasks, jobs, on_event or (lambda event: None))
    results = [
        _join(design, workload, graph, traces[number * seeds : (number + 1) * seeds], device)
        for number, design in enumerate(loaded)
    ]
    return Comparison(designs=tuple(results))


def check_device(device: str) -> None:
    """Refuse a device that is not there, before any work is done."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ConfigError(f'device: given "{device}", allowed: cpu, cuda, cuda:N')
    if device != "cpu":
        import torch

        seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(device.partition(":")[2] or 0) >= seen:
            raise MissingToolError(f'device "{device}": torch sees {seen} CUDA devices here; use --device cpu')


def _join(design: Design, workload: Workload, graph: StepGraph, traces: Sequence[Trace], device: str) -> Result:
    typical = simulate(graph, design)
    _, target = workload.require_data()
    outcomes = [
        price_trace(trace, lambda facts: simulate(graph, design, facts), target, workload.sustain) for trace in traces
    ]
    return Result(
        name=design.name,
        workload=workload.name,
        target=target,
        steps_to_accuracy=interval(_collect(outcomes, lambda seed: seed.steps_to_accuracy)),
        time_to_accuracy_s=interval(_collect(outcomes, lambda seed: seed.time_to_accuracy_s)),
        energy_to_accuracy_j=interval(_collect(outcomes, lambda seed: seed.energy_to_accuracy_j)),
        reached=f"{sum(outcome.steps_to_accuracy is not None for outcome in outcomes)}/{len(outcomes)}",
        accuracy=median(outcome.accuracy for outcome in outcomes),
        time_per_step_s=typical.time_s,
        energy_per_step_j=typical.energy_j,
        memory_bytes=typical.memory_bytes,
        area_mm2=None,
        seeds=tuple(outcomes),
        provenance=_provenance(design, workload, [trace.seed for trace in traces], device),
    )


def _collect(outcomes: Sequence[SeedResult], field: Callable[[SeedResult], float | int | None]) -> list[float | None]:
    return [field(outcome) for outcome in outcomes]


def _provenance(design: Design, workload: Workload, seeds: list[int], device: str) -> dict[str, Any]:
    technology = load_technology(design.machine.technology)
    config = {"design": design.to_plain(), "workload": workload.describe(), "seeds": seeds}
    return {
        "config_hash": config_hash(config),
        **config,
        "device": device,
        "versions": versions(),
        "commit": commit(),
        "interval": method(len(seeds)),
        "crossing": f"first of {workload.sustain} consecutive evaluations at or above the target, validation split",
        "accuracy": "test split at the end of training; it never decides when to stop",
        "energy": {"technology": technology.name, "source": technology.source, "figures": technology.figures()},
        "area": "not modelled yet",
    }
