"""Optimizer state on another device, because the fast one has too little memory for it.

    python examples/offload_optimizer.py

Adam keeps two numbers for each weight. Under a limit on the memory of the fast device, the updates, and with them the
state, go to a device with room: a GPU would keep weights and activations, and the host the state (`runtime =
["cuda:0"]` and `["cpu"]`). Here both are the CPU, the second one with memory of its own.
"""

from functools import partial

import torch
from torch.nn import functional

import presilicon as ps
from presilicon.records import Mode, Pool, Problem, Schedule, Started, StepGraph, Task
from presilicon.scheduling import TorchDevice
from presilicon.study import Hybrid

LIMIT_BYTES = 1_200_000


class Host(TorchDevice):
    """A device with memory of its own."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.name = "host"


def state_bytes(step: StepGraph) -> int:
    """Bytes of the optimizer's state."""
    return 4 * sum(tensor.elements for tensor in step.state)


def place(step: StepGraph, limit_bytes: int) -> tuple[Problem, Schedule]:
    """Updates on the host if weights, gradients and state together exceed the limit; all else on the fast device."""
    weights = 4 * sum(tensor.elements for tensor in step.parameters)
    offloads = 2 * weights + state_bytes(step) > limit_bytes
    tasks, started = [], []
    for op in step.ops:
        device = "host" if offloads and op.phase == "update" else "fast"
        mode = Mode(device=device, time_s=1e-4, average_w=1.0, peak_w=1.0)
        shape = op.outputs[0].shape if op.outputs else ()
        tasks.append(
            Task(id=op.index, kind=op.kind, deps=op.depends_on, modes=(mode,), name=op.name, operator=op.operator,
                 shape=shape)
        )  # fmt: skip
        started.append(Started(op.index, mode, (0,), op.index * 1e-4))
    pools = (Pool(name="fast", units=1, idle_w=0.0), Pool(name="host", units=1, idle_w=0.0))
    problem = Problem(name=step.name, tasks=tuple(tasks), pools=pools)
    return problem, Schedule(solver="by hand", started=tuple(started))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """An ordinary training loop."""
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        x = torch.randn(64, 128, generator=generator)
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The same model and optimizer at every call."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)
    )
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def main(steps: int = 20) -> None:
    """Train with and without the offload."""
    model, optimizer = make()
    step = ps.capture(
        model, torch.empty(64, 128), targets=torch.empty(64, 1), loss=functional.mse_loss,
        optimizer=partial(torch.optim.Adam, lr=1e-3),
    )  # fmt: skip
    problem, schedule = place(step, LIMIT_BYTES)
    with Hybrid(model, problem, schedule, "fast", devices={"fast": ["cpu"], "host": [Host()]}) as run:
        losses = train(model, optimizer, steps)
        run.session.synchronize()
        on_host = sum(
            state._buffer.version.size * 4
            for states in optimizer.state.values()
            for state in states.values()
            if state.dim() and "host 0" in state._buffer.version.tensors
        )
    plain = train(*make(), steps)
    print(f"limit of the fast device: {LIMIT_BYTES} bytes; Adam's state: {state_bytes(step)} bytes")
    print(f"state held by the host while training: {on_host} bytes")
    print(f"ops by device: {run.execution.ops_by_device}")
    print(f"last loss {losses[-1]:.6f}, without the offload {plain[-1]:.6f}")


if __name__ == "__main__":
    main()
