from presilicon.records import Cost, Evaluation, FactsRun, StepFacts, Trace
from presilicon.study import price_trace

SKIPPED = StepFacts(update_skipped=True)


def price_of(facts: StepFacts) -> Cost:
    time_s = 1.0 if facts == SKIPPED else 2.0
    return Cost(time_s=time_s, energy_j=10 * time_s, cycles=1, memory_bytes=0, energy_by_component_j={}, ops=())


def test_time_to_accuracy_is_a_sum_over_steps_not_a_product() -> None:
    points = tuple(Evaluation(step=step, accuracy=a, loss=0.0) for step, a in [(2, 0.5), (4, 0.9), (6, 0.95)])
    runs = (FactsRun(StepFacts(), 1), FactsRun(SKIPPED, 3), FactsRun(StepFacts(), 2))
    trace = Trace(seed=3, losses=(0.0,) * 6, runs=runs, evaluations=points, test_accuracy=0.9, ending="target")
    asked = []

    def price_step(facts: StepFacts) -> Cost:
        asked.append(facts)
        return price_of(facts)

    found = price_trace(trace, price_step, target=0.9, sustain=2)
    assert found.steps_to_accuracy == 4
    assert found.time_to_accuracy_s == 2 + 3 * 1
    assert found.energy_to_accuracy_j == 50
    assert [point.time_s for point in found.curve] == [3, 5, 9]
    assert len(asked) == 2
    never = price_trace(trace, price_of, target=0.9, sustain=3)
    assert never.steps_to_accuracy is None
    assert never.time_to_accuracy_s is None
    assert never.energy_to_accuracy_j is None
