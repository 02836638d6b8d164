from dataclasses import replace

import pytest
from msgspec import structs

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import PRODUCT_PHASES, Cost, Evaluation, FactsRun, LayerFact, ProductFact, StepFacts, Trace
from presilicon.simulation import simulate
from presilicon.study import StepGraphs, StepPrices, price_trace
from presilicon.workloads import load_workload

SKIPPED = StepFacts(update_skipped=True)


def price_of(facts: StepFacts) -> Cost:
    time_s = 1.0 if facts == SKIPPED else 2.0
    return Cost(time_s=time_s, energy_j=10 * time_s, cycles=1, memory_bytes=0, energy_by_component_j={}, ops=())


def test_time_to_accuracy_is_a_sum_over_steps_not_a_product() -> None:
    points = tuple(
        Evaluation(step=step, samples=step, updates=step, value=a, loss=0.0)
        for step, a in [(2, 0.5), (4, 0.9), (6, 0.95)]
    )
    runs = (FactsRun(StepFacts(), 1), FactsRun(SKIPPED, 3), FactsRun(StepFacts(), 2))
    trace = Trace(seed=3, losses=(0.0,) * 6, runs=runs, evaluations=points, test_value=0.9, ending="target")
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


def test_a_long_trace_prices_each_kind_of_step_once() -> None:
    kinds = [
        StepFacts(
            layers=tuple(
                LayerFact(layer=f"layer{n}", role="activation", density=kind / 10 + 0.01 + n * 1e-5) for n in range(50)
            )
        )
        for kind in range(1, 9)
    ]
    near = [
        StepFacts(layers=tuple(structs.replace(f, density=f.density + 1e-4) for f in facts.layers)) for facts in kinds
    ]
    runs = tuple(FactsRun((kinds if step % 16 < 8 else near)[step % 8], 1) for step in range(10_000))
    ends = (Evaluation(step=10_000, samples=10_000, updates=10_000, value=1.0, loss=0.0),)
    trace = Trace(seed=0, losses=(0.0,) * 10_000, runs=runs, evaluations=ends, test_value=1.0, ending="target")
    asked = []

    def price_step(facts: StepFacts) -> Cost:
        asked.append(facts)
        return price_of(facts)

    found = price_trace(trace, price_step, target=0.9, sustain=1)
    assert len(asked) == len({*kinds, *near}) == 16
    assert found.time_to_accuracy_s == 20_000


def test_a_crossing_inside_a_step_costs_its_share_of_the_step() -> None:
    points = tuple(
        Evaluation(step=step, samples=8 * step, updates=3 * step, value=a, loss=0.0)
        for step, a in [(2, 0.5), (5, 0.75), (8, 1.0)]
    )
    runs = (FactsRun(StepFacts(), 3), FactsRun(SKIPPED, 5))
    trace = Trace(seed=3, losses=(0.0,) * 8, runs=runs, evaluations=points, test_value=0.9, ending="target")
    seed = price_trace(trace, price_of, target=0.875, sustain=1, milestones=(0.625, 0.5))
    assert (seed.steps_to_accuracy, seed.samples_to_accuracy, seed.updates_to_accuracy) == (6.5, 52, 19.5)
    assert seed.time_to_accuracy_s == 3 * 2 + 3.5 * 1
    assert [milestone.steps for milestone in seed.milestones] == [3.5, 2]
    assert [milestone.time_s for milestone in seed.milestones] == [6.5, 4]
    falling = price_trace(trace, price_of, target=0.5, sustain=1, better="lower")
    assert falling.steps_to_accuracy == 2


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_batch_is_that_of_the_whole_system_however_many_chips_share_it(accumulate) -> None:
    for chips in (1, 2, 3, 8):
        design = load_design("h200", [f"machine.chips={chips}"])
        for batch in (2, 24, 32, 48):
            workload = replace(load_workload("digits-mlp"), batch_size=batch, accumulate=accumulate)
            prices = StepPrices(StepGraphs(workload).for_design(design), design)
            if chips > 1 and batch % (chips * accumulate):
                with pytest.raises(ConfigError, match=f"{chips} chips .*cannot share a batch of {batch} samples"):
                    prices()
                continue
            cost = prices()
            assert (cost.chips, cost.batch_per_chip) == (chips, batch // chips)
            assert cost.samples_per_update == cost.batch_size == batch
            grown = prices(StepFacts(samples=2 * batch))
            assert (grown.batch_size, grown.batch_per_chip) == (2 * batch, 2 * batch // chips)
            alone = load_design("h200")
            share = replace(workload, batch_size=batch // chips)
            assert cost.memory_bytes == StepPrices(StepGraphs(share), alone)().memory_bytes


@pytest.mark.parametrize("zeros", ["weights", "pairs", "gated"])
def test_a_step_costs_what_its_own_densities_cost(zeros) -> None:
    """Also where a density is just above that at which a product fills another fold of the array."""
    design = load_design("edge-bf16", [f"machine.sparsity.zeros={zeros}"])
    graph = StepGraphs(load_workload("digits-cnn"))
    for density in (0.101, 0.1, 0.251, 0.5003, 0.85069, 0.9999):
        layer = LayerFact(layer="conv2", role="weight", density=density)
        shares = [
            ProductFact(layer="hidden", product=product, zeros=zeros, share=density) for product in PRODUCT_PHASES
        ]
        facts = StepFacts(layers=(layer,), products=() if zeros == "weights" else tuple(shares))
        trace = Trace(
            seed=0, losses=(1.0,), runs=(FactsRun(facts, 1),), evaluations=(), test_value=0.9, ending="budget"
        )
        found = price_trace(trace, StepPrices(graph, design), target=0.9, sustain=1)
        exact = simulate(graph(), design, facts)
        assert found.time_s == pytest.approx(exact.time_s, rel=1e-9)
        assert found.energy_j == pytest.approx(exact.energy_j, rel=1e-9)
