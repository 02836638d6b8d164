"""Optimizer state on another device, because the fast one has too little memory for it.

    python examples/offload_optimizer.py

Adam keeps two numbers for each weight. Under a limit on the memory of the fast device (`memory_gb`), the scheduler
sends updates, and with them their state, to a slower device with room: on a machine with a GPU `runtime = ["cuda:0"]`
and `["cpu"]`. Here both are the CPU, the second one with memory of its own.
"""

from functools import partial

import torch
from torch.nn import functional

import presilicon as ps
from presilicon.designs import Device, System
from presilicon.records import StepGraph
from presilicon.scheduling import OpEstimate, Solution, TorchDevice, build_problem, solve_schedule
from presilicon.study.scheduling import to_graph

LIMIT_BYTES = 1_200_000


class Host(TorchDevice):
    """A device with memory of its own."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.name = "host"


def state_bytes(step: StepGraph) -> int:
    """Bytes of the optimizer's state."""
    return 4 * sum(tensor.elements for tensor in step.state)


def place(step: StepGraph, limit_bytes: int, time_limit_s: float = 2.0) -> Solution:
    """The shortest step that was found within the limit; an op takes four times as long on the host."""
    system = System(
        name="offload",
        devices={
            "fast": Device(kind="gpu", idle_w=0, peak_w=1, bytes_per_s=1e10, memory_gb=limit_bytes / 1e9),
            "host": Device(kind="cpu", idle_w=0, peak_w=1),
        },
    )
    graph = to_graph(step)
    times_s = {"fast": 1e-4, "host": 4e-4}
    costs = {name: [OpEstimate(time_s, 1.0, 1.0, "assumed")] * len(graph.ops) for name, time_s in times_s.items()}
    problem = build_problem(system, graph, costs=costs)
    return solve_schedule(
        problem, objective="throughput", solver="anytime", time_limit_s=time_limit_s, reference="fast"
    )


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
    plan = place(step, LIMIT_BYTES)
    with ps.hybrid(model, plan, devices={"fast": ["cpu"], "host": [Host()]}, takeover=False) as run:
        losses = train(model, optimizer, steps)
        run.session.synchronize()
        on_host = sum(
            4 * state.numel()
            for states in optimizer.state.values()
            for state in states.values()
            if state.dim() and "host 0" in state._buffer.version.tensors
        )
    plain = train(*make(), steps)
    weights = 4 * sum(tensor.elements for tensor in step.parameters)
    print(f"limit of the fast device: {LIMIT_BYTES} bytes; weights {weights}, Adam's state {state_bytes(step)} bytes")
    print(f"state held by the host while training: {on_host} bytes")
    print(f"ops by device: {run.execution.ops_by_device}")
    print(f"last loss {losses[-1]:.6f}, without the offload {plain[-1]:.6f}")


if __name__ == "__main__":
    main()
