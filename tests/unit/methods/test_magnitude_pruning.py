"""Magnitude pruning: masks in training, measured densities, and their price with and without zero skipping."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import LossScale, Numerics, load_design
from presilicon.emulation.training.loop import Training
from presilicon.emulation.training.record import TrainingRecord
from presilicon.methods.magnitude_pruning import MagnitudePruning
from presilicon.records import LayerFact, MethodFact, StepFacts
from presilicon.study import evaluate
from presilicon.study.join.prices import StepGraphs, StepPrices
from presilicon.workloads import Workload, load_workload

PARAMETERS = MagnitudePruning(sparsity=0.75, begin=2, end=12, every=5)


def training_of(workload: Workload, numerics: Numerics, method: MagnitudePruning) -> Training:
    return Training(TrainingRecord(workload, numerics, methods=(method,)), workload.require_data()[0]())


def run_steps(count: int, parameters: MagnitudePruning = PARAMETERS) -> Training:
    training = training_of(load_workload("digits-mlp"), Numerics(), parameters)
    for number in range(count):
        assert training._step(number) is None
    return training


def test_the_share_of_zeros_follows_the_cubic_course():
    # s = 0.75 (1 - (1 - t)^3) at t = 0, 0.5 and 1
    assert [PARAMETERS.sparsity_at(step) for step in (0, 2, 7, 12, 99)] == [0.0, 0.0, 0.65625, 0.75, 0.75]
    assert [step for step in range(20) if PARAMETERS.is_due(step)] == [2, 7, 12]


def test_the_smallest_weights_of_a_layer_are_zero_and_stay_so():
    training = run_steps(13)
    weight = training.model.hidden1.weight.detach().clone()
    zeros = weight == 0
    assert int(zeros.sum()) == int(0.75 * weight.numel())
    for number in range(13, 20):
        training._step(number)
    later = training.model.hidden1.weight.detach()
    assert bool((later[zeros] == 0).all())
    assert not torch.equal(later, weight)
    assert bool((training.model.output.weight != 0).all())


@pytest.mark.parametrize("pattern", [None, "2:4"])
def test_weights_that_were_pruned_are_not_chosen_again(pattern):
    training = run_steps(0, MagnitudePruning(begin=0, end=20, every=2, pattern=pattern))
    for group in training.optimizer.param_groups:
        group["lr"] = 1.0  # one update makes a pruned weight larger than many others
    zeros = torch.zeros(())
    for number in range(21):
        training._step(number)
        before, zeros = zeros, training.model.hidden1.weight.detach() == 0
        assert bool((zeros | ~before.bool()).all())


def test_a_skipped_update_puts_off_the_pruning():
    numerics = Numerics(error="float16", loss_scale=LossScale(kind="dynamic", initial=2.0**24, interval=1000))
    method = MagnitudePruning(sparsity=0.75, begin=0, end=2, every=1)
    training = training_of(load_workload("digits-mlp"), numerics, method)
    for number in range(12):
        training._step(number)
    skipped = training._scaler.skipped
    assert skipped[-1] >= method.end
    weight = training.model.hidden1.weight
    assert int(weight.count_nonzero()) == weight.numel() // 4
    facts = [run.facts for run in training._progress.runs for _ in range(run.count)]
    names = [sorted({fact.name for fact in step_facts.methods}) for step_facts in facts]
    assert [name for name in names if name] == [["masked", "ranked"]] + [["masked"]] * (11 - len(skipped))


class SharedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.inner_again, self.output = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64, bias=False)
        self.first = nn.Linear(64, 64)
        self.inner_again.weight, self.first.weight = self.inner.weight, self.output.weight
        self.last = nn.GRU(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.output(torch.relu(self.inner_again(torch.relu(self.inner(self.first(x))))))
        return self.last(hidden)[0]


def test_layers_that_share_a_weight_share_its_zeros():
    workload = replace(load_workload("digits-mlp"), model=SharedWeights)
    training = training_of(workload, Numerics(), MagnitudePruning(begin=0, end=1))
    for number in range(2):
        training._step(number)
    densities = {fact.layer: fact.density for fact in training._progress.runs[-1].facts.layers}
    assert densities == pytest.approx(dict.fromkeys(["inner", "inner_again", "output", "first"], 0.2), abs=1e-3)


def test_a_weight_shared_with_the_last_layer_stays_dense():
    model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 16), nn.Linear(16, 64, bias=False))
    model[2].weight = model[0].weight

    class Run:
        pass

    Run.model = model
    assert list(MagnitudePruning().attach(Run())._weights) == ["1"]


def test_what_is_pruned_is_what_is_smallest():
    training = run_steps(12)
    seen: list[torch.Tensor] = []
    step = training.optimizer.step
    training.optimizer.step = lambda: (step(), seen.append(training.model.hidden2.weight.detach().clone()))
    training._step(12)
    [before] = seen
    after = training.model.hidden2.weight.detach()
    kept = after != 0
    assert float(before[kept].abs().min()) >= float(before[~kept].abs().max())


def test_facts_measure_the_weights_themselves():
    training = run_steps(9)
    facts = [run.facts for run in training._progress.runs for _ in range(run.count)]
    assert facts[1] == StepFacts()
    density = int(training.model.hidden1.weight.count_nonzero()) / 4096
    assert LayerFact(layer="hidden1", role="weight", density=density) in facts[8].layers
    assert density == pytest.approx(1 - 0.65625, abs=1 / 4096)
    assert MethodFact(method="magnitude-pruning", name="ranked", value=True) in facts[7].methods
    assert MethodFact(method="magnitude-pruning", name="ranked", value=True) not in facts[8].methods


def test_a_pattern_keeps_the_largest_of_each_group_and_says_which_products_it_serves():
    training = run_steps(4, MagnitudePruning(pattern="2:4", begin=1, end=12))
    weight = training.model.hidden1.weight.detach()
    assert bool(((weight != 0).view(64, 16, 4).sum(2) == 2).all())
    facts = training._progress.runs[-1].facts
    structured = {(fact.layer, fact.product): fact.share for fact in facts.products if fact.zeros == "2:4"}
    assert structured == {("hidden1", "forward"): 0.5, ("hidden2", "forward"): 0.5}  # not along the other axis
    packed = {(fact.layer, fact.product): fact.share for fact in facts.products if fact.zeros == "weights"}
    assert packed["hidden1", "forward"] == 0.5
    assert packed["hidden1", "input_grad"] > 0.5
    with pytest.raises(ConfigError, match="must be N:M"):
        load_design("bf16-systolic", methods=["magnitude-pruning.pattern=4:4"])


def test_the_mask_of_a_convolution_groups_its_channels():
    from presilicon.methods.magnitude_pruning import _structured_mask

    weight = torch.randn(6, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    mask = _structured_mask(weight, "2:4")
    assert mask.shape == weight.shape
    assert bool((mask.view(6, 2, 4, 3, 3).sum(2) == 2).all())


def test_a_model_without_layers_to_prune_is_refused():
    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.output = nn.Linear(64, 10)

        def forward(self, inputs):
            return self.output(inputs)

    workload = replace(load_workload("digits-mlp"), model=Tiny)
    with pytest.raises(ConfigError, match=r"finds no weights to prune.*dense_last = false"):
        training_of(workload, Numerics(), PARAMETERS)


def prices(**settings) -> StepPrices:
    machine = [f"machine.{name}={value}" for name, value in {"fusion": "none", **settings}.items()]
    design = load_design("bf16-systolic", machine, methods=["magnitude-pruning"])
    return StepPrices(StepGraphs(load_workload("digits-mlp"), design.methods), design)


def pruned(density: float, *, ranked: bool = False) -> StepFacts:
    own = [MethodFact(method="magnitude-pruning", name="masked", value=True, layer="hidden1")]
    own += [MethodFact(method="magnitude-pruning", name="ranked", value=True)] if ranked else []
    return StepFacts(layers=(LayerFact(layer="hidden1", role="weight", density=density),), methods=tuple(own))


def test_a_dense_array_gains_nothing_and_pays_for_masks():
    dense = prices()
    plain, masked, ranked = dense(), dense(pruned(0.25)), dense(pruned(0.25, ranked=True))
    names = [op.name for op in masked.ops if op.name not in {op.name for op in plain.ops}]
    assert names == ["hidden1.update.mask"]
    assert plain.time_s < masked.time_s < ranked.time_s
    others = [op.time_s for op in masked.ops if op.name != "hidden1.update.mask"]
    assert others == [op.time_s for op in plain.ops]


def test_an_array_that_skips_zeros_computes_only_what_is_left():
    """The three products of a layer of 64 x 64 with a batch of 32, on an array of 16 x 16."""
    skipping = prices(**{"sparsity.zeros": "weights"}, rows=16, cols=16)
    plain, sparse = skipping(), skipping(pruned(0.25))
    for phase in ("forward", "weight_grad"):
        [before], [after] = (
            [op for op in cost.ops if op.layer == "hidden1" and op.phase == phase and op.unit == "array"]
            for cost in (plain, sparse)
        )
        # A quarter of the folds is left: 4 of 16, each as long as before.
        assert after.cycles * 4 == before.cycles
        assert after.energy_j < before.energy_j
    other = [[op for op in cost.ops if op.layer == "hidden2"] for cost in (plain, sparse)]
    assert [op.cycles for op in other[0]] == [op.cycles for op in other[1]]


def test_a_machine_says_what_it_makes_of_zeros():
    dense = load_design("bf16-systolic").machine
    skipping = load_design("bf16-systolic", ["machine.sparsity.zeros=weights"]).machine
    assert dense.remarks(StepFacts()) == ()
    (free,) = skipping.remarks(StepFacts())
    assert "has no codec_bit" in free
    assert "does not skip zeros" in dense.remarks(pruned(0.5))[0]
    assert "perfect packing" in skipping.remarks(pruned(0.5))[0]
    assert "does not skip zeros" in load_design("h200").machine.remarks(pruned(0.5))[0]


@pytest.mark.parametrize(
    ("settings", "is_named"),
    [
        (["machine.cols=32"], True),
        (["machine.cols=16"], False),
        (["machine.cols=32", "machine.rows=16", "machine.reduction=columns"], False),
    ],
)
def test_packing_for_other_columns_than_the_machine_has_is_named(digits_in_ten_steps, settings, is_named):
    method, sparse = "magnitude-pruning", "machine.sparsity.zeros=weights"
    design = load_design("bf16-systolic", [sparse, *settings], methods=[f"{method}.begin=1", f"{method}.end=8"])
    remark = "weights are packed for tiles of 16 columns, but the machine has 32: set the method's columns"
    assert (remark in evaluate(design, digits_in_ten_steps, seeds=1).remarks) is is_named


def test_the_result_of_an_evaluation_carries_the_remark(digits_in_ten_steps):
    method = "magnitude-pruning"
    design = load_design("bf16-systolic", methods=[f"{method}.begin=1", f"{method}.end=8", f"{method}.every=2"])
    result = evaluate(design, digits_in_ten_steps, seeds=1)
    assert any("does not skip zeros" in remark for remark in result.remarks)
    assert result.provenance["design"]["methods"][0]["name"] == method


@pytest.fixture
def digits_in_ten_steps():

    return replace(load_workload("digits-mlp"), max_steps=30)
