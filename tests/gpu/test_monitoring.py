"""Monitoring on a GPU: nothing waits for it, and the statistics are those of the CPU."""

import copy
import math

import pytest
import torch
from torch import nn

import presilicon as ps
from presilicon.designs import LossScale
from presilicon.records import MonitorReport

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

_RULE = LossScale(kind="dynamic", initial=1024.0, interval=2)


def reports(recipe: str) -> tuple[MonitorReport, MonitorReport]:
    """The reports of one step on the CPU and on the GPU."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 32), nn.Linear(32, 8))
    x = torch.randn(32, 4, 8, 8) * 30
    found = []
    for device in ("cpu", "cuda"):
        own = ps.emulate_(copy.deepcopy(model).to(device), ps.load_numerics(recipe))
        inputs = x.to(device)
        with ps.monitor(own) as warm:
            own(inputs).square().mean().backward()  # compiles the kernels
        assert warm.report().roles
        own.zero_grad()
        with ps.monitor(own) as monitor:
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                own(inputs).square().mean().backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        found.append(monitor.report())
    return found[0], found[1]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("recipe", ["fp8-hybrid", "mxfp8", "nvfp4", "fp8-delayed", "fp8-rowwise", "int8"])
def test_a_monitored_step_does_not_wait_and_agrees_with_the_cpu(recipe: str) -> None:
    ours, judge = reports(recipe)
    assert [entry.key for entry in ours.roles] == [entry.key for entry in judge.roles]
    assert ours.dead_units == judge.dead_units
    for mine, other in zip(ours.roles, judge.roles, strict=True):
        a, b = mine.statistics, other.statistics
        assert a.numbers == b.numbers
        assert (a.sqnr_db is None) == (b.sqnr_db is None)
        assert math.isclose(a.sqnr_db or 0.0, b.sqnr_db or 0.0, abs_tol=0.2), mine.key  # sums in another order
        assert math.isclose(a.l2_norm, b.l2_norm, rel_tol=1e-3), mine.key


def test_a_scaler_on_the_gpu_agrees_with_gradscaler() -> None:
    scales = []
    for scaler in (torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2),
                   ps.LossScaler(ps.Numerics(loss_scale=_RULE))):  # fmt: skip
        weight = nn.Parameter(torch.ones(4, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        own = []
        for step in range(8):
            optimizer.zero_grad()
            scaler.scale((weight * (float("inf") if step == 3 else 1.0)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            own.append((scaler.get_scale(), weight.tolist()))
        scales.append(own)
    assert scales[0] == scales[1]
