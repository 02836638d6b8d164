"""The result of a design: its traces priced step by step, with intervals and provenance."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from presilicon.base import meaning, to_plain
from presilicon.designs import Design
from presilicon.emulation import HOPELESS_RULE, TrainingRecord
from presilicon.records import EXACT_KINDS, Area, Arrival, Cost, Milestone, Result, SeedResult, Trace, metric_median
from presilicon.runs import commit, identity_hash, versions
from presilicon.simulation import MatchedTimes, area
from presilicon.study.join.pairs import NEEDED, PAIRED
from presilicon.study.join.plan import extensions_of
from presilicon.study.join.prices import StepPrices, price_remarks, price_trace, unpriced_methods
from presilicon.study.join.seeds import load_splits
from presilicon.study.join.statistics import (
    REACH,
    RESTARTS,
    expected_with_restarts,
    interval,
    interval_method,
    reach_probability,
)
from presilicon.study.join.times import with_times
from presilicon.workloads import LearningRateSchedule, Workload

_ARRIVALS = ("steps", "samples", "updates", "time_s", "energy_j")
_TO_ACCURACY = (
    "steps_to_accuracy", "samples_to_accuracy", "updates_to_accuracy", "time_to_accuracy_s", "energy_to_accuracy_j",
)  # fmt: skip
"""Figures of which a result has the interval over seeds: of a milestone, and of the target."""


def join_result(
    design: Design,
    workload: Workload,
    traces: Sequence[Trace],
    prices: StepPrices,
    device: str,
    times: MatchedTimes | None,
) -> Result:
    """Steps to accuracy from the traces times the cost of each step: the result of one design."""
    typical = prices()
    design_area = area(design)
    _, target = workload.require_data()
    metric = workload.measure
    seeds = price_seeds(workload, traces, prices)
    reached = sum(seed.steps_to_accuracy is not None for seed in seeds)
    step_kinds = {run.facts for trace in traces for run in trace.priced_runs()}
    varies = any(
        facts.samples is not None or facts.methods or facts.layers or facts.numerics_step for facts in step_kinds
    )
    budget_steps = workload.max_steps
    memory_bytes = max([typical.memory_bytes, *(prices(facts).memory_bytes for facts in step_kinds)])
    budget_s, budget_j = budget_steps * typical.time_s, budget_steps * typical.energy_j
    provenance = _provenance(design, workload, typical, design_area, traces, device)
    return Result(
        name=design.name,
        workload=workload.name,
        target=target,
        metric=metric.name,
        value=metric_median([seed.value for seed in seeds], metric.direction),
        direction=metric.direction,
        metric_is_fraction=metric.is_fraction,
        **{name: interval([getattr(seed, name) for seed in seeds]) for name in _TO_ACCURACY},
        reached=f"{reached}/{len(seeds)}",
        reach_probability=reach_probability(reached, len(seeds)),
        expected_time_to_accuracy_s=_expected(
            seeds, budget_s, lambda seed: seed.time_to_accuracy_s, lambda seed: seed.time_s
        ),
        expected_energy_to_accuracy_j=_expected(
            seeds, budget_j, lambda seed: seed.energy_to_accuracy_j, lambda seed: seed.energy_j
        ),
        time_per_step_s=_mean_per_step(seeds, lambda seed: seed.time_s) if varies else typical.time_s,
        energy_per_step_j=_mean_per_step(seeds, lambda seed: seed.energy_j) if varies else typical.energy_j,
        memory_bytes=memory_bytes,
        area_mm2=design_area.mm2,
        seeds=tuple(seeds),
        milestones=tuple(
            _milestone([seed.milestones[index] for seed in seeds]) for index in range(len(workload.milestones))
        ),
        remarks=(
            *price_remarks(design, typical, memory_bytes),
            *_remarks(design, workload, traces, typical),
            *unpriced_methods(design, step_kinds, prices),
        ),
        provenance=with_times(provenance, prices.graph(), design, times),
    )


def _mean_per_step(seeds: Sequence[SeedResult], total: Callable[[SeedResult], float | None]) -> float:
    """The cost of a step, over all steps of all seeds."""
    return sum(total(seed) or 0.0 for seed in seeds) / sum(seed.steps for seed in seeds)


def _remarks(design: Design, workload: Workload, traces: Sequence[Trace], typical: Cost) -> tuple[str, ...]:
    """Sentences on what the machine could not use of the training, and on hyperparameters that were not made for it."""
    remarks, last = [], max(trace.steps for trace in traces)
    unknown = TrainingRecord.of_design(design, workload).describe().get("unknown")
    if unknown:
        remarks.append(f"trained with {', '.join(unknown)}, which cannot be compared: it is never continued or reused")
    for step in sorted({change.from_step for change in design.numerics.schedule if change.from_step >= last}):
        remarks.append(f"the numerics from step {step} on were never in force: training ended after {last} steps")
    kinds = sorted({kind for trace in traces for kind in trace.processors})
    if len(kinds) > 1:
        remarks.append(f"trained on unlike processors ({'; '.join(kinds)}): its bits are of no single one")
    if any(trace.is_rounded for trace in traces):
        remarks.append(f"with over {EXACT_KINDS} kinds of steps, densities are priced as the nearest of three digits")
    if typical.cores is not None:
        remarks.append(f"cores that divide a step: {typical.cores.way}")
    if typical.chips > 1:
        remarks.append(f"chips that share a batch: {typical.chips_text}")
    remarks += [remark for trace in traces for run in trace.runs for remark in design.machine.remarks(run.facts)]
    samples = design.machine.update_rule.samples_per_update(workload.batch_size)
    scales = isinstance(workload.schedule, LearningRateSchedule) and workload.schedule.scale_from is not None
    if samples != workload.batch_size and not scales:
        remarks.append(
            f"an update of this machine uses {samples} samples, but the workload's learning rate is for "
            f'{workload.batch_size}: --schedule "constant(scale_from={workload.batch_size})" scales it'
        )
    return tuple(dict.fromkeys(remarks))


def price_seeds(workload: Workload, traces: Sequence[Trace], prices: StepPrices) -> list[SeedResult]:
    """Every trace of a design priced, to the workload's target."""
    _, target = workload.require_data()
    return [
        price_trace(
            trace, prices, target, workload.sustain, milestones=workload.milestones, better=workload.measure.direction
        )
        for trace in traces
    ]


