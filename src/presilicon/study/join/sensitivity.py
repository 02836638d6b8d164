"""Whether the ranking of designs survives a change in each figure of the technology tables, without retraining."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from statistics import median

from presilicon.base import ConfigError
from presilicon.designs import Design, Figure, FigurePath, Technology, figure_name
from presilicon.records import (
    ClosestCall,
    Crossing,
    Direction,
    RankingChange,
    RankingSensitivity,
    Sensitivity,
    StepFacts,
    StepGraph,
    Trace,
)
from presilicon.simulation import area, simulate
from presilicon.study.join.prices import StepPrices

Measure = Callable[[int, Technology | None], float]
"""The value of a design, by its index, with a technology table; infinity if there is none."""


def sensitivity(
    designs: Sequence[Design],
    traces: Sequence[Sequence[Trace]],
    prices: Mapping[str, StepPrices],
    target: float,
    sustain: int,
    *,
    better: Direction = "higher",
    factor: float = 2.0,
) -> Sensitivity:
    """Whether the rankings by median energy-to-accuracy and by area survive `factor` in each figure.

    Each figure of each table is multiplied and divided by `factor`, one at a time and in all designs that use the
    table. The traces stay the same: the cost of hardware does not change how training goes.

    Raises:
        ConfigError: there are fewer than two designs, or the factor is not above 1.
    """
    counts = [
        [_steps_to(trace.crossing(target, sustain, better), trace) for trace in design_traces]
        for design_traces in traces
    ]

    def energy_to_accuracy_j(index: int, technology: Technology | None) -> float:
        price_step = prices[designs[index].name].with_technology(technology)
        facts = {facts for count in counts[index] if count for facts in count}
        energy_j = {fact: price_step(fact).energy_j for fact in facts}
        return median(
            inf if count is None else sum(number * energy_j[fact] for fact, number in count.items())
            for count in counts[index]
        )

    return _sensitivity(designs, "energy_to_accuracy_j", energy_to_accuracy_j, factor)


def step_sensitivity(graph: StepGraph, designs: Sequence[Design], *, factor: float = 2.0) -> Sensitivity:
    """Whether the rankings by energy per step and by area survive `factor` in each figure, with no training at all.

    Raises:
        ConfigError: there are fewer than two designs, or the factor is not above 1.
    """

    def energy_per_step_j(index: int, technology: Technology | None) -> float:
        return simulate(graph, designs[index], technology=technology).energy_j

    return _sensitivity(designs, "energy_per_step_j", energy_per_step_j, factor)


def _steps_to(crossing: Crossing | None, trace: Trace) -> dict[StepFacts, float] | None:
    """Number of steps of each kind until the target was held; None if it never was."""
    if crossing is None:
        return None
    counts: dict[StepFacts, float] = {}
    left = crossing.step
    for run in trace.priced_runs():
        taken = min(run.count, left)
        left -= taken
        if taken:
            counts[run.facts] = counts.get(run.facts, 0) + taken
    return counts


def _sensitivity(designs: Sequence[Design], quantity: str, energy: Measure, factor: float) -> Sensitivity:
    if len(designs) < 2:
        raise ConfigError("sensitivity is about the ranking of designs: give at least two")
    if factor <= 1:
        raise ConfigError(f"factor must be above 1, not {factor:g}")

    def area_mm2(index: int, technology: Technology | None) -> float:
        mm2 = area(designs[index], technology).mm2
        return inf if mm2 is None else mm2

    tables = _tables(designs)
    if not tables:
        raise ConfigError("sensitivity varies the figures of technology tables, and none of these designs has one")
    rankings = []
    arrived = [index for index in range(len(designs)) if isfinite(energy(index, designs[index].technology))]
    if arrived:  # with none, there is nothing to rank
        rankings.append(_rank(quantity, designs, range(len(designs)), energy, factor))
    sized = [index for index in range(len(designs)) if isfinite(area_mm2(index, designs[index].technology))]
    if len(sized) > 1:
        rankings.append(_rank("area_mm2", designs, sized, area_mm2, factor))
    return Sensitivity(
        factor=factor, figures={table.name: len(table.entries()) for table in tables}, rankings=tuple(rankings)
    )


def _rank(
    quantity: str, designs: Sequence[Design], indices: Sequence[int], measure: Measure, factor: float
) -> RankingSensitivity:
    base = {index: measure(index, designs[index].technology) for index in indices}
    order = sorted(indices, key=lambda index: base[index])
    changes: list[RankingChange] = []
    closest: ClosestCall | None = None
    for table, path, figure, scale in _variations([designs[index] for index in indices], factor):
        scaled = table.scaled(path, scale)
        values = {
            index: measure(index, scaled) if designs[index].technology == table else base[index] for index in indices
        }
        pairs = [
            (designs[better].name, designs[worse].name)
            for position, better in enumerate(order)
            for worse in order[position + 1 :]
            if base[better] < base[worse] and values[better] > values[worse]
        ]
        if pairs:
            changes.append(
                RankingChange(
                    technology=table.name,
                    entry=figure_name(table, path),
                    value=figure.value,
                    unit=figure.unit,
                    label=figure.label,
                    factor=scale,
                    pairs=tuple(pairs),
                )
            )
        for better, worse in pairwise(order):
            if isfinite(base[worse]):
                ratio = values[worse] / values[better]
                if closest is None or ratio < closest.scaled_ratio:
                    closest = ClosestCall(
                        better=designs[better].name,
                        worse=designs[worse].name,
                        ratio=base[worse] / base[better],
                        technology=table.name,
                        entry=figure_name(table, path),
                        factor=scale,
                        scaled_ratio=ratio,
                    )
    return RankingSensitivity(
        quantity=quantity,
        order=tuple(designs[index].name for index in order),
        values=tuple(base[index] if isfinite(base[index]) else None for index in order),
        survives=not changes,
        changes=tuple(changes),
        closest=closest,
    )


def _variations(designs: Sequence[Design], factor: float) -> Iterator[tuple[Technology, FigurePath, Figure, float]]:
    for table in _tables(designs):
        for path, figure in table.entries().items():
            yield table, path, figure, factor
            yield table, path, figure, 1 / factor


def _tables(designs: Sequence[Design]) -> list[Technology]:
    """The different tables that the designs use, in order."""
    tables: list[Technology] = []
    for design in designs:
        if design.technology is not None and design.technology not in tables:
            tables.append(design.technology)
    return tables
