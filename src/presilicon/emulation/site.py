"""One op of one layer at one step: the place where tensors are rounded."""

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation.ops.products import Multiply
from presilicon.formats import Format, Key, matmul, parse, quantize, rounder
from presilicon.records import PHASES, ROLES, Phase, Role

if TYPE_CHECKING:
    from presilicon.emulation.emulation import Emulation

_FLOAT32 = parse("float32")


_ways: dict[RoleFormat, int] = {}


def _way(chosen: RoleFormat) -> int:
    return _ways.setdefault(chosen, len(_ways))


class Plan:
    """What a layer's numerics ask of emulation, worked out once."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self.active_roles = frozenset(role for role in ROLES if numerics.of(role).format != _FLOAT32)
        self.regrouped_roles = frozenset(
            role
            for role in self.active_roles
            if numerics.grouping == "per-product" and numerics.of(role).format.is_oriented
        )
        rounds = self.active_roles & {"weight", "activation", "error", "gradient"}
        self.is_exact = all(numerics.mac_of(phase).is_float32 for phase in PHASES)
        """Whether products are added up in float32."""
        self.is_idle = self.is_exact and not rounds
        """Whether nothing is rounded, so that the layer can be left to torch."""
        self.rounds_results = numerics.vector == "round-results"
        self.rounders: dict[Role, Callable[[Tensor], Tensor]] = {
            role: rounder(numerics.of(role).format, numerics.of(role).rounding_mode)
            for role in self.active_roles
            if not numerics.of(role).is_stochastic and not numerics.of(role).format.is_blocked
        }
        chosen = numerics.gradient
        self.round_gradient = (
            rounder(chosen.format, chosen.rounding_mode, over=True) if "gradient" in self.rounders else None
        )
        self.ways = {role: _way(numerics.of(role)) for role in self.active_roles}
        """A number for each way of rounding: sooner compared than formats are."""

    def rounds_vector(self, role: Role) -> bool:
        """Whether vector ops round tensors of `role`; those of a block format are left for the products to group."""
        return self.rounds_results and role in self.active_roles and not self.numerics.of(role).format.is_blocked

    def spell(self, roles: Iterable[Role]) -> str:
        """Roles and their formats, as a table shows them."""
        return ", ".join(f"{role} {self.numerics.of(role)}" for role in roles)


def version(tensor: Tensor) -> int:
    """How often a tensor was written to; tensors of inference mode do not count it."""
    return 0 if tensor.is_inference() else tensor._version


class Rounded:
    """Tensors that were rounded in this forward pass, so that none is rounded twice.

    Weights are held until the pass ends (a recurrent layer uses them at every time step), activations only for a while:
    the three projections of attention read the same one.
    """

    RECENT = 4

    def __init__(self) -> None:
        self._weights: dict[tuple[int, object], tuple[weakref.ref[Tensor], int, Tensor]] = {}
        self._recent: deque[tuple[weakref.ref[Tensor], int, object, Tensor]] = deque(maxlen=self.RECENT)

    def find(self, tensor: Tensor, role: Role, how: object) -> Tensor | None:
        """The rounded copy of `tensor`, as long as nobody has written to it since."""
        if role == "weight":
            held = self._weights.get((id(tensor), how))
            return held[2] if held and held[0]() is tensor and held[1] == version(tensor) else None
        for source, written, recent_how, copy in self._recent:
            if recent_how == how and written == version(tensor):
                found = source()
                if found is tensor:
                    return copy
                # A view of a result that was rounded where it lies is rounded too.
                if copy is found and found is tensor._base and not isinstance(how, tuple):
                    return tensor.detach()
        return None

    def keep(self, tensor: Tensor, role: Role, how: object, copy: Tensor) -> None:
        """Remember the rounded copy of `tensor`."""
        if role == "weight":
            self._weights[id(tensor), how] = (weakref.ref(tensor), version(tensor), copy)
        else:
            self._recent.append((weakref.ref(tensor), version(tensor), how, copy))

    def clear(self) -> None:
        """Forget everything: the forward pass is over."""
        self._weights.clear()
        self._recent.clear()


class Site:
    """One op of one layer at one step: it rounds that op's tensors, forward and backward."""

    def __init__(self, emulation: "Emulation", layer: str, call: str, training: bool) -> None:
        self.plan = emulation.plan(layer)
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
        self._probe(tensor, rounded, role)
        self.show(rounded, role)
        return rounded

    def round_gradient(self, gradient: Tensor, error: Tensor, part: str = "") -> Tensor:
        """The gradient of a weight that was just made of `error`, where it lies if it has memory of its own."""
        quick = self.plan.round_gradient
        if quick is None or self._sees_before or gradient.data_ptr() == error.data_ptr():
            return self.round(gradient, "gradient", part=part)
        rounded = quick(gradient)
        self.show(rounded, "gradient")
        return rounded

    def round_operand(self, tensor: Tensor, role: Role, axis: int, *, groups: int = 1) -> Tensor:
        """As `round` in a forward pass: what was rounded in this pass already is not rounded again."""
        if role not in self.plan.active_roles:
            self.show(tensor, role)
            return tensor
        how: object = self.plan.ways[role]
        if self.plan.numerics.of(role).format.is_blocked:
            how = (how, axis, groups)
        rounded = self._emulation.rounded.find(tensor, role, how)
        if rounded is None:
            rounded = self._quantize(tensor, role, axis, groups, "")
            self._emulation.rounded.keep(tensor, role, how, rounded)
            self._probe(tensor, rounded, role)
        self.show(rounded, role)
        return rounded

    def round_result_(self, tensor: Tensor, role: Role) -> None:
        """Round a vector op's fresh result where it lies, behind autograd's back.

        A backward pass that reads the result reads the rounded one: it is what the hardware has in its memory.
        """
        if not self.plan.rounds_vector(role):
            return
        chosen = self.plan.numerics.of(role)
        key = self._key(role) if chosen.is_stochastic else None
        place = tensor.data  # not detach(): the version must stay, or autograd takes it for a user's change
        before = place.clone() if self._sees_before else place
        quantize(place, chosen.format, rounding=chosen.rounding_mode, key=key, out=place)
        self._emulation.rounded.keep(tensor, role, self.plan.ways[role], tensor)
        self._probe(before, place, role)
        self.show(tensor, role)

    def round_error(self, error: Tensor) -> Tensor:
        """The error that comes back to a vector op."""
        refuse_second_derivative()
        return self.round(error, "error")

    @property
    def _sees_before(self) -> bool:
        """Whether anybody looks at tensors before they are rounded."""
        pairs = self._emulation.pair_observers
        return self._emulation.probe is not None or any(observer.wants_pairs for observer in pairs)

    def _probe(self, before: Tensor, after: Tensor, role: Role) -> None:
        probe = self._emulation.probe
        if probe is not None and self._training:
            probe(self._layer, role, before.detach(), after.detach(), self.plan.numerics.of(role).format)
        for observer in self._emulation.pair_observers if self._training else ():
            if observer.wants_pairs:
                observer.pair(self._step, self._layer, role, before.detach(), after.detach())

    def show(self, tensor: Tensor, role: Role) -> None:
        """Let the observers see a rounded tensor, in training."""
        if self._training and self._emulation.observers:
            for observer in self._emulation.observers:
                observer(self._step, self._layer, role, tensor.detach())

    @property
    def shares_operands(self) -> bool:
        """Whether both backward products use the same tensors and the library's sums: it may compute them at once."""
        return self.plan.is_exact and not self.plan.regrouped_roles

    def regroups(self, role: Role) -> bool:
        """Whether a tensor of this role is rounded anew for each product that uses it, because its blocks turn."""
        return role in self.plan.regrouped_roles

    def regroup(self, tensor: Tensor, role: Role, axis: int, *, groups: int = 1, product: Phase) -> Tensor:
        """A kept tensor as the backward product needs it: blocked along that product's axis, or as it was rounded."""
        return self._quantize(tensor, role, axis, groups, product) if self.regroups(role) else tensor

    def multiply(self, product: Phase) -> Multiply | None:
        """How this product's MAC unit multiplies; None for the library's own float32."""
        if self.plan.is_exact:
            return None
        mac = self.plan.numerics.mac_of(product)
        if mac.is_float32:
            return None
        key = self._key(f"mac/{product}") if mac.is_stochastic else None
        watcher = self._emulation.watcher

        def multiply(a: Tensor, b: Tensor) -> Tensor:
            out = matmul(a, b, mac, key=key)
            if watcher is not None:
                watcher.note_product(2 * out.numel() * a.shape[-1])
            return out

        return multiply

    def _quantize(self, tensor: Tensor, role: Role, axis: int, groups: int, part: str) -> Tensor:
        if role not in self.plan.active_roles:
            return tensor
        chosen = self.plan.numerics.of(role)
        quick = self.plan.rounders.get(role)
        if quick is not None:
            return quick(tensor)
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


def refuse_second_derivative() -> None:
    """Call it in a backward pass.

    Raises:
        RuntimeError: the backward pass is itself to be differentiated, and rounding has no derivative.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("an emulated backward pass cannot be differentiated again (create_graph=True)")


def fitting(fmt: Format, tensor: Tensor) -> Format:
    """The format for a tensor that no product reduces: blocks along its own axis, or the last if that is absent.

    A bias has one axis only, whatever the weights beside it have.
    """
    axis = getattr(fmt, "axis", -1) if fmt.is_oriented else -1
    return fmt if -tensor.dim() <= axis < tensor.dim() else fmt.along(-1)


def round_in_place(tensor: Tensor, chosen: RoleFormat, role: Role, name: str, seed: int, step: int) -> None:
    """Round a tensor that lives from step to step: master weights, optimizer state."""
    if chosen.format != _FLOAT32:
        key = Key(seed, step, f"{name}/{role}") if chosen.is_stochastic else None
        place = tensor.data
        with torch.no_grad():
            quantize(place, fitting(chosen.format, place), rounding=chosen.rounding_mode, key=key, out=place)
