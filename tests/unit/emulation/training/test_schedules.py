"""Schedules and accumulation in training, against plain loops of torch."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from presilicon import Workload, load_workload
from presilicon.base import derive_seed
from presilicon.designs import Numerics
from presilicon.emulation import Checkpoint, train
from presilicon.records import StepFacts

STEPS = 20


def short(**changes: object) -> Workload:
    return replace(load_workload("digits-mlp"), max_steps=STEPS, evaluate_every=5, target=1.0, **changes)


def plain_losses(workload: Workload, seed: int, scheduled: bool) -> Iterator[float]:
    """The losses of the same training in plain torch, with whole batches."""
    torch.manual_seed(derive_seed(seed, "weights"))
    model = workload.model()
    optimizer = workload.optimizer(model.parameters())
    warmup = LinearLR(optimizer, start_factor=0.1, total_iters=5)
    cosine = CosineAnnealingLR(optimizer, STEPS - 5)
    schedule = SequentialLR(optimizer, [warmup, cosine], [5])
    if not scheduled:
        optimizer = workload.optimizer(model.parameters())
    assert workload.data is not None
    inputs, targets = workload.data().train
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(derive_seed(seed, "data")))
    for step in range(STEPS):
        batch = order[step * workload.batch_size : (step + 1) * workload.batch_size]
        optimizer.zero_grad()
        loss = workload.loss(model(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
        if scheduled:
            schedule.step()
        yield float(loss.detach())


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("scheduled", [False, True])
def test_training_equals_a_plain_loop_to_the_order_of_additions(accumulate: int, scheduled: bool) -> None:
    workload = short(accumulate=accumulate, schedule="cosine(warmup=5, start=0.1)" if scheduled else None)
    trace = train(workload, Numerics(), seed=2)
    assert trace.losses == pytest.approx(list(plain_losses(workload, 2, scheduled)), rel=2e-5)
    assert trace.steps == STEPS
    assert [point.updates for point in trace.evaluations] == [5, 10, 15, 20]


class Rates:
    """A hook that notes the learning rate of every step."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def attach(self, model: torch.nn.Module, optimizer: SGD, step: int) -> None:
        self._optimizer = optimizer

    def before_step(self, step: int) -> None:
        """Nothing: the rate of the step is not set yet."""

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        self.rates.append(self._optimizer.param_groups[0]["lr"])
        return facts

    def state_dict(self) -> dict[str, list[float]]:
        return {"rates": self.rates}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        self.rates = state["rates"]


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
def test_a_cosine_schedule_with_warm_up_has_torchs_rates_also_after_a_resume(tmp_path: Path) -> None:
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.05)
    parts = [LinearLR(optimizer, start_factor=0.1, total_iters=5), CosineAnnealingLR(optimizer, STEPS - 5)]
    schedule = SequentialLR(optimizer, parts, [5])
    expected = []
    for _ in range(STEPS):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    workload, rates = short(schedule="cosine(warmup=5, start=0.1)"), Rates()
    whole = train(workload, Numerics(), hooks=[rates])
    assert rates.rates == pytest.approx(expected)

    checkpoint, resumed = Checkpoint(tmp_path / "run", every=1), Rates()

    class StoppedError(Exception):
        pass

    def stop(point: object) -> None:
        if getattr(point, "step", 0) == 15:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(workload, Numerics(), hooks=[Rates()], checkpoint=checkpoint, on_evaluation=stop)
    assert train(workload, Numerics(), hooks=[resumed], checkpoint=checkpoint) == whole
    assert resumed.rates == rates.rates
