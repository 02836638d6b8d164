"""Emulation coverage of a model: every arithmetic op of one training step, and the formats it is emulated in."""

import copy
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Optimizer
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation.attach import emulate_, emulation_of, named_parameters, owner_of, restore_
from presilicon.emulation.emulation import Emulation, UncoveredWarning
from presilicon.emulation.exact import EXACT
from presilicon.emulation.losses import loss_of_training
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.ops import Operator, describe_operator, ops_of_call
from presilicon.records import CoverageStatus, CoveredOp, EmulationCoverage, Role, Stage
from presilicon.workloads import (
    Layers,
    Workload,
    mean_of_outputs,
    next_sequence_number,
    sequence_number_of,
    sgd,
)


def coverage(
    model: nn.Module,
    numerics: Numerics,
    batch: Any,
    *,
    targets: Any = None,
    loss: Callable[..., Tensor] | None = None,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
    operators: Iterable[Operator] | None = None,
    strict: bool = False,
) -> EmulationCoverage:
    """Every arithmetic op of one training step of `model` under `numerics`, forward, backward and update.

    A copy of the model runs two steps, with an emulated optimizer and, if results are rounded, an emulated loss; the
    second step is listed, because the first also creates the optimizer's state. `model` itself is not changed, emulated
    or not. The list is complete: ops that emulation does not reach are listed as uncovered.

    Args:
        model: any module on the CPU or a GPU, in training mode.
        numerics: formats and MAC units, usually `design.numerics`.
        batch: the model's arguments: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
        targets: if given, passed to the loss after the model's output.
        loss: computes a scalar from the output; by default the mean of each floating-point output, summed.
        optimizer: creates an optimizer for the parameters; by default SGD with momentum.
        operators: replace functions, in addition to those of `numerics`; by default those that an emulated `model` has.
        strict: raise an error if an op is uncovered.

    Raises:
        ConfigError: `strict` is set and an op is uncovered (the message names op and layer), or there are no weights.

    >>> from presilicon.designs import load_recipe
    >>> listing = coverage(nn.Linear(3, 2), load_recipe("bf16").numerics, torch.randn(5, 3))
    >>> [(op.operator, op.formats) for op in listing.ops if op.stage == "forward" and op.status == "emulated"]
    [('aten.addmm', 'activation bfloat16, weight bfloat16')]
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"{type(model).__name__} has no trainable parameter, so there is no training step to list")
    if operators is None:
        own = emulation_of(model)
        operators = () if own is None else own.given_operators
    step = _Step(model, numerics, batch, targets, loss, optimizer or sgd, operators)
    with torch.random.fork_rng(), warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore", UncoveredWarning)
        step.run()
        listing = _Listing(step)
        with listing:
            step.run(listing)
    result = EmulationCoverage(name=type(model).__name__, ops=listing.ops())
    if strict and result.uncovered:
        worst = max(result.uncovered, key=lambda op: op.flops)
        more = f", and {len(result.uncovered) - 1} more" if len(result.uncovered) > 1 else ""
        raise ConfigError(
            f'layer "{worst.layer}": {worst.operator} ({worst.stage}) is not emulated and would stay in float32{more}; '
            "print(presilicon.coverage(...)) lists all"
        )
    return result


def coverage_workload(
    workload: Workload, numerics: Numerics, *, operators: Iterable[Operator] = (), strict: bool = False
) -> EmulationCoverage:
    """The coverage of a workload's step, on the first examples of its training split; see `coverage`."""
    load_data, _ = workload.require_data()
    inputs, targets = (part[: workload.batch_size] for part in load_data().train)
    with torch.random.fork_rng(devices=[]):
        model = workload.model()
    result = coverage(
        model, numerics, inputs, targets=targets, loss=workload.loss, optimizer=workload.optimizer,
        operators=operators, strict=strict,
    )  # fmt: skip
    return replace(result, name=workload.name)


