"""A remembered price is the price: facts changed one field at a time, in any order."""

import random

import pytest
from msgspec import structs

import presilicon as ps
from presilicon.records import LayerFact, MethodFact, ProductFact, StepFacts
from presilicon.simulation import simulate
from presilicon.study import StepGraphs, StepPrices

WORKLOAD = ps.load_workload("digits-mlp")
LAYER = LayerFact(layer="hidden1", role="activation", density=0.5)
PRODUCT = ProductFact(layer="hidden1", product="forward", share=0.5)
LAYERS = (
    LAYER,
    structs.replace(LAYER, density=0.25),
    structs.replace(LAYER, layer="output"),
    structs.replace(LAYER, role="weight"),
    LayerFact(layer="hidden1", role="activation", format="e5m2"),
    LayerFact(layer="hidden1", role="activation", format="bfloat16"),
    LayerFact(layer="hidden1", role="activation", format="e5m2", stored_bits=16),
    LayerFact(layer="hidden1", role="activation", product="weight_grad", format="e5m2"),
)
PRODUCTS = (
    PRODUCT,
    structs.replace(PRODUCT, share=0.75),
    structs.replace(PRODUCT, layer="output"),
    structs.replace(PRODUCT, product="weight_grad"),
)
FACTS = (
    StepFacts(),
    *(StepFacts(layers=(fact,)) for fact in LAYERS),
    StepFacts(layers=LAYERS[::4]),
    *(StepFacts(products=(fact,)) for fact in PRODUCTS),
    StepFacts(samples=32),
    StepFacts(samples=128),
    StepFacts(numerics_step=10),
    StepFacts(update_skipped=True),
    StepFacts(backward_skipped=True),
    StepFacts(update_skipped=True, samples=32),
    StepFacts(methods=(MethodFact(method="repeated", name="count", value=1),)),
)
SCHEDULED = ['numerics.schedule=[{from_step=10, layers="*", weight="bfloat16", activation="bfloat16"}]']
DESIGNS = {
    "zeros": ("fp8-systolic", ['machine.sparsity={zeros="pairs"}']),
    "scheduled": ("fp32-systolic", SCHEDULED),
    "card": ("h200", []),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_prices_do_not_depend_on_what_was_priced_before(name: str) -> None:
    preset, settings = DESIGNS[name]
    design = ps.load_design(preset, settings)
    graphs = StepGraphs(WORKLOAD)
    fresh = {facts: simulate(StepPrices(graphs, design).graph(facts), design, facts) for facts in FACTS}
    for seed in range(3):
        prices, order = StepPrices(StepGraphs(WORKLOAD), design), [*FACTS, *FACTS]
        random.Random(seed).shuffle(order)
        for facts in order:
            assert prices(facts) == fresh[facts], facts
    assert len({(cost.time_s, cost.energy_j) for cost in fresh.values()}) >= 4
    assert fresh[FACTS[0]] == StepPrices(graphs, design)()


def test_steps_of_every_size_are_captured_for_that_size() -> None:
    graphs = StepGraphs(WORKLOAD)
    sizes = (None, 32, 128, 32, None, 64, 128)
    assert [graphs(size).batch_size for size in sizes] == [size or WORKLOAD.batch_size for size in sizes]
    own = ps.load_design("dgx-1", ["machine.chips=2"])
    shared = graphs.for_design(own)
    assert [shared(size).batch_size for size in sizes] == [(size or WORKLOAD.batch_size) // 2 for size in sizes]
    assert [graphs(size).batch_size for size in sizes] == [size or WORKLOAD.batch_size for size in sizes]
