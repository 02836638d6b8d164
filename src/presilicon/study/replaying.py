"""Replay: a training run whose every bit is the same on a CPU and on the tensor cores of a GPU."""

import hashlib
import warnings
from collections.abc import Callable
from itertools import pairwise
from math import log2

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation import TensorCoreWarning, emulate_
from presilicon.formats import has_tensor_cores
from presilicon.records import OPERANDS
from presilicon.workloads import load_workload

BATCH, RATE = 64, 2.0**-3
"""Samples of a step, and its learning rate: powers of two, so that scaling by them is exact."""
WIDTHS = (64, 256, 128, 10)


class ReplayPoint(Struct, frozen=True, kw_only=True):
    """The state of the network after some steps."""

    step: int
    sha256: str
    """Hash of all weights, as float32 in the order of the layers."""
    correct: float
    """Share of the step's samples that the network recognizes."""


class Replay(Struct, frozen=True, kw_only=True):
    """A replayed training run."""

    device: str
    unit: str
    """How the forward products of the layers are added up."""
    points: tuple[ReplayPoint, ...]


def replay(
    numerics: Numerics,
    *,
    steps: int = 1000,
    every: int = 100,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[ReplayPoint], None] = lambda point: None,
) -> Replay:
    """Train a perceptron on digits with the sums of tensor cores, and hash its weights every few steps.

    Everything else in a step is exact or rounded once by IEEE 754, so that machines cannot differ: no bias, ReLU, the
    gradient of the squared error, plain gradient descent with a learning rate that is a power of two.

    Raises:
        ConfigError: an operand's format has no instruction on a tensor core, or the device has none that is modelled.
    """
    if steps < 1 or every < 1:
        raise ConfigError(f"steps and every must be at least 1, not {steps} and {every}")
    numerics = replace(numerics, sums="tensor-core")
    unit = _check(numerics, torch.device(device))
    load_data, _ = load_workload("digits-mlp").require_data()
    inputs, targets = (part.to(device) for part in load_data().train)
    wanted = nn.functional.one_hot(targets, 10).to(torch.float32)
    generator = torch.Generator().manual_seed(seed)
    model = emulate_(_network(generator).to(device), numerics, seed=seed)
    points: list[ReplayPoint] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TensorCoreWarning)
        for step in range(1, steps + 1):
            chosen = torch.randint(len(inputs), (BATCH,), generator=generator).to(device)
            output = _train_step(model, inputs[chosen].flatten(1), wanted[chosen])
            if step % every == 0 or step == steps:
                correct = float((output.argmax(1) == targets[chosen]).float().mean())
                points.append(ReplayPoint(step=step, sha256=hash_weights(model), correct=correct))
                progress(points[-1])
    return Replay(device=_name(device), unit=unit, points=tuple(points))


def hash_weights(model: nn.Module) -> str:
    """The SHA-256 of all parameters, as float32 in the order of the model."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().contiguous().numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def _network(generator: torch.Generator) -> nn.Module:
    layers: list[nn.Module] = []
    for inside, outside in pairwise(WIDTHS):
        layer = nn.Linear(inside, outside, bias=False)
        with torch.no_grad():
            steps = torch.randint(-(1 << 16), 1 << 16, layer.weight.shape, generator=generator)
            layer.weight.copy_(steps * 2.0 ** (-16 - round(log2(inside) / 2)))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _train_step(model: nn.Module, inputs: Tensor, wanted: Tensor) -> Tensor:
    """One step of gradient descent on the squared error; returns the outputs before it."""
    model.zero_grad()
    output: Tensor = model(inputs)
    torch.autograd.backward(output, (output.detach() - wanted) * (1 / BATCH))
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad * RATE)
    return output.detach()


def _check(numerics: Numerics, device: torch.device) -> str:
    """The unit of the forward products; every product must have one that is modelled."""
    for phase, (left, right) in OPERANDS.items():
        if numerics.unit_of(phase, left, right).is_float32:
            operands = " and ".join(str(numerics.operand(role, phase)) for role in (left, right))
            raise ConfigError(
                f"a replay needs operands that tensor cores multiply, and the {phase} product has {operands}; "
                "try the numerics bf16 or fp8-hybrid"
            )
    if device.type == "cuda" and not has_tensor_cores(device):
        raise ConfigError(
            f"the tensor cores of {_name(str(device))} are not modelled; try a Hopper GPU or --device cpu"
        )
    return str(numerics.unit_of("forward", "activation", "weight"))


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
