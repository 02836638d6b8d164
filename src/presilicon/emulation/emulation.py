"""The state of an emulated model: which numerics are in force, at which step, in which layer."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from presilicon.designs import Numerics
from presilicon.emulation.calls import Call, pair_call, readers, uncovered
from presilicon.emulation.einsum import contract
from presilicon.emulation.function import log_emulated, multiply_emulated
from presilicon.emulation.products import Multiply
from presilicon.formats import Format, Key, UserFormat, matmul, parse, quantize
from presilicon.records import PHASES, ROLES, Observer, Phase, Role

_FLOAT32 = parse("float32")


class UncoveredWarning(UserWarning):
    """A model computes matrix products in a way that emulation does not reach."""


class Site:
    """One matrix product of one layer at one step: it rounds that product's tensors, forward and backward."""

    def __init__(self, emulation: "Emulation", layer: str, call: int, training: bool) -> None:
        self._emulation = emulation
        self._layer = layer
        self._call = call
        self._step = emulation.step
        self._training = training

    def round(self, tensor: Tensor, role: Role, axis: int = -1, *, groups: int = 1, part: str = "") -> Tensor:
        """`tensor` in its role's format, blocks lying along `axis`; observers see the result in training.

        Gradients of weights are not reduced again: their blocks lie as the format itself says.
        """
        rounded = self._quantize(tensor, role, axis, groups, part)
        if self._training:
            for observer in self._emulation.observers:
                observer(self._step, self._layer, role, rounded.detach())
        return rounded

    def regroups(self, role: Role) -> bool:
        """Whether a tensor of this role is rounded anew for each product that uses it, because its blocks turn."""
        return role in self._emulation.regrouped_roles

    def regroup(self, tensor: Tensor, role: Role, axis: int, *, groups: int = 1, product: Phase) -> Tensor:
        """A kept tensor as the backward product needs it: blocked along that product's axis, or as it was rounded."""
        return self._quantize(tensor, role, axis, groups, product) if self.regroups(role) else tensor

    def multiply(self, product: Phase) -> Multiply | None:
        """How this product's MAC unit multiplies; None for the library's own float32."""
        mac = self._emulation.numerics.mac_of(product)
        if mac.is_float32:
            return None
        key = self._key(f"mac/{product}") if mac.is_stochastic else None
        return lambda a, b: matmul(a, b, mac, key=key)

    def _quantize(self, tensor: Tensor, role: Role, axis: int, groups: int, part: str) -> Tensor:
        emulation = self._emulation
        if role not in emulation.active_roles:
            return tensor
        chosen = emulation.numerics.of(role)
        key = self._key(f"{role}/{part}") if chosen.is_stochastic else None
        if not chosen.format.is_blocked:
            return quantize(tensor.detach(), chosen.format, rounding=chosen.rounding_mode, key=key)
        # Blocks must not reach from one group of channels into the next.
        split = tensor.unflatten(axis, (groups, -1)) if groups > 1 else tensor
        if role == "gradient":
            lying = fitting(chosen.format, split)
        else:
            lying = chosen.format.along(axis + 1 if groups > 1 else axis)
        return quantize(split.detach(), lying, rounding=chosen.rounding_mode, key=key).view(tensor.shape)

    def _key(self, name: str) -> Key:
        purpose = "" if self._training else "evaluation/"
        return Key(self._emulation.seed, self._step, f"{purpose}{self._layer}/{self._call}/{name}")


def fitting(fmt: Format, tensor: Tensor) -> Format:
    """The format for a tensor that no product reduces: blocks along its own axis, or the last if that is absent.

    A bias has one axis only, whatever the weights beside it have.
    """
    axis = getattr(fmt, "axis", -1) if fmt.turns else -1
    return fmt if -tensor.dim() <= axis < tensor.dim() else fmt.along(-1)


class Emulation:
    """What the hooks of an emulated model share. It is copied and saved with the model."""

    def __init__(self, numerics: Numerics, seed: int = 0, observers: Iterable[Observer] = ()) -> None:
        self.numerics = numerics
        self.seed = seed
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.step = 0
        """The number of the training step in progress: forward passes in training mode, counted from 0."""
        self.active_roles = frozenset(role for role in ROLES if numerics.of(role).format != _FLOAT32)
        self.regrouped_roles = frozenset(
            role for role in self.active_roles if numerics.grouping == "per-product" and numerics.of(role).format.turns
        )
        rounds = self.active_roles & {"weight", "activation", "error", "gradient"}
        exact = all(numerics.mac_of(phase).is_float32 for phase in PHASES)
        self.is_idle = exact and not rounds and not self.observers
        """Whether nothing is rounded or watched, so that products can be left to torch."""
        self._begun = 0
        self._layers: list[str] = []
        self._mode: _ProductMode | None = None
        self._calls: dict[str, int] = {}
        self._warned: set[tuple[str, str]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_layers": [], "_mode": None, "_calls": {}}

    def enter(self, layer: str, training: bool) -> None:
        """A module's forward begins; the outermost one turns emulation on."""
        if not self._layers:
            # Inside a backward pass this is a recomputation (activation checkpointing) of the step in progress.
            if training and torch._C._current_graph_task_id() == -1:
                self.step = self._begun
                self._begun += 1
            self._calls = {}
            self._mode = _ProductMode(self, training)
            self._mode.__enter__()
        self._layers.append(layer)

    def leave(self) -> None:
        """A module's forward ended, well or not."""
        self._layers.pop()
        if not self._layers and self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None

    def warn(self, func: Callable[..., Any]) -> None:
        """Say once for each layer that a function's matrix products stay in float32: no silent gaps."""
        place = (self._layers[-1], func.__name__)
        if place not in self._warned:
            self._warned.add(place)
            message = f'layer "{place[0]}": the matrix products of {place[1]} are not emulated and stay in float32'
            warnings.warn(message, UncoveredWarning, stacklevel=4)

    def site(self, training: bool) -> Site:
        """The place of the next matrix product of the layer that is running."""
        layer = self._layers[-1]
        call = self._calls.get(layer, 0)
        self._calls[layer] = call + 1
        return Site(self, layer, call, training)


class _ProductMode(TorchFunctionMode):
    """Catches every matrix product that runs inside an emulated module."""

    def __init__(self, emulation: Emulation, training: bool) -> None:
        super().__init__()
        self._emulation = emulation
        self._training = training

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._emulation.is_idle:
            return func(*args, **kwargs)
        if func is torch.einsum and isinstance(args[0], str):
            operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
            return contract(args[0], operands, lambda pair: self._multiply(pair_call(pair)))
        activation = self._emulation.numerics.activation.format
        if func in (torch.log, torch.Tensor.log) and isinstance(activation, UserFormat) and activation.log is not None:
            return log_emulated(args[0] if args else kwargs["input"], activation)
        reader = readers().get(func)
        if reader is None:
            if func in uncovered():
                self._emulation.warn(func)
            return func(*args, **kwargs)
        call = reader(*args, **kwargs)
        return self._multiply(call) if call.a.is_floating_point() else func(*args, **kwargs)

    def _multiply(self, call: Call) -> Tensor:
        return multiply_emulated(call, self._emulation.site(self._training))
