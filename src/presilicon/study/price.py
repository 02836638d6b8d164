"""What a trace costs on a design: a sum over steps, equal steps priced once."""

from collections.abc import Callable
from itertools import accumulate

from presilicon.records import Cost, CurvePoint, SeedResult, StepFacts, Trace

PriceStep = Callable[[StepFacts], Cost]


def price_trace(trace: Trace, price_step: PriceStep, target: float, sustain: int) -> SeedResult:
    """Time and energy of `trace` up to the step at which `target` was first held, and the whole accuracy curve."""
    prices: dict[StepFacts, Cost] = {}
    times, energies = [0.0], [0.0]
    for facts in trace.facts():
        bucket = facts.bucketed()
        if bucket not in prices:
            prices[bucket] = price_step(bucket)
        times.append(prices[bucket].time_s)
        energies.append(prices[bucket].energy_j)
    time_s, energy_j = list(accumulate(times)), list(accumulate(energies))
    arrived = trace.crossing(target, sustain)
    return SeedResult(
        seed=trace.seed,
        steps_to_accuracy=arrived,
        time_to_accuracy_s=None if arrived is None else time_s[arrived],
        energy_to_accuracy_j=None if arrived is None else energy_j[arrived],
        accuracy=trace.test_accuracy,
        steps=trace.steps,
        ending=trace.ending,
        reason=trace.reason,
        findings=trace.findings,
        time_s=time_s[-1],
        energy_j=energy_j[-1],
        curve=tuple(
            CurvePoint(step=e.step, accuracy=e.accuracy, time_s=time_s[e.step], energy_j=energy_j[e.step])
            for e in trace.evaluations
        ),
    )
