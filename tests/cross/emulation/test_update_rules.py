"""Training as machines update: single samples, several chips and continuous propagation, against other programs."""

from collections import OrderedDict
from functools import partial
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from oracles.continuous_propagation import Layer, run_slots
from presilicon.base import ConfigError, derive_seed
from presilicon.designs import MINIBATCH, Numerics, UpdateRule, load_design, load_recipe
from presilicon.emulation.training.checkpoint import Pace
from presilicon.emulation.training.loop import Training
from presilicon.emulation.training.record import TrainingRecord
from presilicon.records import Evaluation
from presilicon.workloads import Splits, Workload, sgd

WIDTHS = (6, 8, 7, 5, 3)
RATE, MOMENTUM = 0.05, 0.5
FLOAT32 = Numerics()


def deep_net() -> nn.Module:
    sides = list(pairwise(WIDTHS))
    layers = [(f"fc{number}", nn.Linear(*side)) for number, side in enumerate(sides)]
    parts = [part for name, layer in layers for part in ((name, layer), (f"{name}relu", nn.ReLU()))]
    return nn.Sequential(OrderedDict(parts[:-1])).double()


def random_splits() -> Splits:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(64, WIDTHS[0], generator=generator, dtype=torch.float64)
    targets = torch.randint(WIDTHS[-1], (64,), generator=generator)
    return Splits((inputs, targets), (inputs, targets), (inputs, targets))


def workload(**changes) -> Workload:
    fields = {
        "model": deep_net,
        "optimizer": partial(sgd, learning_rate=RATE, momentum=MOMENTUM),
        "batch_size": 8,
        "max_steps": 5,
        "evaluate_every": 5,
        "sustain": 1,
    }
    return Workload(name="deep", data=random_splits, target=1.0, **(fields | changes))


def trained(numerics: Numerics = FLOAT32, rule: UpdateRule = MINIBATCH, **changes) -> Training:
    """A finished training run, whose weights can be looked at."""
    points: list[Evaluation] = []
    record = TrainingRecord(workload(**changes), numerics, 3, update_rule=rule)
    training = Training(record, record.workload.require_data()[0](), on_evaluation=points.append)
    training.run(None, Pace(None))
    training.points = points
    return training


def fresh_net() -> nn.Module:
    torch.manual_seed(derive_seed(3, "weights"))
    return deep_net()