def _expected(
    seeds: Sequence[SeedResult],
    budget: float,
    to_accuracy: Callable[[SeedResult], float | None],
    total: Callable[[SeedResult], float | None],
) -> float | None:
    """Expected cost with restarts. A miss costs what it spent; one that diverged is charged a whole budget."""
    arrivals = [cost for seed in seeds if (cost := to_accuracy(seed)) is not None]
    spent = [cost for seed in seeds if seed.ending == "budget" and (cost := total(seed)) is not None]
    whole = fmean(spent) if spent else budget
    misses = [
        cost if seed.ending in ("budget", "hopeless") and (cost := total(seed)) is not None else whole
        for seed in seeds
        if to_accuracy(seed) is None
    ]
    return expected_with_restarts(arrivals, misses)


def _milestone(arrivals: Sequence[Arrival]) -> Milestone:
    """One milestone over all seeds."""
    return Milestone(
        target=arrivals[0].target,
        reached=f"{sum(arrival.steps is not None for arrival in arrivals)}/{len(arrivals)}",
        **{name: interval([getattr(arrival, name) for arrival in arrivals]) for name in _ARRIVALS},
    )


def _provenance(
    design: Design, workload: Workload, typical: Cost, design_area: Area, traces: Sequence[Trace], device: str
) -> dict[str, Any]:
    plain = design.to_plain()
    technology = design.technology
    record = TrainingRecord.of_design(design, workload, device=device).describe()
    config: dict[str, Any] = {
        "design": plain,
        "technology": to_plain(technology),
        "workload": workload.describe(),
        "seeds": [trace.seed for trace in traces],
        "processors": sorted({kind for trace in traces for kind in trace.processors}),
        **({"tables": tables} if (tables := design.machine.file_digests()) else {}),
        "code": record["code"],
        "data": load_splits(workload)[1].digest[:16],
        **({"unknown": record["unknown"]} if "unknown" in record else {}),
    }
    config |= extensions_of(config)
    # The hash covers the contents of a technology table, not the path of its file.
    named = plain if technology is None else plain | {"machine": plain["machine"] | {"technology": technology.name}}
    parts = {"how": design_area.how, "parts_mm2": design_area.parts_mm2}
    return {
        "config_hash": identity_hash(config | {"design": named}),
        **config,
        "device": device,
        "chips": typical.chips,
        "batch_per_chip": typical.batch_per_chip,
        "samples_per_update": typical.samples_per_update,
        "link_gb_s": typical.link_gb_s,
        "versions": versions(),
        "meaning": meaning(),
        "commit": commit(),
        "interval": interval_method(len(traces)),
        "reach_probability": REACH,
        "expected_with_restarts": RESTARTS,
        "crossing": f"first of {workload.sustain} consecutive evaluations at the target or better, validation split; "
        "interpolated on the line from the evaluation before it",
        "pairs": PAIRED,
        "seeds_needed": NEEDED,
        **({"hopeless": HOPELESS_RULE} if workload.stop_hopeless else {}),
        "value": "test split at the end of training; it never decides when to stop",
        "energy": _energy(design, typical),
        "area": parts if design_area.parts_mm2 else design_area.how,
    }


def _energy(design: Design, typical: Cost) -> dict[str, Any]:
    """The source of the energy figures, and whether leakage is included."""
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
