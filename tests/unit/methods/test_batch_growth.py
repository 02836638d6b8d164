"""Batch growth: when the loss stalls, the batch grows; its steps are priced at their own size."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import Numerics, StepFormats, TrainingStep, load_design
from presilicon.emulation import train
from presilicon.methods.batch_growth import BatchGrowth
from presilicon.records import StepFacts
from presilicon.simulation import simulate
from presilicon.study.join.prices import StepGraphs, StepPrices
from presilicon.workloads import capture_workload, load_workload


class Run:
    """A training run with so many samples in an epoch."""

    def __init__(self, train_samples: int | None) -> None:
        self.train_samples = train_samples


def sizes(parameters: BatchGrowth, losses: list[float], train_samples: int | None = None) -> list[int]:
    """The batch size of each step, of batches of 10."""
    attached = parameters.attach(Run(train_samples))
    seen = []
    for number in range(len(losses)):
        step = TrainingStep(number, 0, 10, losses[:number])
        attached.step(step, lambda: None)
        seen.append(step.batch_size)
    return seen


def test_the_batch_grows_when_a_window_is_hardly_better_than_the_one_before():
    growth = BatchGrowth(window=2, improvement=0.1, limit=4)
    falling = [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    assert sizes(growth, falling) == [10] * 6
    # The windows (0.25, 0.25) and (0.25, 0.25) are compared before the ninth step, and new windows begin with it.
    assert sizes(growth, falling + [0.25] * 8) == [10] * 8 + [20] * 4 + [40] * 2


def test_growth_ends_at_the_limit_and_at_the_size_of_an_epoch():
    growth = BatchGrowth(window=1, limit=8)
    assert sizes(growth, [1.0] * 12)[-1] == 80
    assert sizes(growth, [1.0] * 12, train_samples=45)[-1] == 40


def test_its_state_continues_where_it_was():
    growth = BatchGrowth(window=2)
    first, second = growth.attach(Run(None)), growth.attach(Run(None))
    for number in range(5):
        first.step(TrainingStep(number, 0, 10, [1.0] * number), lambda: None)
    second.load_state_dict(first.state_dict())
    steps = [TrainingStep(5, 0, 10, [1.0] * 5) for _ in range(2)]
    for attached, step in zip((first, second), steps, strict=True):
        attached.step(step, lambda: None)
    assert steps[0].batch_size == steps[1].batch_size == 20


def test_training_reports_the_samples_of_each_step():
    workload = load_workload("digits-mlp")
    growth = BatchGrowth(window=3, improvement=0.5, limit=4)
    trace = train(workload, Numerics(), methods=[growth])
    grown = [facts.samples for facts in trace.facts()]
    assert grown[0] is None
    assert set(grown) == {None, 64, 128}
    samples = sum(size or 32 for size in grown)
    last = trace.evaluations[-1]
    assert last.updates == last.step == trace.steps
    assert last.samples == samples


def test_a_grown_step_is_priced_as_a_step_of_that_batch():
    design, workload = load_design("bf16-systolic", methods=["batch-growth"]), load_workload("digits-mlp")
    prices = StepPrices(StepGraphs(workload, design.methods), design)
    assert prices(StepFacts(samples=128)) == simulate(capture_workload(workload, 128), design)
    assert prices().time_s < prices(StepFacts(samples=128)).time_s < 4 * prices().time_s


def test_a_machine_that_updates_after_every_sample_is_refused():
    with pytest.raises(ConfigError, match="this machine updates after every sample"):
        load_design("caterpillar-small", methods=["batch-growth"])
    assert load_design("caterpillar-small", ["machine.schedule=minibatch"], methods=["batch-growth"]).methods


def test_a_limit_below_the_factor_is_refused():
    with pytest.raises(ConfigError, match=r"\$\.methods\[0\].*limit must be at least factor = 4, not 2"):
        load_design("bf16-systolic", methods=["batch-growth.factor=4", "batch-growth.limit=2"])


def test_densities_default_to_one():
    assert StepFormats(Numerics(), StepFacts()).density_of("weight", "fc") == 1.0
