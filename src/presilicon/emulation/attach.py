"""Turns emulation of a model on and off, in place."""

import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from presilicon.base import ConfigError, check_built
from presilicon.designs import Numerics
from presilicon.emulation.compilation import uncompiled
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.persistent import round_in_place, stream_of
from presilicon.emulation.state.entry import no_longer_save_with, save_with
from presilicon.emulation.transforms import has_gathered_parameters, is_distributed, refuse_distributed, refuse_tracing
from presilicon.ops import Operator
from presilicon.records import PHASES, Observer
from presilicon.workloads import ends_of, named_layers, plain_name

ModelT = TypeVar("ModelT", bound=nn.Module)


class _Guard:
    """Calls a module in place of `Module._call_impl`, and leaves its layer however the call ends.

    Torch's `always_call` hooks run neither after an interrupt nor in an export. A class rather than a closure, like the
    hooks, so that the model can be saved and copied.
    """

    def __init__(self, module: nn.Module, enter: "_Enter", compiled: Callable[..., Any] | None = None) -> None:
        """`compiled` is what `Module.compile` made of the call before."""
        self.module = module
        self.enter = enter
        self.compiled = compiled

    @uncompiled
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        emulation = self.enter.emulation
        refuse_tracing()
        depth = emulation.depth
        if not depth:
            emulation.inputs = args, kwargs
        try:
            if self.compiled is not None:
                return self.compiled(*args, **kwargs)
            return type(self.module)._call_impl(self.module, *args, **kwargs)
        except BaseException:
            emulation.unwind(depth)
            raise