def batches_of(size: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The batches of seed 3, by the rule that the documentation gives: a permutation for each epoch."""
    inputs, targets = random_splits().train
    generator = torch.Generator().manual_seed(derive_seed(3, "data"))
    batches = []
    while len(batches) < count:
        order = torch.randperm(len(inputs), generator=generator)
        batches += [(inputs[part], targets[part]) for part in order.split(size) if len(part) == size]
    return batches[:count]


def to_bfloat16(weight: np.ndarray) -> np.ndarray:
    return weight.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize(
    ("numerics", "rounded"),
    [(Numerics(), np.asarray), (Numerics(weight=load_recipe("bf16").numerics.weight), to_bfloat16)],
    ids=["float64", "weights in bfloat16"],
)
def test_continuous_propagation_equals_layers_that_exchange_messages_slot_by_slot(numerics, rounded):
    rule = UpdateRule(per_sample=True, pipelined=True)
    training = trained(numerics, rule)
    linear = [module for module in fresh_net() if isinstance(module, nn.Linear)]
    layers = [
        Layer(layer.weight.detach().numpy(), layer.bias.detach().numpy(), RATE, MOMENTUM, layer is linear[-1], rounded)
        for layer in linear
    ]
    samples = [pair for inputs, targets in batches_of(8, 5) for pair in zip(inputs.numpy(), targets, strict=True)]
    run_slots(layers, ((inputs, int(target)) for inputs, target in samples))
    # Once the pipeline is full, the ages of the weights are the rule's; the oracle knows no rule.
    assert tuple(layer.ages[-1] for layer in layers) == rule.staleness(len(layers)) == (6, 4, 2, 0)
    emulated = [module for module in training.model if isinstance(module, nn.Linear)]
    for layer, module in zip(layers, emulated, strict=True):
        np.testing.assert_allclose(module.weight.detach().numpy(), layer.weight, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(module.bias.detach().numpy(), layer.bias, rtol=1e-10, atol=1e-12)


def test_the_comparison_with_the_pipeline_can_fail():
    """Without delays the weights differ by far more than the tolerance of the comparison."""
    late, at_once = (trained(rule=UpdateRule(per_sample=True, pipelined=pipelined)) for pipelined in (True, False))
    assert float((late.model.fc0.weight - at_once.model.fc0.weight).detach().abs().max()) > 1e-4


def test_single_samples_equal_a_plain_loop_with_a_batch_of_one():
    training = trained(rule=UpdateRule(per_sample=True))
    net = fresh_net()
    optimizer = sgd(net.parameters(), learning_rate=RATE, momentum=MOMENTUM)
    for inputs, targets in batches_of(8, 5):
        for sample, target in zip(inputs.split(1), targets.split(1), strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(net(sample), target).backward()
            optimizer.step()
    for ours, theirs in zip(training.model.parameters(), net.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    [point] = training.points
    assert (point.step, point.samples, point.updates) == (5, 40, 40)


def test_chips_train_on_the_joint_batch():
    together = trained(rule=UpdateRule(chips=4), batch_size=16, max_steps=5)
    alone = trained(batch_size=16, max_steps=5)
    for ours, theirs in zip(together.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    [point] = together.points
    assert (point.step, point.samples, point.updates) == (5, 80, 5)


def test_accumulation_over_micro_batches_equals_one_large_batch_to_float_reordering():
    pieces, whole = (trained(batch_size=16, max_steps=20, evaluate_every=20, accumulate=parts) for parts in (4, 1))
    for ours, theirs in zip(pieces.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert pieces.points[0].updates == whole.points[0].updates == 20


def test_continuous_propagation_refuses_what_needs_all_layers_at_once():
    with pytest.raises(ConfigError, match="clip_norm = None and no loss scale"):
        trained(rule=UpdateRule(per_sample=True, pipelined=True), clip_norm=1.0)


def test_single_samples_refuse_accumulation_and_batch_normalization():
    with pytest.raises(ConfigError, match="adds up no gradients"):
        trained(rule=UpdateRule(per_sample=True), accumulate=2)
    with pytest.raises(ConfigError, match="batch normalization needs more than one sample"):
        trained(rule=UpdateRule(per_sample=True), model=normalized_net)


def normalized_net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()


def test_recurrent_layers_are_refused_in_a_pipeline():
    with pytest.raises(ConfigError, match="LSTM: continuous propagation is emulated for layers that"):
        trained(rule=UpdateRule(per_sample=True, pipelined=True), model=RecurrentNet)


class RecurrentNet(nn.Module):
    """Reads the inputs as a sequence of two."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, 3, batch_first=True).double()

    def forward(self, inputs):
        return self.cell(inputs.unflatten(-1, (2, 3)))[0][:, -1]


def test_several_chips_evaluate_after_as_many_samples_as_one():
    """However many chips share a batch of 32 samples, an interval is two of them, and the budget five."""
    for chips in (1, 4):
        together = trained(rule=UpdateRule(chips=chips), max_steps=5, evaluate_every=2, batch_size=32, sustain=9)
        assert [point.samples for point in together.points] == [64, 128]


def test_dgx_1_trains_on_eight_batches():
    rule = load_design("dgx-1").machine.update_rule
    assert trained(rule=rule, batch_size=32, max_steps=2, evaluate_every=1, sustain=2).points[-1].updates == 2


def test_a_batch_that_the_chips_cannot_share_is_refused():
    with pytest.raises(ConfigError, match="4 chips cannot share a batch of 6 samples"):
        trained(rule=UpdateRule(chips=4), batch_size=6)
