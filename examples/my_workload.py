"""A user's workload: two interleaved spirals, classified by a small perceptron.

    presilicon evaluate fp32-systolic fp8-systolic --workload examples/my_workload.py
    presilicon simulate fp8-systolic --workload examples/my_workload.py

Copy it, replace the model and the data, and keep the name `workload`. Use functions of the file for all callables; a
lambda works only with --jobs 1, because each seed is trained in a separate process.
"""

from functools import partial

import torch
from torch import Tensor, nn

import presilicon as ps
from presilicon.workloads import adamw

POINTS = 1200


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))


def data() -> ps.Splits:
    """The same points at every call, from a separate generator."""
    generator = torch.Generator().manual_seed(7)
    arm = torch.arange(POINTS) % 2
    angle = torch.rand(POINTS, generator=generator) * 3 * torch.pi
    rotated = angle + arm * torch.pi
    points = torch.stack([angle * rotated.cos(), angle * rotated.sin()], dim=1) / 3
    points += 0.1 * torch.randn(POINTS, 2, generator=generator)

    def part(start: int, end: int) -> tuple[Tensor, Tensor]:
        return points[start:end], arm[start:end]

    return ps.Splits(train=part(0, 800), validation=part(800, 1000), test=part(1000, 1200))


workload = ps.Workload(
    name="spirals",
    description="two interleaved spirals",
    model=model,
    data=data,
    target=0.95,  # on the validation split, held for `sustain` evaluations
    optimizer=partial(adamw, learning_rate=0.01),
    batch_size=50,
    evaluate_every=10,
    sustain=3,
    max_steps=1500,
)