class _Enter:
    """A forward pre-hook."""

    def __init__(self, emulation: Emulation, layer: str, *, is_lazy: bool = False) -> None:
        """`is_lazy`: the first pass makes the parameters of the module."""
        self.emulation = emulation
        self.layer = layer
        self.is_lazy = is_lazy

    @uncompiled
    def __call__(self, module: nn.Module, args: Any) -> None:
        refuse_distributed(self.layer, module)
        if self.is_lazy:
            self._round_made(module)
        if not self.emulation.is_inside:
            self.emulation.count.watch(module)
            if self.layer:
                self._warn_of_method()
            if self.emulation.own is None:
                self.emulation.own = "" if is_distributed() else stream_of(module.parameters())
            if not module.training:
                self.emulation.amax.check_weights(module.parameters())
        self.emulation.enter(self.layer, training=module.training and torch.is_grad_enabled())
        if not self.emulation.is_idle or self.emulation.asks_what_if:
            self.emulation.origins.note_members(module)

    def _warn_of_method(self) -> None:
        """Warn of a method that calls this layer and multiplies itself, outside of the forward pass of its module."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
            hooks = owner._forward_pre_hooks.values() if isinstance(owner, nn.Module) else ()
            for hook in hooks:
                if isinstance(hook, _Enter) and hook is not self and hook.emulation is self.emulation:
                    self.emulation.warn_of_method(hook.layer, frame.f_code)
            frame = frame.f_back

    def _round_made(self, module: nn.Module) -> None:
        """Round the parameters that the first pass has made, as `emulate_` rounds those that are there."""
        self.is_lazy = False
        emulation = self.emulation
        master = emulation.numerics.resolve("master", self.layer, emulation.count.upcoming[0], emulation.ends)
        for name, parameter in module.named_parameters(self.layer, recurse=False):
            round_in_place([(parameter, name)], master, "master", emulation.seed, 0)


class _Leave:
    def __init__(self, emulation: Emulation, layer: str) -> None:
        self.emulation = emulation
        self.layer = layer

    @uncompiled
    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.emulation.recorders and not module._modules:
            with torch._C.DisableTorchFunction():  # what recorders compute is no part of the model
                self.emulation.show_module(self.layer, module, args, output)
        if isinstance(output, Generator | AsyncGenerator):
            self.emulation.warn_of_generator(self.layer)
        self.emulation.leave(output)


def emulate_(
    model: ModelT,
    numerics: Numerics,
    *,
    seed: int | None = None,
    observers: Iterable[Observer] = (),
    operators: Iterable[Operator] = (),
) -> ModelT:
    """Make `model` compute its matrix products with `numerics`, in place; the same model is returned.

    Operands of linear layers, convolutions, matmul, einsum, attention and recurrent layers are rounded to the formats
    of their roles in the forward pass, the input gradient and the weight gradient, and their products are accumulated
    by the MAC unit of each. With `numerics.vector = "round-results"` the results of all other ops (norms, activations,
    softmax, pooling, sums of tensors, embeddings) are rounded too. The parameters themselves remain the master weights:
    the optimizer and the training loop do not change. `state_dict` does not either, unless the numerics depend on the
    training step: then it has an entry with their state. A step ends when an optimizer of the model has stepped; see
    `next_step`. A model whose roles and units are all float32
    computes the same bits as before (with `observers`, attention and recurrent layers are decomposed so that observers
    see inside, and may differ in the last bit).

    Every module is hooked, so calling a submodule directly is emulated too. Layers have the names that they have in the
    model itself, inside or outside of DDP, FSDP and torch.compile. The loss and the optimizer are not part of
    the model: see `emulated` and `emulate_optimizer_`. An `UncoveredWarning` names products that emulation does not
    reach; `coverage` lists every op beforehand. The loss scale of the numerics is applied by `LossScaler`; an
    `UnscaledWarning` at the first optimizer step tells if nothing does. `restore_` removes emulation.

    Args:
        model: a float32 module (or float64, if all MAC units add in float32).
        numerics: formats and MAC units, usually `design.numerics`.
        seed: seed of stochastic rounding. Models with one seed draw the same numbers; without a seed, models whose
            weights differ in the first pass draw different ones (in one process).
        observers: called with every rounded tensor.
        operators: replace functions such as tanh wherever the model computes them, in addition to those of `numerics`.

    Raises:
        ConfigError: the numerics hold an impossible value, the model is already emulated, its parameters are neither
            float32 nor float64, or a pattern of the overrides matches none of its layers.
    """
    arguments: tuple[Any, Any] = (model, numerics)
    if not isinstance(arguments[0], nn.Module) or not isinstance(arguments[1], Numerics):
        types = " and ".join(type(argument).__name__ for argument in arguments)
        raise ConfigError(f"emulate_ takes a torch.nn.Module and a design's numerics (design.numerics), not {types}")
    check_built(numerics, "numerics")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ConfigError(
                f'layer "{name}" is compiled by TorchScript, which hides its products; use the original module'
            )
    by_layer = [numerics, *(numerics.in_force(name, 2**63) for name, _ in named_layers(model))]
    exact = all(layer.mac_of(phase).is_float32 for layer in by_layer for phase in PHASES) and all(
        layer.sums == "float32" for layer in by_layer
    )
    for name, parameter in model.named_parameters():
        if parameter.dtype == torch.float64 and not exact:
            raise ConfigError(f"{name} is torch.float64, but MAC units multiply float32; try model.float()")
        if parameter.is_floating_point() and parameter.dtype not in (torch.float32, torch.float64):
            raise ConfigError(f"{name} is {parameter.dtype}: emulation rounds float32 models; try model.float()")
    if not has_gathered_parameters(model):
        for name, module in named_layers(model):
            refuse_distributed(name, module)
    if emulation_of(model) is not None:
        raise ConfigError(
            "this model is already emulated; call restore_(model) before emulating it with other numerics"
        )
    ends = ends_of(model)
    numerics.check_layers((name for name, _ in named_layers(model)), ends)
    is_own = seed is None and numerics.is_stochastic()
    seed = seed or 0
    emulation = Emulation(numerics, seed, observers, ends, operators, None if is_own else "")
    emulation.operators.check_layers(name for name, _ in named_layers(model))
    emulation.count.watch(model)
    emulation.count.expects_scale = numerics.loss_scale.kind != "none"
    for name, module in named_layers(model):
        enter = _Enter(emulation, name, is_lazy=any(map(is_lazy, module.parameters(recurse=False))))
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(_Leave(emulation, name))
        module._call_impl = _Guard(module, enter)  # type: ignore[method-assign]
        # Torch.compile runs code that it has compiled for a module of this class, whatever hooks this one has: its
        # guards only see that one has a `forward` of its own.
        vars(module).setdefault("forward", module.forward)
        if module._compiled_call_impl is not None:
            module._compiled_call_impl = _Guard(module, enter, module._compiled_call_impl)
    # Inside the wrappers of torch, because `state_dict` of the model itself is what loops save.
    save_with([module for name, module in named_layers(model) if not name][-1], emulation)
    round_master_(model, numerics, seed=seed)
    return model


def restore_(model: ModelT) -> ModelT:
    """Remove emulation from a model, in place; master weights keep their values. A plain model is not changed."""
    emulation = emulation_of(model)
    for module in model.modules():
        no_longer_save_with(module, emulation)
        if isinstance(vars(module).get("_call_impl"), _Guard):
            del module._call_impl
            if getattr(vars(module).get("forward"), "__func__", None) is type(module).forward:
                del module.forward
        if isinstance(module._compiled_call_impl, _Guard):
            module._compiled_call_impl = module._compiled_call_impl.compiled
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(hook, _Enter | _Leave)]:
                del hooks[key]
    return model


@contextmanager
def lent_to(model: nn.Module, other: Emulation) -> Iterator[None]:
    """A context in which an emulated model computes with another emulation than its own."""
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        if isinstance(hook, _Enter | _Leave)
    ]
    own = [hook.emulation for hook in hooks]
    try:
        for hook in hooks:
            hook.emulation = other
        yield
    finally:
        for hook, emulation in zip(hooks, own, strict=True):
            hook.emulation = emulation


def emulation_of(model: nn.Module) -> Emulation | None:
    """The emulation of a model, or None if it is not emulated."""
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, _Enter):
                return hook.emulation
    return None


def emulated_part(model: nn.Module) -> nn.Module | None:
    """The module that `emulate_` was called with: the model itself, a part of it, or the model in a wrapper."""
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, _Enter) and not hook.layer:
                return module
    return None


def next_step(model: nn.Module, number: int | None = None) -> None:
    """End the training step of an emulated model, after an update that no torch optimizer made.

    Steps of torch optimizers that have a parameter of the model are noticed without this. With `number`, the next step
    has that number; 0 starts the count again, for example after loading a checkpoint to fine-tune it.

    Raises:
        ConfigError: the model is not emulated, or the number is negative.

    >>> from presilicon.designs import load_recipe
    >>> model = emulate_(nn.Linear(2, 2), load_recipe("bf16").numerics)
    >>> for _ in range(3):
    ...     out = model(torch.ones(1, 2))
    ...     next_step(model)
    >>> emulation_of(model).step
    2
    """
    emulation = emulation_of(model)
    if emulation is None:
        raise ConfigError("next_step takes an emulated model; call emulate_ first")
    if number is None:
        emulation.count.note_update()
    elif not isinstance(number, int) or number < 0:
        raise ConfigError(f"the number of a step must be a whole number of at least 0, not {number!r}")
    else:
        emulation.count.restart(number)


def round_master_(model: nn.Module, numerics: Numerics, *, seed: int = 0, step: int = 0) -> None:
    """Round every parameter to the format of the master weights, in place."""
    ends = ends_of(model)
    for name, parameter in named_parameters(model):
        master = numerics.resolve("master", owner_of(name), step, ends)
        if not is_lazy(parameter):
            round_in_place([(parameter, name)], master, "master", seed, step)


_SCALARS = frozenset(["step", "eta", "mu", "mu_product"])
"""State of torch's optimizers that is a counter or computed from one."""


def state_tensors(state: Mapping[str, Any], parameter: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The tensors in a parameter's optimizer state that have the state's format, by name: all but scalars.

    They need not have the parameter's shape: Adafactor keeps rows and columns, LBFGS lists of directions.
    """
    for key, value in state.items():
        parts = (
            {f"{key}.{index}": part for index, part in enumerate(value)} if isinstance(value, list) else {key: value}
        )
        for name, part in parts.items():
            if not isinstance(part, Tensor) or not part.is_floating_point() or part.numel() == 0:
                continue
            if key not in _SCALARS and (part.dim() or part.shape == parameter.shape):
                yield name, part


def named_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """`model.named_parameters()`, without the names of torch's wrappers (DDP, FSDP, torch.compile)."""
    for name, parameter in model.named_parameters():
        yield plain_name(model, name), parameter


def owner_of(parameter: str) -> str:
    """The layer that a parameter of that name belongs to."""
    return parameter.rpartition(".")[0]
