"""Time-to-accuracy and energy-to-accuracy of designs on a workload: emulation and simulation, joined."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple
from urllib.parse import quote

from presilicon.base.config import to_plain
from presilicon.base.errors import ConfigError, MissingToolError
from presilicon.designs import Design, load_design
from presilicon.emulation.checkpoint import EVERY, Checkpoint
from presilicon.records import Comparison, Cost, Result, SeedResult, StepFacts, StepGraph, Trace
from presilicon.runs import commit, config_hash, versions
from presilicon.simulation import MatchedTimes, area
from presilicon.study.fairness import check_start, check_strict, compare_all, fairness, strict_problems
from presilicon.study.instrumented import InstrumentTask, check_instrument
from presilicon.study.price import price_trace
from presilicon.study.seeds import OnEvent, SeedTask, train_seeds
from presilicon.study.statistics import (
    REACH,
    RESTARTS,
    expected_with_restarts,
    interval,
    method,
    reach_probability,
)
from presilicon.study.times import Times, match_designs, step_price, with_times
from presilicon.workloads import Workload, load_workload, workload_names
from presilicon.workloads.capture import capture_workload


def evaluate(
    design: Design | str,
    workload: Workload | str,
    *,
    seeds: int = 5,
    seed: int = 0,
    jobs: int = 1,
    device: str = "cpu",
    times: Times | None = None,
    checkpoints: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> Result:
    """How long, and how many joules, `design` needs to train `workload` to its accuracy target.

    Trains `seeds` times (seeds `seed`, `seed` + 1, ...) with the design's numerics, prices every step on its machine,
    and gives medians with intervals. A text names a preset, a design file, or a workload that comes with the package.
    `jobs` > 1 trains in spawned processes: a script that does so needs the usual `if __name__ == "__main__":`. The
    numbers do not depend on `jobs`. `times` are another simulator's times of ops, or a file of them, in place of ours:
    see `presilicon.simulation.read_times`. `checkpoints` is a folder that keeps the training runs: the same call with
    the same folder goes on where it was broken off, to the same bits.
    """
    found = compare(
        [design], workload, seeds=seeds, seed=seed, jobs=jobs, device=device, times=times, checkpoints=checkpoints,
        on_event=on_event,
    )  # fmt: skip
    return found.designs[0]


def compare(
    designs: Sequence[Design | str],
    workload: Workload | str,
    *,
    seeds: int = 5,
    seed: int = 0,
    jobs: int = 1,
    device: str = "cpu",
    times: Times | Mapping[str, Times] | None = None,
    checkpoints: str | Path | None = None,
    strict: bool = False,
    on_event: OnEvent | None = None,
) -> Comparison:
    """`evaluate` for several designs on the same workload and seeds.

    `on_event` hears of evaluations and finished seeds as they happen: dicts with `event`, `design` and `seed`. `times`
    of several designs are given by the design's name. A `strict` comparison refuses the usual ways to flatter a design:
    few or chosen seeds, a threshold, budget or evaluation of one's own, splits that share examples.

    Raises:
        ConfigError: what was given makes no sense, or is not strict.
        RunFailedError: training failed, or a strict comparison came out with a design that never arrives.
    """
    found = price(
        train_designs(
            designs, workload, seeds=seeds, seed=seed, jobs=jobs, device=device, times=times, checkpoints=checkpoints,
            strict=strict, on_event=on_event,
        )
    )  # fmt: skip
    if strict:
        check_strict(found.designs)
    return found


class Trained(NamedTuple):
    """Designs that were trained and are still to be priced."""

    designs: tuple[Design, ...]
    workload: Workload
    graph: StepGraph
    """The training step of the workload."""
    traces: tuple[tuple[Trace, ...], ...]
    """Of every seed of every design."""
    device: str
    times: Mapping[str, MatchedTimes] = {}
    """Another's times of the step, by the name of the design that they are for."""
    strict: bool = False
    """Whether strict rules were kept when it began."""


