"""Training steps of a model in which one layer has another format."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError
from presilicon.designs import Numerics, Override, RoleFormat, unmatched_pattern
from presilicon.emulation.attach import lent_to
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.layer_plan import LayerPlan
from presilicon.emulation.monitoring.recorder import Recorder
from presilicon.emulation.scaling import AdaptiveScale
from presilicon.formats import Format, parse, short_name
from presilicon.records import Ends, FormatTrial, MonitoredRole, Role
from presilicon.workloads import named_layers


class TrialState:
    """Buffers and training modes of a model, and the random states of torch, NumPy and Python."""

    def __init__(self, model: nn.Module) -> None:
        self._modes = [(module, module.training) for module in model.modules()]
        self._buffers: list[tuple[nn.Module, str, Tensor | None, Tensor | None]] = [
            (module, name, buffer, None if buffer is None else buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()
        ]
        tensors = (*model.parameters(), *model.buffers())
        devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
        self._torch = torch.get_rng_state()
        self._cuda = {device: torch.cuda.get_rng_state(device) for device in devices}
        self._python, self._numpy = random.getstate(), np.random.get_state()

    def restore(self) -> None:
        """Put everything back."""
        torch.set_rng_state(self._torch)
        for device, state in self._cuda.items():
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        for module, mode in self._modes:
            module.training = mode
        with torch.no_grad():
            for module, name, buffer, values in self._buffers:
                module._buffers[name] = buffer
                if buffer is not None and values is not None:
                    buffer.copy_(values)


@contextmanager
def preserved(model: nn.Module) -> Iterator[TrialState]:
    """A context after which buffers, training modes and random states are what they were before."""
    snapshot = TrialState(model)
    try:
        yield snapshot
    finally:
        snapshot.restore()


class TrialStep:
    """The loss of a model on a batch."""

    def __init__(self, model: nn.Module, batch: Any, loss: Callable[..., Tensor] | None) -> None:
        self._model, self._batch, self._loss = model, batch, loss
        is_pair = isinstance(batch, tuple | list) and len(batch) == 2
        if not isinstance(batch, Mapping) and not is_pair:
            raise ConfigError(
                f"batch must be (inputs, target), or a dict of the model's arguments, not {_describe(batch)}"
            )
        if is_pair and loss is None:
            raise ConfigError("a batch of inputs and target needs a loss, as in loss=nn.functional.cross_entropy")

    def run(self) -> Tensor:
        """The loss as a scalar."""
        if isinstance(self._batch, Mapping):
            output = self._model(**self._batch)
            loss = _loss_of(output) if self._loss is None else self._loss(output)
        else:
            inputs, target = self._batch
            assert self._loss is not None
            loss = self._loss(_call(self._model, inputs), target)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise ConfigError(f"the loss must be one number with a gradient, not {_describe(loss)}")
        return loss


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _loss_of(output: Any) -> Any:
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        raise ConfigError(
            f"the model's output ({type(output).__name__}) has no loss: put labels into the batch, or pass loss="
        )
    return loss


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}" + ("" if value.requires_grad else " without a gradient")
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")


_TRIED: tuple[Role, ...] = ("weight", "activation", "error", "gradient")


class Subject(NamedTuple):
    """A layer, and roles of it, that are put in a format."""

    layer: str
    roles: tuple[Role, ...]
    role: Role | None
    """The only role, where roles are tried one by one."""


class _Roles(Recorder):
    """Lists the roles of each layer that multiplies."""

    sees_all = True

    def __init__(self) -> None:
        super().__init__()
        self.by_layer: dict[str, dict[MonitoredRole, None]] = {}

    def what_if_plan(self, layer: str, step: int) -> LayerPlan:
        """Float32, so that layers are seen whose numerics are."""
        return _EXACT

    def see_rounding(self, step: int, layer: str, role: Role, *rest: Any) -> None:
        """Note the role."""
        self.by_layer.setdefault(layer, {})[role] = None

    def see_module(self, *args: Any) -> None:
        """Modules are not listed."""


_EXACT = LayerPlan(Numerics())


class _TrialEmulation(Emulation):
    """The emulation of a trial: always that of a training step, and without effect on the model's own."""

    def __init__(self, own: Emulation) -> None:
        super().__init__(own.numerics, own.seed, ends=own.ends, own=own.own)
        self.operators, self.touches_vectors, self.is_idle = own.operators, own.touches_vectors, own.is_idle
        self._set_formats = dict(own._set_formats)
        self.amax = deepcopy(own.amax)
        self.begin_step(own.step)

    def enter(self, layer: str, training: bool, *, counts: bool = True) -> None:
        super().enter(layer, True, counts=counts)


