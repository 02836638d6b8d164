"""Emulated training against what torch does natively."""

import itertools
from functools import cache

import pytest
import torch

from presilicon.designs import Numerics, load_recipe
from presilicon.emulation import emulate_, emulate_optimizer_
from presilicon.workloads import load_workload


@cache
def training_split(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return load_workload(name).data().train


def losses(name: str, seed: int, steps: int, numerics: Numerics | None = None, autocast: bool = False) -> torch.Tensor:
    """The training loss of each step; weights and batches follow from the seed alone."""
    workload = load_workload(name)
    inputs, targets = training_split(name)
    torch.manual_seed(seed)
    model = workload.model()
    order = torch.Generator().manual_seed(seed)
    if numerics is not None:
        emulate_(model, numerics)
    optimizer = workload.optimizer(model.parameters())
    if numerics is not None:
        emulate_optimizer_(optimizer, numerics, model=model)
    found = []
    for _ in range(steps):
        chosen = torch.randint(len(inputs), (workload.batch_size,), generator=order)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output = model(inputs[chosen])
        loss = workload.loss(output.float(), targets[chosen])
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


SHIPPED = ["digits-mlp", "digits-cnn", "fashion-mlp", "fashion-cnn", "fashion-resnet", "shakespeare-gpt"]


@pytest.mark.parametrize("name", SHIPPED)
def test_float32_numerics_train_as_plain_torch_does_to_the_last_bit(name: str) -> None:
    assert torch.equal(losses(name, 0, 30, Numerics()), losses(name, 0, 30))


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Root mean square of the difference of two curves, each smoothed over ten steps."""
    smooth = [curve.unfold(0, 10, 1).mean(-1) for curve in (one, other)]
    return float((smooth[0] - smooth[1]).square().mean().sqrt())


@pytest.mark.parametrize("name", ["digits-mlp", "digits-cnn"])
def test_emulated_bfloat16_follows_native_autocast(name: str) -> None:
    """Seed noise is the mean distance between the native curves of different seeds; with the same weights and batches,
    the emulated curve must stay within a fifth of that of the native one.
    """
    seeds = range(4)
    native = [losses(name, seed, 100, autocast=True) for seed in seeds]
    for recipe in ("bf16", "bf16-pure"):
        mine = [losses(name, seed, 100, load_recipe(recipe).numerics) for seed in seeds]
        noise = [distance(native[a], native[b]) for a, b in itertools.combinations(seeds, 2)]
        apart = [distance(one, other) for one, other in zip(mine, native, strict=True)]
        print(f"{name} {recipe}: {max(apart):.4f} apart at most, seed noise {sum(noise) / len(noise):.4f}")
        assert max(apart) < 0.2 * sum(noise) / len(noise)
        assert abs(float(torch.stack(mine)[:, -20:].mean() - torch.stack(native)[:, -20:].mean())) < max(noise)
