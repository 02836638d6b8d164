"""The state of an emulated model: which numerics are in force, at which step, in which layer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from presilicon.designs import Numerics
from presilicon.emulation.products import EINSUM, Product, products
from presilicon.emulation.rounding import round_gradient, round_operand
from presilicon.formats import Key, parse, quantize
from presilicon.records import ROLES, Observer, Role

_FLOAT32 = parse("float32")


class Site:
    """One matrix product of one layer at one step: it rounds that product's tensors, forward and backward."""

    def __init__(self, emulation: "Emulation", layer: str, call: int, training: bool) -> None:
        self._emulation = emulation
        self._layer = layer
        self._call = call
        self._step = emulation.step
        self._training = training

    def rounds(self, role: Role) -> bool:
        """Whether tensors of this role need any work here."""
        return role in self._emulation.active_roles or bool(self._emulation.observers)

    def round(self, tensor: Tensor, role: Role) -> Tensor:
        """`tensor` in its role's format; observers see the result when the model is training."""
        emulation = self._emulation
        if role in emulation.active_roles:
            chosen = emulation.numerics.of(role)
            key = None
            if chosen.is_stochastic:
                key = Key(emulation.seed, self._step, f"{self._layer}/{role}/{self._call}")
            tensor = quantize(tensor.detach(), chosen.format, rounding=chosen.rounding_mode, key=key)
        if self._training:
            for observer in emulation.observers:
                observer(self._step, self._layer, role, tensor.detach())
        return tensor


class Emulation:
    """What the hooks of an emulated model share. It is copied and saved with the model."""

    def __init__(self, numerics: Numerics, seed: int = 0, observers: Iterable[Observer] = ()) -> None:
        self.numerics = numerics
        self.seed = seed
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.step = 0
        """Training forward passes begun so far, less one: the number of the step in progress."""
        self.active_roles = frozenset(role for role in ROLES if numerics.of(role).format != _FLOAT32)
        self._begun = 0
        self._layers: list[str] = []
        self._mode: _ProductMode | None = None
        self._calls: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_layers": [], "_mode": None, "_calls": {}}

    def enter(self, layer: str, training: bool) -> None:
        """A module's forward begins; the outermost one turns emulation on."""
        if not self._layers:
            if training:
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
        product = products().get(func)
        if product is not None:
            return self._product(func, product, list(args), dict(kwargs))
        if func is EINSUM:
            return self._einsum(list(args), dict(kwargs))
        return func(*args, **kwargs)

    def _product(self, func: Callable[..., Any], product: Product, args: list[Any], kwargs: dict[str, Any]) -> Any:
        site = self._emulation.site(self._training)
        for position, name in zip(product.operands, product.operand_names, strict=True):
            _replace(args, kwargs, position, name, lambda tensor: round_operand(tensor, site))
        if product.bias is not None and product.bias_name is not None:
            # A bias is added in the accumulator, so only its gradient is rounded.
            _replace(args, kwargs, product.bias, product.bias_name, lambda tensor: _round_bias(tensor, site))
        return round_gradient(func(*args, **kwargs), site, "error")

    def _einsum(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        site = self._emulation.site(self._training)
        rounded = [_map_tensors(argument, lambda tensor: round_operand(tensor, site)) for argument in args]
        return round_gradient(EINSUM(*rounded, **kwargs), site, "error")


def _round_bias(tensor: Tensor, site: Site) -> Tensor:
    return round_gradient(tensor, site, "gradient") if isinstance(tensor, torch.nn.Parameter) else tensor


def _replace(
    args: list[Any], kwargs: dict[str, Any], position: int, name: str, change: Callable[[Tensor], Tensor]
) -> None:
    if position < len(args):
        args[position] = _map_tensors(args[position], change)
    elif name in kwargs:
        kwargs[name] = _map_tensors(kwargs[name], change)


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(_map_tensors(item, change) for item in value)
    return value