class _Collect:
    """A forward hook that keeps the outputs of a module, call by call."""

    def __init__(self, outputs: list[list[Tensor]]) -> None:
        self._outputs = outputs

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self._outputs.append([leaf.detach().clone() for leaf in _floating(output)])


class _Noise:
    """A forward hook that compares the outputs of a module with earlier ones."""

    def __init__(self, outputs: list[list[Tensor]]) -> None:
        self._outputs, self._calls = outputs, 0
        self._signal = self._noise = 0.0

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        for before, after in zip(self._outputs[self._calls], _floating(output), strict=True):
            self._signal += float(before.double().square().sum())
            self._noise += float((after.detach().double() - before).square().sum())
        self._calls += 1

    def sqnr_db(self) -> float | None:
        """Signal over noise; None if there is no noise, or no finite one."""
        is_defined = self._signal > 0 and 0 < self._noise < math.inf
        return 10 * math.log10(self._signal / self._noise) if is_defined else None


def _floating(output: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


class Trials:
    """Training steps of a model in which one layer has another format."""

    def __init__(
        self, model: nn.Module, own: Emulation, step: TrialStep, start: TrialState, *, lift: bool = False
    ) -> None:
        """With `lift` trials are compared with the model in float32, else with the model as it is."""
        self._model, self._own, self._step, self._start = model, own, step, start
        self._scale = AdaptiveScale(own.numerics.loss_scale)
        own_scale = own.part("loss_scale")
        if isinstance(own_scale, AdaptiveScale):
            self._scale.load_state_dict(own_scale.state_dict())
        self._modules = dict(named_layers(model))
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._seen = _Roles()
        self._outputs: dict[str, list[list[Tensor]]] = {}
        reference = self._in_float32() if lift else _TrialEmulation(own)
        reference.recorders = (self._seen,)
        hooks = [
            module.register_forward_hook(_Collect(self._outputs.setdefault(name, [])))
            for name, module in self._modules.items()
        ]
        try:
            loss, self._gradients = self._measure(reference)
        finally:
            for hook in hooks:
                hook.remove()
        self.loss = loss
        self._norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in self._gradients))
        if not math.isfinite(self.loss) or not math.isfinite(self._norm):
            raise ConfigError(f"the loss ({self.loss:g}) or its gradients are not finite before any format is changed")

    def _in_float32(self) -> Emulation:
        """The model with all of its operands and gradients in float32."""
        trial = _TrialEmulation(self._own)
        for layer in self._modules:
            for role in _TRIED:
                trial.set_format(layer, role, RoleFormat(parse("float32")))
        return trial

    def as_it_is(self) -> FormatTrial:
        """A step in which no layer has another format."""
        loss, gradients = self._measure(_TrialEmulation(self._own))
        return self._trial("", None, None, loss, gradients, None)

    def subjects(self, layers: frozenset[str], roles: Sequence[Role], by_role: bool) -> list[Subject]:
        """The layers that multiply, with their roles, in the order in which they run."""
        subjects: list[Subject] = []
        for layer, seen in self._seen.by_layer.items():
            own = tuple(role for role in roles if role in seen)
            if layer in layers and own:
                subjects += [Subject(layer, (role,), role) for role in own] if by_role else [Subject(layer, own, None)]
        if not subjects:
            raise ConfigError(f"no layer of those chosen multiplies matrices with the roles {', '.join(roles)}")
        return subjects

    def run(self, subject: Subject, role_format: RoleFormat) -> FormatTrial:
        """A step with the subject in a format."""
        trial = _TrialEmulation(self._own)
        for role in subject.roles:
            trial.set_format(subject.layer, role, role_format)
        noise = _Noise(self._outputs[subject.layer])
        hook = self._modules[subject.layer].register_forward_hook(noise)
        try:
            loss, gradients = self._measure(trial)
        finally:
            hook.remove()
        return self._trial(subject.layer, subject.role, role_format.format, loss, gradients, noise.sqnr_db())

    def _trial(
        self,
        layer: str,
        role: Role | None,
        fmt: Format | None,
        loss: float,
        gradients: list[Tensor],
        sqnr_db: float | None,
    ) -> FormatTrial:
        cosine, error = self._compare(gradients)
        is_finite = math.isfinite(loss)
        return FormatTrial(
            layer=layer,
            role=role,
            format="" if fmt is None else short_name(fmt),
            bits=0.0 if fmt is None else fmt.bits_per_element,
            loss=loss if is_finite else None,
            loss_change=(loss - self.loss) / (abs(self.loss) or 1.0) if is_finite else None,
            sqnr_db=sqnr_db,
            gradient_cosine=cosine,
            gradient_error=error,
        )

    def _measure(self, trial: Emulation) -> tuple[float, list[Tensor]]:
        """Loss and gradients, with the random numbers and buffers that every trial begins with.

        The loss scale begins as that of the model, and falls as in training until the gradients are finite.
        """
        scale = deepcopy(self._scale)
        self._start.restore()
        with lent_to(self._model, trial):
            loss = self._step.run()
            gradients = self._gradients_of(loss, scale)
            while torch.isfinite(loss) and scale.factor > 1 and not all(g.isfinite().all() for g in gradients):
                before = scale.factor
                if scale.update(False) == before:
                    break
                gradients = self._gradients_of(loss, scale)
        return float(loss.detach()), gradients

    def _gradients_of(self, loss: Tensor, scale: AdaptiveScale) -> list[Tensor]:
        """The gradients of a loss, computed from the scaled loss and divided by the scale."""
        scaled = scale.scaled(loss)
        gradients = torch.autograd.grad(scaled, self._parameters, allow_unused=True, retain_graph=scale.is_active)
        return [
            torch.zeros_like(parameter) if gradient is None else gradient.detach().to_dense() / scale.factor
            for parameter, gradient in zip(self._parameters, gradients, strict=True)
        ]

    def _compare(self, gradients: list[Tensor]) -> tuple[float | None, float | None]:
        """Cosine and relative error of the gradients; None if they are not finite."""
        product = squares = errors = 0.0
        for exact, gradient in zip(self._gradients, gradients, strict=True):
            a, b = exact.double(), gradient.double()
            product += float((a * b).sum())
            squares += float(b.square().sum())
            errors += float((a - b).square().sum())
        if not math.isfinite(squares) or not self._norm:
            return None, None
        return product / (self._norm * math.sqrt(squares)) if squares else 0.0, math.sqrt(errors) / self._norm


def select_layers(patterns: str | Iterable[str], model: nn.Module, ends: Ends) -> frozenset[str]:
    """The layers of a model that match a pattern, as in the overrides of numerics; "*" matches an emulated loss too.

    Raises:
        ConfigError: a pattern matches none; the message lists near names.
    """
    names = [name for name, _ in named_layers(model)]
    selection: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = {name for name in [*names, "loss"] if Override(layers=pattern).matches(name, ends)}
        if not matches:
            raise unmatched_pattern("layers", pattern, names)
        selection |= matches
    return frozenset(selection)