class _Step:
    """A training step of a copy of the model."""

    def __init__(
        self,
        model: nn.Module,
        numerics: Numerics,
        batch: Any,
        targets: Any,
        loss: Callable[..., Tensor] | None,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        operators: Iterable[Operator],
    ) -> None:
        self.model = restore_(copy.deepcopy(model)).train()
        emulate_(self.model, numerics, operators=operators)
        emulation = emulation_of(self.model)
        assert emulation is not None
        emulation.count.expects_scale = False  # a scale has no op of its own
        self.emulation: Emulation = emulation
        self.optimizer = optimizer(self.model.parameters())
        emulate_optimizer_(self.optimizer, numerics, model=self.model)
        self._args, self._kwargs = ((), batch) if isinstance(batch, dict) else (_as_tuple(batch), {})
        self._targets = targets
        plain: Callable[..., Tensor] = loss or mean_of_outputs
        self._loss: Callable[..., Tensor] = loss_of_training(plain, self.model)

    def run(self, listing: "_Listing | None" = None) -> None:
        """Run one step, keeping the listing's stage up to date."""
        self.optimizer.zero_grad()
        self.emulation.watcher = listing
        output = self.model(*self._args, **self._kwargs)
        loss = self._loss(output) if self._targets is None else self._loss(output, self._targets)
        if listing is not None:
            listing.stage = "backward"
        loss.backward()
        if listing is not None:
            listing.stage = "update"
            listing.learn_owners()
        self.optimizer.step()
        self.emulation.watcher = None


def _as_tuple(batch: Any) -> tuple[Any, ...]:
    return batch if isinstance(batch, tuple) else (batch,)


class _Region(NamedTuple):
    layer: str
    forward: str
    backward: str


class _Treatment(NamedTuple):
    """The layer in which an op ran, and how emulation treated it."""

    layer: str
    formats: str
    status: CoverageStatus


_FLOAT32 = "float32"
_BRANCHES = "float32 (sum where branches meet)"


