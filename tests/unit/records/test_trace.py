import pytest

from presilicon.records import Evaluation, FactsRun, LayerFact, StepFacts, Trace


def trace_of(accuracies: list[float]) -> Trace:
    points = tuple(
        Evaluation(step=step, samples=32 * step, updates=step, accuracy=accuracy, loss=0.0)
        for step, accuracy in zip(range(10, 1000, 10), accuracies, strict=False)
    )
    runs = (FactsRun(StepFacts(), 2), FactsRun(StepFacts(update_skipped=True), 1))
    return Trace(seed=0, losses=(1.0,) * 3, runs=runs, evaluations=points, test_accuracy=0.9, ending="budget")


@pytest.mark.parametrize(
    ("accuracies", "sustain", "step"),
    [
        ([0.5, 0.97, 0.5, 0.97, 0.98], 1, 20),
        ([0.5, 0.97, 0.5, 0.97, 0.98], 2, 40),
        ([0.5, 0.97, 0.5, 0.97, 0.98], 3, None),
        ([0.97], 1, 10),
        ([], 1, None),
        ([0.9, 0.9, 0.9], 1, None),
    ],
)
def test_a_crossing_must_be_sustained(accuracies: list[float], sustain: int, step: int | None) -> None:
    assert trace_of(accuracies).crossing(0.97, sustain) == step


def test_facts_are_run_length_encoded() -> None:
    facts = list(trace_of([]).facts())
    assert [fact.update_skipped for fact in facts] == [False, False, True]


def test_bucketing_never_lowers_a_density_and_keeps_the_rest() -> None:
    fact = LayerFact(layer="fc", role="activation", format="e5m2", density=0.401)
    facts = StepFacts(layers=(fact, LayerFact(layer="fc", role="weight")), backward_skipped=True)
    bucketed = facts.bucketed(10)
    assert bucketed.layers[0].density == 0.5
    assert bucketed.layers[0].format == "e5m2"
    assert bucketed.layers[1] == facts.layers[1]
    assert bucketed.backward_skipped
    for level in range(21):
        fact = LayerFact(layer="fc", role="activation", density=level / 20)
        assert StepFacts(layers=(fact,)).bucketed(20).layers[0].density == level / 20
    assert StepFacts(layers=(LayerFact(layer="a", role="error", density=1.0),)).bucketed().layers[0].density == 1.0
