"""A training step on a CUDA device and the CPU together."""

from functools import partial

import pytest
import torch
from torch import nn

from presilicon.designs import Device, System
from presilicon.records import Schedule, Started
from presilicon.scheduling import build_problem
from presilicon.study.hybrid_context import Hybrid
from presilicon.study.scheduling import to_graph
from presilicon.workloads import capture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen"),
]

BATCH = (64, 1, 14, 14)
SYSTEM = System(
    name="cuda-and-cpu",
    devices={
        "gpu": Device(kind="gpu", idle_w=120, peak_w=700, memory_gb_s=4800, bytes_per_s=20e9, runtime=("cuda:0",)),
        "cpu": Device(kind="cpu", idle_w=50, peak_w=200, memory_gb_s=100, bytes_per_s=20e9, runtime=("cpu",)),
    },
)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 49, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10),
    )  # fmt: skip


def losses(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(20):
        x, y = torch.randn(BATCH, generator=generator), torch.randint(0, 10, BATCH[:1], generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("takeover", [False, True])
@pytest.mark.parametrize("make", [partial(torch.optim.SGD, lr=0.05, momentum=0.9), partial(torch.optim.AdamW, lr=1e-3)])
def test_a_card_and_the_cpu_train_as_torch_does(make, takeover):
    torch.backends.cudnn.allow_tf32 = False
    plain = network()
    expected = losses(plain, make(plain.parameters()))
    targets = torch.zeros(BATCH[0], dtype=torch.long)
    step = capture(network(), torch.empty(BATCH), loss=nn.functional.cross_entropy, targets=targets, optimizer=make)
    problem = build_problem(SYSTEM, to_graph(step))
    devices = ["cpu" if task.id % 3 == 0 else "gpu" for task in problem.tasks]
    modes = [next(m for m in t.modes if m.device == d) for t, d in zip(problem.tasks, devices, strict=True)]
    started = tuple(Started(place, mode, (0,), place * 1e-5) for place, mode in enumerate(modes))
    model = network()
    with Hybrid(model, problem, Schedule(solver="hand", started=started), "gpu", takeover=takeover) as run:
        found = losses(model, make(model.parameters()))
    assert found == pytest.approx(expected, rel=1e-4)
    assert run.execution.offloaded > 0.2
    assert not run.execution.lost