class _Listing(TorchDispatchMode):
    """Lists every arithmetic op that reaches ATen; emulation marks the regions that it computes."""

    def __init__(self, step: _Step) -> None:
        super().__init__()
        self.stage: Stage = "forward"
        self._is_paused = False
        self._step = step
        self._layers = Layers(step.model)
        self._regions: list[_Region] = []
        self._starts: list[int] = []
        self._ranges: list[tuple[int, _Region]] = []
        self._owners: dict[int, str] = {}
        self._counts: dict[tuple[str, Stage, str, str, CoverageStatus], list[int]] = {}

    def ops(self) -> tuple[CoveredOp, ...]:
        """The list so far."""
        return tuple(
            CoveredOp(
                layer=layer, stage=stage, operator=operator, formats=formats, status=status, calls=calls, flops=flops
            )
            for (layer, stage, operator, formats, status), (calls, flops) in self._counts.items()
        )

    @contextmanager
    def region(self, layer: str, operator: str, forward: str, backward: str) -> Iterator[None]:
        """A context whose ops, and the backward pass of the autograd nodes created in it, are emulated."""
        start = next_sequence_number() or 0
        region = _Region(layer, forward, backward)
        self._regions.append(region)
        try:
            yield
        finally:
            self._regions.pop()
            stop = next_sequence_number() or 0
            if stop > start:
                self._starts.append(start)
                self._ranges.append((stop, region))

    def note_product(self, flops: int) -> None:
        """List a product of a MAC unit."""
        self._count(self._treatment(multiplies=True), "presilicon.matmul", flops)

    def note_step(self, layer: str, operator: str, formats: str, flops: int) -> None:
        """List a step of a vector op that is computed in its format."""
        self._count(_Treatment(layer, formats, "emulated" if _rounds(formats) else "float32"), operator, flops)

    @contextmanager
    def unlisted(self) -> Iterator[None]:
        """A context whose ops are no part of the model."""
        before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    def learn_owners(self) -> None:
        """Find the layer of each tensor in the update."""
        for name, parameter in named_parameters(self._step.model):
            owned = [parameter, parameter.grad, *self._step.optimizer.state.get(parameter, {}).values()]
            for tensor in owned:
                if isinstance(tensor, Tensor) and tensor.dim():
                    self._owners[tensor.data_ptr()] = owner_of(name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, and list it if it is arithmetic."""
        out = func(*args, **(kwargs or {}))
        if self._is_paused:
            return out
        operator = describe_operator(func)
        results = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor)]
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        results = results or [inputs[0]] if inputs else results
        is_complex = any(result.is_complex() for result in results)
        if not (operator.computes or self._adds(func, args)) or not (
            is_complex or any(result.is_floating_point() for result in results)
        ):
            return out
        parts = ops_of_call(func, args, out, inputs, results)
        products = [part.product for part in parts if part.product]
        if self.stage == "update":  # Adafactor's outer product adds nothing up
            products = [product for product in products if product.gemm is None or product.gemm.k > 1]
        multiplies = operator.hides_products or bool(products) or _is_weighted_bag(func, args)
        treatment = self._in_update(inputs, multiplies) if self.stage == "update" else self._treatment(multiplies, func)
        if is_complex and treatment.status == "emulated":  # formats are of real numbers
            treatment = _Treatment(treatment.layer, _FLOAT32, "uncovered")
        self._count(treatment, str(func).rpartition(".")[0], sum(part.flops for part in parts))
        return out

    def _adds(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether a function that moves numbers adds them up in the model; in a backward pass, branches meet."""
        return self.stage == "forward" and "index_put" in str(func) and len(args) > 3 and bool(args[3])

    def _count(self, treatment: _Treatment, operator: str, flops: int) -> None:
        key = (treatment.layer, self.stage, operator, treatment.formats, treatment.status)
        entry = self._counts.setdefault(key, [0, 0])
        entry[0] += 1
        entry[1] += flops

    def _treatment(self, multiplies: bool, func: Any = None) -> _Treatment:
        if self._regions:  # forward, or a recomputation of it in a backward pass
            region = self._regions[-1]
            return _Treatment(region.layer, region.forward, "emulated" if _rounds(region.forward) else "float32")
        if self.stage == "forward" or self._layers.inside:
            return self._outside(self._layers.current, multiplies)
        node = torch._C._current_autograd_node()
        number = None if node is None else sequence_number_of(node)
        if number is None or number > 1 << 62:  # the autograd engine itself, or the end at a parameter
            return _Treatment(self._layers.of_node(node) if node is not None else "", _BRANCHES, "float32")
        position = bisect_right(self._starts, number) - 1
        if position >= 0 and number < self._ranges[position][0]:
            region = self._ranges[position][1]
            return _Treatment(region.layer, region.backward, "emulated" if _rounds(region.backward) else "float32")
        if func is torch.ops.aten.add.Tensor:  # the nodes of views add nothing; the engine does
            return _Treatment(self._layers.of_node(node), _BRANCHES, "float32")
        return self._outside(self._layers.of_node(node), multiplies)

    def _outside(self, layer: str, multiplies: bool) -> _Treatment:
        """An op that is not emulated, because the numerics do not ask for it or emulation does not reach it."""
        emulation = self._step.emulation
        plan = emulation.plan(layer)
        is_plain = plan.is_idle or not (multiplies or plan.rounds_results)
        return _Treatment(layer, _FLOAT32, "float32" if is_plain else "uncovered")

    def _in_update(self, inputs: list[Tensor], multiplies: bool) -> _Treatment:
        layer = next((self._owners[t.data_ptr()] for t in inputs if t.dim() and t.data_ptr() in self._owners), None)
        if layer is None and any(tensor.dim() for tensor in inputs):
            layer = self._last
        self._last = layer or ""
        emulation = self._step.emulation
        roles: list[Role] = ["master", "state"]
        if multiplies:  # a product inside the optimizer, as in Muon, is a temporary result
            return self._outside(self._last, multiplies)
        text = emulation.plan(self._last).spell(roles)
        return _Treatment(self._last, text, "emulated" if _rounds(text) else "float32")

    _last = ""


def _is_weighted_bag(func: Any, args: Any) -> bool:
    """Whether an op adds up rows of a table, each times a weight of the sample's own."""
    return "embedding_bag" in str(func) and len(args) > 6 and isinstance(args[6], Tensor)


def _rounds(formats: str) -> bool:
    """Whether any role in a text has a format other than float32."""
    return formats != EXACT and any(not part.endswith(" float32") for part in formats.split(", "))
