"""Training on OpenCL devices, by a schedule, against plain torch: the same losses, also when a device fails."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import presilicon as ps
from hybrid_devices import at_random, place, place_graph
from presilicon.scheduling import DeviceLostError, open_device
from presilicon.study import ExecuteOptions, ScheduleRequest, execute
from presilicon.study.execution import PlainTraining
from presilicon.study.hybrid_context import Hybrid
from presilicon.study.scheduling import to_graph
from presilicon.workloads import load_workload

pytestmark = pytest.mark.usefixtures("opencl")
NAMES = ("opencl:0.0/0", "opencl:0.0/1")
TOLERANCE = 2e-4
"""Relative difference of losses: sums in another order, after some steps of training."""


class Failing:
    """An OpenCL device that fails at its n-th op."""

    def __init__(self, name, fails_at):
        self.device, self.left = open_device(name), fails_at

    def __getattr__(self, name):
        return getattr(self.device, name)

    def run(self, func, args, kwargs):
        self.left -= 1
        if self.left < 0:
            raise DeviceLostError("CL_DEVICE_NOT_AVAILABLE")
        return self.device.run(func, args, kwargs)


def trained(workload, batch_size, steps, seed, boards=NAMES, **options):
    problem, schedule = place(workload, batch_size, at_random(seed))
    plain = list(PlainTraining(load_workload(workload), batch_size).run(steps))
    training = PlainTraining(load_workload(workload), batch_size)
    devices = {"cpu": ["cpu"], "board": boards}
    with Hybrid(training.model, problem, schedule, "cpu", devices=devices, **options) as run:
        run.losses += training.run(steps)
    run.plain_losses += plain
    return run.execution


@pytest.mark.parametrize(
    ("workload", "batch_size"), [("digits-cnn", 16), ("fashion-alexnet", 4), ("shakespeare-gpt", 2)]
)
def test_losses_on_opencl_devices_are_those_of_torch(workload, batch_size):
    execution = trained(workload, batch_size, 3, seed=1)
    assert execution.largest_loss_difference < TOLERANCE
    assert execution.offloaded > 1 / 3
    assert not execution.lost


def test_an_opencl_device_that_fails_in_mid_epoch_costs_no_accuracy():
    boards = [Failing(NAMES[0], 40), open_device(NAMES[1])]
    execution = trained("digits-cnn", 16, 4, seed=2, boards=boards, takeover=False)  # else it may get fewer ops
    assert execution.largest_loss_difference < TOLERANCE
    assert execution.lost == {"board 0": execution.lost["board 0"]}
    assert "CL_DEVICE_NOT_AVAILABLE" in execution.lost["board 0"]
    assert execution.ops_by_device["board 0"] == 40


class Unusual(nn.Module):
    """A network with an op that no kernel covers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(torch.cumsum(self.first(x), 1))


def test_an_op_that_no_kernel_covers_stays_on_the_torch_device():
    def make():
        torch.manual_seed(0)
        model = Unusual()
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def train(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(torch.ones(4, 8)), torch.zeros(4, 3))
            loss.backward()
            optimizer.step()
            yield loss.item()

    plain = list(train(*make()))
    model, optimizer = make()
    step = ps.capture(model, torch.empty(4, 8), targets=torch.empty(4, 3), loss=functional.mse_loss)
    problem, schedule = place_graph(to_graph(step), lambda index, op: (0,))
    with Hybrid(model, problem, schedule, "cpu", devices={"cpu": ["cpu"], "board": NAMES}) as run:
        losses = list(train(model, optimizer))
    assert losses == pytest.approx(plain, rel=TOLERANCE)
    assert "aten.cumsum.default" in {op.operator for op in run.execution.uncovered}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "batch_size"), [("digits-cnn", 256), ("fashion-alexnet", 32), ("shakespeare-gpt", 8)]
)
def test_fifty_steps_by_a_schedule_of_measured_times(workload, batch_size):
    request = ScheduleRequest(
        system="cpu-2xopencl", workload=workload, batch_size=batch_size, objective="throughput", solver="heft"
    )
    _, execution = execute(request, ExecuteOptions(steps=50))
    assert execution.steps == 50
    assert execution.offloaded > 1 / 3
    assert execution.losses == pytest.approx(execution.plain_losses, rel=5e-3)
