"""Ordinary lines of training loops inside the context of a hybrid run."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional

from hybrid_devices import REFERENCE, Board, at_random, place
from presilicon.base import RunFailedError
from presilicon.scheduling import DeviceLostError
from presilicon.study.execution import PlainTraining
from presilicon.study.hybrid_context import Hybrid, HybridWarning
from presilicon.workloads import load_workload

PROBLEM, SCHEDULE = place("digits-mlp", 16, at_random(1))
ON_BOARD = place("digits-mlp", 16, lambda index, op: (0,))


def hybrid(model, problem=PROBLEM, schedule=SCHEDULE, boards=None, **options):
    devices = {"cpu": ["cpu"], "board": boards or [Board("first"), Board("second")]}
    return Hybrid(model, problem, schedule, REFERENCE, devices=devices, **options)


def trained(look, steps=3):
    """What `look` sees after each step, in plain torch and in the context."""
    seen = []
    for in_context in (False, True):
        training = PlainTraining(load_workload("digits-mlp"), 16)

        def run(training=training):
            found = []
            for _ in training.run(steps):
                found.append(look(training.model, training.optimizer))
            return found

        if in_context:
            with hybrid(training.model):
                seen.append(run())
        else:
            seen.append(run())
    return seen


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


LOOKS = {
    "saved weights": lambda model, _: saved(model.state_dict()),
    "a copy of the weights": lambda model, _: copy.deepcopy(model.state_dict()),
    "saved state": lambda _, optimizer: saved(optimizer.state_dict())["state"][0],
    "a copy of the state": lambda _, optimizer: copy.deepcopy(optimizer.state_dict())["state"][0],
    "numpy": lambda model, _: {"grad": torch.from_numpy(next(model.parameters()).grad.numpy().copy())},
    "bits": lambda model, _: {"grad": next(model.parameters()).grad.view(torch.int32) + 0},
    "list": lambda model, _: {"list": torch.tensor(next(model.parameters()).grad[0].tolist())},
    "text": lambda model, _: {"text": torch.tensor(float(f"{next(model.parameters()).grad.sum():.6f}"))},
    "repr": lambda model, _: {"text": torch.tensor(len(repr(next(model.parameters()).grad).splitlines()))},
}


@pytest.mark.parametrize("name", LOOKS)
def test_values_are_those_of_the_step(name):
    plain, seen = trained(LOOKS[name])
    for theirs, ours in zip(plain, seen, strict=True):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert type(ours[key]) is type(theirs[key])
            torch.testing.assert_close(ours[key], theirs[key], rtol=1e-4, atol=3e-6 if name != "bits" else 4096)


def test_the_data_of_a_parameter_can_be_replaced():
    def clip(model, _):
        for parameter in model.parameters():
            parameter.data = parameter.data.clamp(-0.05, 0.05)
        return {"largest": torch.tensor(max(parameter.abs().max().item() for parameter in model.parameters()))}

    plain, seen = trained(clip)
    torch.testing.assert_close(seen, plain)
    assert seen[-1]["largest"] <= 0.05


def test_dropout_of_a_transposed_tensor_draws_the_numbers_of_torch():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)

        def forward(self, x):
            return self.last(functional.dropout(self.first(x).t(), 0.5, True).t())

    def losses(context):
        torch.manual_seed(0)
        model, x = Transposed(), torch.randn(4, 8)
        with context(model):
            return [model(x).square().sum().item() for _ in range(3)]

    plain = losses(lambda model: torch.enable_grad())
    with pytest.warns(HybridWarning, match="schedule of another model"):
        assert losses(hybrid) == pytest.approx(plain, rel=1e-5)


def test_an_rms_norm_and_a_bilinear_form_train_as_in_torch():
    class Normalized(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.form = nn.Linear(8, 16), nn.RMSNorm(16), nn.Bilinear(16, 8, 3)

        def forward(self, x):
            return self.form(self.norm(self.first(x)), x)

    def losses(context):
        torch.manual_seed(0)
        model, x, found = Normalized(), torch.randn(4, 8), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with context(model):
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(x).square().sum()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
        return found

    plain = losses(lambda model: torch.enable_grad())
    with pytest.warns(HybridWarning, match="schedule of another model"):
        assert losses(hybrid) == pytest.approx(plain, rel=1e-4)
    assert plain[2] < plain[0]


def test_a_batch_may_be_filled_again_through_numpy():
    def losses(in_context):
        training, generator = PlainTraining(load_workload("digits-mlp"), 16), torch.Generator().manual_seed(3)
        x, y = torch.empty(16, 64), torch.arange(16) % 10
        memory, found = x.numpy(), []

        def run():
            for _ in range(4):
                memory[:] = torch.rand(16, 64, generator=generator).numpy()
                training.optimizer.zero_grad()
                loss = functional.cross_entropy(training.model(x), y)
                loss.backward()
                training.optimizer.step()
                found.append(loss.detach())

        if in_context:
            with hybrid(training.model):
                run()
                return [loss.item() for loss in found]
        run()
        return [loss.item() for loss in found]

    assert losses(True) == pytest.approx(losses(False), rel=1e-5)


class Fragile(Board):
    """A board that fails where a result is read back, or where an op, or one that writes in place, is waited for."""

    def __init__(self, where, left):
        super().__init__("fragile")
        self.where, self.left, self.writes = where, left, False

    def run(self, func, args, kwargs):
        self.writes = func._schema.name.endswith("_")
        return super().run(func, args, kwargs)

    def _count(self, where):
        if where == self.where:
            self.left -= 1
            if self.left < 0:
                raise DeviceLostError("gone")

    def get(self, tensor):
        self._count("get")
        return super().get(tensor)

    def synchronize(self):
        self._count("synchronize")
        if self.writes:
            self._count("in place")
        super().synchronize()


def losses_with(board, **options):
    training = PlainTraining(load_workload("digits-mlp"), 16)
    with hybrid(training.model, *ON_BOARD, boards=[board, Board()], takeover=False, **options) as run:
        run.losses += training.run(3)
    return run.losses


@pytest.mark.parametrize("where", ["get", "synchronize"])
def test_with_a_mirror_a_device_may_fail_at_any_time(where):
    plain = list(PlainTraining(load_workload("digits-mlp"), 16).run(3))
    assert losses_with(Fragile(where, 60), mirror=True) == pytest.approx(plain, rel=1e-5)


def test_a_device_that_fails_while_it_writes_in_place_ends_the_run_without_a_mirror():
    with pytest.raises(RunFailedError, match=r"wrote a tensor in place .* mirror=True"):
        losses_with(Fragile("in place", 4))
