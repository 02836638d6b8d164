"""The cost of training steps on a design, and of a whole trace: a sum over steps, equal steps priced once."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import floor

from presilicon.designs import Design, Technology
from presilicon.records import Arrival, Cost, CurvePoint, Direction, SeedResult, StepFacts, StepGraph, Trace
from presilicon.simulation import MatchedTimes, put_times, simulate

PriceStep = Callable[[StepFacts], Cost]


class StepPrices:
    """Cost of the steps of one design, each kind of step simulated once; call it with the facts of a step.

    Times of another simulator or a profiler take the place of ours where they are given.
    """

    def __init__(self, graph: StepGraph, design: Design, times: MatchedTimes | None = None) -> None:
        self._graph, self._design, self._times = graph, design, times
        self._costs: dict[StepFacts, Cost] = {}

    def __call__(self, facts: StepFacts = StepFacts()) -> Cost:
        """The cost of a step; by default one with the design's static numerics."""
        if facts not in self._costs:
            cost = simulate(self._graph, self._design, facts)
            self._costs[facts] = cost if self._times is None else put_times(cost, self._times)[0]
        return self._costs[facts]

    def with_technology(self, technology: Technology | None) -> PriceStep:
        """Prices of the same steps with another technology table; not cached, since every table is used once."""
        return lambda facts: simulate(self._graph, self._design, facts, technology=technology)


def price_trace(
    trace: Trace,
    price_step: PriceStep,
    target: float,
    sustain: int,
    *,
    milestones: Sequence[float] = (),
    better: Direction = "higher",
) -> SeedResult:
    """Time and energy of `trace` up to where `target` was first held, and the whole accuracy curve.

    A crossing between two steps costs the share of the step that it takes.
    """
    prices: dict[StepFacts, Cost] = {}
    times, energies = [0.0], [0.0]
    for run in trace.runs:
        facts = run.facts.bucketed()
        if facts not in prices:
            prices[facts] = price_step(facts)
        times += [prices[facts].time_s] * run.count
        energies += [prices[facts].energy_j] * run.count
    time_s, energy_j = list(accumulate(times)), list(accumulate(energies))

    def arrival(goal: float) -> Arrival:
        crossing = trace.crossing(goal, sustain, better)
        return Arrival(
            target=goal,
            steps=None if crossing is None else crossing.step,
            samples=None if crossing is None else crossing.samples,
            updates=None if crossing is None else crossing.updates,
            time_s=None if crossing is None else _between(time_s, crossing.step),
            energy_j=None if crossing is None else _between(energy_j, crossing.step),
        )

    reached = arrival(target)
    return SeedResult(
        seed=trace.seed,
        steps_to_accuracy=reached.steps,
        samples_to_accuracy=reached.samples,
        updates_to_accuracy=reached.updates,
        time_to_accuracy_s=reached.time_s,
        energy_to_accuracy_j=reached.energy_j,
        accuracy=trace.test_accuracy,
        steps=trace.steps,
        ending=trace.ending,
        reason=trace.reason,
        findings=trace.findings,
        milestones=tuple(map(arrival, milestones)),
        fingerprint=trace.fingerprint,
        time_s=time_s[-1],
        energy_j=energy_j[-1],
        curve=tuple(
            CurvePoint(
                step=point.step,
                samples=point.samples,
                accuracy=point.accuracy,
                time_s=time_s[point.step],
                energy_j=energy_j[point.step],
            )
            for point in trace.evaluations
        ),
    )


def _between(totals: Sequence[float], step: float) -> float:
    """The running total after a fractional number of steps.

    >>> _between([0.0, 2.0, 3.0], 1.5)
    2.5
    """
    whole = floor(step)
    return totals[whole] if whole == step else totals[whole] + (step - whole) * (totals[whole + 1] - totals[whole])