def train_designs(
    designs: Sequence[Design | str],
    workload: Workload | str,
    *,
    seeds: int = 5,
    seed: int = 0,
    jobs: int = 1,
    device: str = "cpu",
    times: Times | Mapping[str, Times] | None = None,
    clock_ghz: float | None = None,
    checkpoints: str | Path | None = None,
    checkpoint_every: int = EVERY,
    strict: bool = False,
    own: Workload | None = None,
    directory: Path | None = None,
    on_event: OnEvent | None = None,
) -> Trained:
    """The part of `compare` that takes long: the workload trained with the numerics of every design.

    Every `checkpoint_every` evaluations each run is kept in the folder `checkpoints`. With `strict`, a workload must
    keep the rules of its `own`: by default the one of that name that comes with the package, if there is one. With the
    run's `directory`, the instrument of a design takes commands from there, and keeps its stream there.
    """
    workload = load_workload(workload) if isinstance(workload, str) else workload
    loaded = [load_design(design) if isinstance(design, str) else design for design in designs]
    if not loaded:
        raise ConfigError("there is nothing to compare; give at least one design")
    twice = [name for name, count in Counter(design.name for design in loaded).items() if count > 1]
    if twice:
        raise ConfigError(
            f'two designs are called "{twice[0]}": give each file its own name; to compare values of one design, use '
            "--vary, as in --vary machine.rows=32,64"
        )
    for design in loaded:
        if (chips := design.machine.update_rule.batches) > 1:
            raise ConfigError(
                f'"{design.name}" has {chips} chips, which train on as many batches at once; evaluation '
                "trains on one: give it a single chip, as in --set machine.chips=1, or price its step with simulate"
            )
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
    if strict:
        known = load_workload(workload.name) if workload.name in workload_names() else workload
        check_start(workload, own or known, seeds=seeds, seed=seed)
    graph = capture_workload(workload)
    for design in loaded:
        check_instrument(design, workload)
    matched = match_designs(times, loaded, graph, clock_ghz)
    chosen = range(seed, seed + seeds)
    tasks = [
        SeedTask(
            design.name, design.numerics, workload, each, device,
            None if checkpoints is None else Checkpoint(_file(Path(checkpoints), design.name, each), checkpoint_every),
            _watched(design, graph, matched.get(design.name), directory, is_first=each == seed),
        )
        for design in loaded
        for each in chosen
    ]  # fmt: skip
    traces = train_seeds(tasks, jobs, on_event or (lambda event: None))
    by_design = tuple(tuple(traces[first : first + seeds]) for first in range(0, len(traces), seeds))
    return Trained(tuple(loaded), workload, graph, by_design, device, matched, strict)


def _watched(
    design: Design, graph: StepGraph, times: MatchedTimes | None, directory: Path | None, *, is_first: bool
) -> InstrumentTask | None:
    """The instrument of a seed, told how long a step takes on the machine."""
    instrument = design.instrument
    if instrument is None or not (is_first or instrument.seeds == "all"):
        return None
    return InstrumentTask(instrument, step_price(graph, design, times)(StepFacts()).time_s, directory)


def _file(folder: Path, design: str, seed: int) -> Path:
    """The checkpoint of a seed of a design; names may hold characters that a file's name may not."""
    name = quote(design, safe=" ")
    return folder / f"{name if len(name) <= 100 else sha256(name.encode()).hexdigest()}-seed{seed}.safetensors"


def price(trained: Trained) -> Comparison:
    """Every step of every design priced on its machine, and the designs compared."""
    results = [
        _join(design, trained.workload, trained.graph, traces, trained.device, trained.times.get(design.name))
        for design, traces in zip(trained.designs, trained.traces, strict=True)
    ]
    strict = trained.strict and not strict_problems(results)
    return Comparison(designs=tuple(results), pairs=compare_all(results), fairness=fairness(results, strict=strict))


