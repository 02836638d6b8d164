"""Energy of MAC units under the operands of an emulated training: by layer, product and step."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn.functional import unfold

from presilicon.base import ConfigError, did_you_mean
from presilicon.designs import Design, Numerics
from presilicon.emulation import train
from presilicon.formats import MacUnit
from presilicon.records import OPERANDS, PRODUCT_PHASES, ProductPhase, Role, StepFacts
from presilicon.rtl import mac_energy_pj
from presilicon.study.join.prices import StepGraphs
from presilicon.workloads import Workload

ROWS, TERMS = 16, 128
"""Rows of each operand, spread evenly, and products of a sum whose toggles are counted."""


class OperandEnergy(Struct, frozen=True, kw_only=True):
    """Energy of a multiply-add in one product of one layer at one step."""

    step: int
    layer: str
    product: ProductPhase
    left: str
    right: str
    mac: str
    pj: float
    """With the operands of the step."""
    random_pj: float
    """With normal random operands."""


def operand_energies(
    workload: Workload,
    design: Design,
    steps: Sequence[int],
    *,
    layers: Sequence[str] = (),
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> list[OperandEnergy]:
    """Train in emulation up to the last of `steps` and count the toggles of the MAC units in sky130_fd_sc_hd.

    `layers` are some of the linear and two-dimensional convolution layers; by default all of them. Operands are rounded
    to nearest. `progress` gets a line of text for each layer and step.

    Raises:
        ConfigError: a step is negative, the workload has no such layer, or the hardware cannot do a unit.
        MissingToolError: Yosys is not installed.
    """
    if not steps or min(steps) < 0:
        raise ConfigError(f"steps must be numbers of at least 0, not {list(steps)}")
    watching = _Operands(steps, layers)
    bounded = replace(workload, max_steps=max(steps) + 1, sustain=1 << 30, evaluate_every=max(steps) + 1)
    train(
        bounded, design.numerics, seed=seed, observers=[watching], hooks=[watching],
        update_rule=design.machine.update_rule, methods=design.methods,
    )  # fmt: skip
    graph = StepGraphs(workload).for_design(design)()
    computed = {(op.layer, op.phase) for op in graph.ops if op.gemm is not None}
    results = []
    for (step, layer), tensors in watching.seen.items():
        progress(f"step {step}, {layer}")
        numerics = design.numerics.in_force(layer, step, graph.ends)
        for product in PRODUCT_PHASES:
            if (layer, product) in computed and all(role in tensors for role in OPERANDS[product]):
                results.append(_measure(step, layer, product, numerics, tensors))
    return results


class _Operands:
    """An observer and hook that keeps the operands of some steps and layers, as matrices, before they are rounded."""

    is_passive = True

    def __init__(self, steps: Sequence[int], layers: Sequence[str]) -> None:
        self.seen: dict[tuple[int, str], dict[Role, Tensor]] = {}
        self._steps, self._chosen = frozenset(steps), layers
        self._modules: dict[str, nn.Module] = {}
        self._step = -1

    def attach(self, model: nn.Module, optimizer: Any, step: int) -> None:
        """Find the layers whose operands are matrices."""
        kinds = (nn.Linear, nn.Conv2d)
        self._modules = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, kinds) and getattr(module, "groups", 1) == 1
        }
        for layer in self._chosen:
            if layer not in self._modules:
                raise ConfigError(f'no linear or convolution layer "{layer}": {did_you_mean(layer, self._modules)}')
        if self._chosen:
            self._modules = {layer: self._modules[layer] for layer in self._chosen}

    @property
    def wants_pairs(self) -> bool:
        """Whether this step's operands are wanted."""
        return self._step in self._steps

    def before_step(self, step: int) -> None:
        """Note the step."""
        self._step = step

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        """Nothing is left to do."""
        return facts

    def __call__(self, step: int, layer: str, role: Role, tensor: Tensor) -> None:
        """Rounded tensors are not looked at."""

    def pair(self, step: int, layer: str, role: Role, before: Tensor, after: Tensor) -> None:
        """Keep the first tensor of a role in a layer and step."""
        module = self._modules.get(layer)
        if module is None or role not in ("weight", "activation", "error"):
            return
        kept = self.seen.setdefault((step, layer), {})
        if role not in kept:
            kept[role] = _matrix(before.detach().clone(), role, module)


def _matrix(tensor: Tensor, role: Role, module: nn.Module) -> Tensor:
    """Rows of samples (and places in an image), or of outputs; columns of features."""
    if role == "weight":
        return tensor.reshape(len(tensor), -1)
    if not isinstance(module, nn.Conv2d):
        return tensor.reshape(-1, tensor.shape[-1])
    if role == "error":
        return tensor.flatten(2).transpose(1, 2).reshape(-1, tensor.shape[1])
    if isinstance(module.padding, str):
        raise ConfigError(f'padding="{module.padding}": patches are cut with a padding in pixels; give a number')
    patches = unfold(tensor, module.kernel_size, module.dilation, module.padding, module.stride)
    return patches.transpose(1, 2).reshape(-1, patches.shape[1])


def _measure(
    step: int, layer: str, product: ProductPhase, numerics: Numerics, tensors: dict[Role, Tensor]
) -> OperandEnergy:
    first, second = OPERANDS[product]
    left, right = (numerics.operand(role, product).format for role in (first, second))
    unit = numerics.unit_of(product, first, second)
    a, b = tensors[first], tensors[second]
    if product == "input_grad":
        b = b.T
    elif product == "weight_grad":
        a, b = a.T, b.T
    pj = mac_energy_pj(left, right, unit, _part(a), _part(b))
    return OperandEnergy(
        step=step, layer=layer, product=product, left=str(left), right=str(right), mac=str(unit),
        pj=pj, random_pj=_random_pj(left, right, unit),
    )  # fmt: skip


def _part(matrix: Tensor) -> Tensor:
    """Some rows, spread evenly, and the first columns."""
    chosen = torch.linspace(0, len(matrix) - 1, min(ROWS, len(matrix))).round().long()
    return matrix[chosen, :TERMS].contiguous()


@cache
def _random_pj(left: Any, right: Any, unit: MacUnit) -> float:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, ROWS, TERMS, generator=generator)
    return mac_energy_pj(left, right, unit, a, b)