def check_device(device: str) -> None:
    """Refuse a device that is not there, before any work is done."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ConfigError(f'device: given "{device}", allowed: cpu, cuda, cuda:N')
    if device != "cpu":
        import torch

        seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(device.partition(":")[2] or 0) >= seen:
            raise MissingToolError(f'device "{device}": torch sees {seen} CUDA devices here; use --device cpu')


def _join(
    design: Design,
    workload: Workload,
    graph: StepGraph,
    traces: Sequence[Trace],
    device: str,
    times: MatchedTimes | None,
) -> Result:
    price_step = step_price(graph, design, times)
    typical = price_step(StepFacts())
    _, target = workload.require_data()
    outcomes = [price_trace(trace, price_step, target, workload.sustain) for trace in traces]
    arrived = sum(outcome.steps_to_accuracy is not None for outcome in outcomes)
    budget_s, budget_j = (workload.max_steps * each for each in (typical.time_s, typical.energy_j))
    return Result(
        name=design.name,
        workload=workload.name,
        target=target,
        steps_to_accuracy=interval(_collect(outcomes, lambda seed: seed.steps_to_accuracy)),
        time_to_accuracy_s=interval(_collect(outcomes, lambda seed: seed.time_to_accuracy_s)),
        energy_to_accuracy_j=interval(_collect(outcomes, lambda seed: seed.energy_to_accuracy_j)),
        reached=f"{arrived}/{len(outcomes)}",
        reach_probability=reach_probability(arrived, len(outcomes)),
        expected_time_to_accuracy_s=_expected(
            outcomes, budget_s, lambda seed: seed.time_to_accuracy_s, lambda seed: seed.time_s
        ),
        expected_energy_to_accuracy_j=_expected(
            outcomes, budget_j, lambda seed: seed.energy_to_accuracy_j, lambda seed: seed.energy_j
        ),
        accuracy=median(outcome.accuracy for outcome in outcomes),
        time_per_step_s=typical.time_s,
        energy_per_step_j=typical.energy_j,
        memory_bytes=typical.memory_bytes,
        area_mm2=area(design).mm2,
        seeds=tuple(outcomes),
        provenance=with_times(
            _provenance(design, workload, typical, [trace.seed for trace in traces], device), graph, design, times
        ),
    )


def _collect(outcomes: Sequence[SeedResult], field: Callable[[SeedResult], float | int | None]) -> list[float | None]:
    return [field(outcome) for outcome in outcomes]


def _expected(
    outcomes: Sequence[SeedResult],
    budget: float,
    arrival: Callable[[SeedResult], float | None],
    whole: Callable[[SeedResult], float | None],
) -> float | None:
    """What an arrival costs with restarts; the budget is what seeds that spent it did cost, or else `budget`."""
    arrivals = [cost for outcome in outcomes if (cost := arrival(outcome)) is not None]
    spent = [cost for outcome in outcomes if outcome.ending == "budget" and (cost := whole(outcome)) is not None]
    return expected_with_restarts(arrivals, len(outcomes) - len(arrivals), fmean(spent) if spent else budget)


def _provenance(design: Design, workload: Workload, typical: Cost, seeds: list[int], device: str) -> dict[str, Any]:
    plain = design.to_plain()
    technology = design.technology
    config = {
        "design": plain,
        "technology": to_plain(technology),
        "workload": workload.describe(),
        "seeds": seeds,
    }
    # What a table holds counts, not where its file lies.
    named = plain if technology is None else plain | {"machine": plain["machine"] | {"technology": technology.name}}
    found = area(design)
    return {
        "config_hash": config_hash(config | {"design": named}),
        **config,
        "device": device,
        "versions": versions(),
        "commit": commit(),
        "interval": method(len(seeds)),
        "reach_probability": REACH,
        "expected_with_restarts": RESTARTS,
        "crossing": f"first of {workload.sustain} consecutive evaluations at or above the target, validation split",
        "accuracy": "test split at the end of training; it never decides when to stop",
        "energy": _energy(design, typical),
        "area": {"how": found.how, "parts_mm2": found.parts_mm2} if found.parts_mm2 else found.how,
    }


def _energy(design: Design, typical: Cost) -> dict[str, Any]:
    """Where the joules come from, and whether leakage is among them."""
    leaked_j = typical.energy_by_component_j.get("leakage")
    watts = leaked_j / typical.time_s if leaked_j is not None and typical.time_s else None
    leakage = "not counted" if watts is None else f"{watts:.3g} W all the time"
    technology = design.technology
    if technology is None:
        return {"technology": None, "source": "figures of the machine itself, in the design", "leakage": leakage}
    return {
        "technology": technology.name,
        "source": technology.source,
        "leakage": leakage,
        "figures": technology.figures(),
    }
