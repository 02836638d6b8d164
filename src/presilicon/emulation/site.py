"""Rounding of the tensors of one op of one layer at one step."""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from hashlib import blake2b
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation.ops.hadamard import transform
from presilicon.emulation.ops.products import LinearProduct, Multiply, Product, numbers_of
from presilicon.emulation.steps.lines import Line
from presilicon.emulation.transforms import is_distributed, refuse_second_derivative
from presilicon.formats import (
    Factored,
    Format,
    Key,
    MacUnit,
    Patches,
    Scaled,
    code_format,
    factored,
    has_tensor_cores,
    matmul,
    parse,
    quantize,
    quantize_all_,
    rounder,
    typed_operand,
)
from presilicon.records import PHASES, PRODUCT_PHASES, ROLES, ProductPhase, Role

if TYPE_CHECKING:
    from presilicon.emulation.emulation import Emulation
    from presilicon.emulation.monitoring.recorder import Recorder

_FLOAT32 = parse("float32")

Operand = Tensor | Factored
"""A rounded operand of a product: numbers, or codes and scales."""

_USES: dict[Role, tuple[ProductPhase, ...]] = {
    "weight": ("forward", "input_grad"),
    "activation": ("forward", "input_grad", "weight_grad"),
    "error": ("input_grad", "weight_grad"),
}
"""The products that each role is an operand of; the input gradients of attention multiply by activations."""
_USES_OF_WEIGHTS: dict[Role, tuple[ProductPhase, ...]] = {**_USES, "weight": ("forward", "weight_grad")}
"""The same in a product of two weights, as in LoRA: both gradients are weight gradients."""

_rounding_ids: dict[RoleFormat, int] = {}


def _rounding_id(role_format: RoleFormat) -> int:
    return _rounding_ids.setdefault(role_format, len(_rounding_ids))


class LayerPlan:
    """Derived facts of a layer's numerics, computed once."""

    def __init__(self, numerics: Numerics, stale_weights: bool = False) -> None:
        """`stale_weights`: weights may change before the backward pass, whose products then round them anew."""
        self.numerics = numerics
        self.active_roles = frozenset(role for role in ROLES if numerics.format_of(role).format != _FLOAT32)
        self._operands = {(role, phase): numerics.operand(role, phase) for role in _USES for phase in PRODUCT_PHASES}
        self.hadamard = {phase: numerics.product(phase).hadamard or 0 for phase in PRODUCT_PHASES}
        """Length of the Hadamard transforms of each product's operands."""
        self.regrouped_roles = self._regrouped(_USES, stale_weights)
        """Roles whose tensors are rounded separately for each product."""
        self.regrouped_weights = self._regrouped(_USES_OF_WEIGHTS, stale_weights)
        """The same in a product of two weights."""
        self.has_steps = numerics.has_steps("activation") or numerics.has_steps("error")
        """Whether vector ops are computed step by step, each in the format of its role."""
        self.rounds_results = numerics.vector != "float32" or self.has_steps
        rounds = any(map(self._is_active, _USES)) or any(map(self.rounds_vector, _USES))
        rounds = rounds or "gradient" in self.active_roles
        self.is_exact = all(
            numerics.unit_of(phase, left, right).is_float32 for phase in PHASES for left in _USES for right in _USES
        )
        """Whether products are accumulated in float32."""
        self._units: dict[tuple[ProductPhase, Role, Role, type[Product]], MacUnit | None] = {}
        self.float32_sums: set[tuple[ProductPhase, Role, Role, type[Product]]] = set()
        """Products that an instruction could add up, if their scales were not in the operands."""
        self.is_on_tensor_cores = numerics.sums == "tensor-core" and all(
            numerics.unit_of(phase, left, right).left is not None
            for phase in PRODUCT_PHASES
            for left in _USES
            for right in _USES
        )
        """Whether tensor cores have an instruction for every product."""
        has_scales = any(code_format(role_format.format) is not None for role_format in self._operands.values())
        self.has_codes = numerics.sums == "tensor-core" and has_scales
        """Whether tensor cores multiply codes, whose scales are float32 numbers."""
        self.is_idle = self.is_exact and not rounds
        """Whether nothing is rounded, so that torch can compute the layer."""
        in_use = {*self._operands.values(), *map(numerics.format_of, ROLES)}
        self.rounders: dict[RoleFormat, Callable[[Tensor], Tensor]] = {
            role_format: rounder(role_format.format, role_format.rounding_mode)
            for role_format in in_use
            if not role_format.is_stochastic and not role_format.format.is_blocked
        }
        gradient = numerics.gradient
        self.round_gradient = (
            rounder(gradient.format, gradient.rounding_mode, over=True)
            if "gradient" in self.active_roles and gradient in self.rounders
            else None
        )
        self.rounding_ids = {role_format: _rounding_id(role_format) for role_format in in_use}
        """Small integer id per format and rounding mode; cheaper to compare than formats."""

    def format_of(self, role: Role, phase: ProductPhase | None) -> RoleFormat:
        """The format of a role, as an operand of the product of `phase` if one is named."""
        own = None if phase is None else self._operands.get((role, phase))
        return self.numerics.format_of(role) if own is None else own

    def unit(self, phase: ProductPhase, left: Role, right: Role, product: type[Product]) -> MacUnit | None:
        """The MAC unit of a product whose factors have these roles; None if it adds in float32."""
        key = (phase, left, right, product)
        if key not in self._units:
            mac = self.numerics.unit_of(phase, left, right)
            if mac.left is not None and not self._can_scale(phase, (left, right), product):
                self.float32_sums.add(key)
            self._units[key] = None if mac.is_float32 or key in self.float32_sums else mac
        return self._units[key]

    def _can_scale(self, phase: ProductPhase, roles: tuple[Role, Role], product: type[Product]) -> bool:
        """Whether the sums of a product of codes can be multiplied by the scales."""
        formats = {role: self._operands[role, phase].format for role in roles}
        return all(code_format(fmt) is None or self.takes_apart(role, phase, product) for role, fmt in formats.items())

    def takes_apart(self, role: Role, phase: ProductPhase, product: type[Product]) -> bool:
        """Whether an operand becomes codes and float32 scales, which multiply the sums.

        Scales of rows and blocks must lie along the reduced axis, and those of tiles over the axes of a matrix.
        """
        fmt = self._operands[role, phase].format
        if not self.has_codes or code_format(fmt) is None:
            return False
        if not isinstance(fmt, Scaled) or fmt.per == "tensor":
            return True
        if product.has_kernels:
            return False
        return product.keeps_matrices or role == "weight" if fmt.per == "tile" else role in self.regrouped_roles

    def is_used_as_is(self, role: Role, phase: ProductPhase) -> bool:
        """Whether a product uses operands of this role neither rounded nor transformed."""
        return self._operands[role, phase].format == _FLOAT32 and not self.hadamard[phase]

    def _is_active(self, role: Role) -> bool:
        """Whether a product rounds or transforms operands of this role."""
        return any(not self.is_used_as_is(role, phase) for phase in (*_USES[role], *_USES_OF_WEIGHTS[role]))

    def _regrouped(self, uses: Mapping[Role, Sequence[ProductPhase]], stale_weights: bool) -> frozenset[Role]:
        return frozenset(
            role
            for role, phases in uses.items()
            if len(formats := {self._operands[role, phase] for phase in phases}) > 1
            or any(self.hadamard[phase] for phase in phases)
            or (self.numerics.grouping == "per-product" and any(one.format.is_oriented for one in formats))
            or (stale_weights and role == "weight" and self._is_active(role))
        )

    def rounds_vector(self, role: Role) -> bool:
        """Whether vector ops round tensors of `role`; block formats are left to the products, which group them."""
        return self.rounds_results and role in self.active_roles and not self.numerics.format_of(role).format.is_blocked

    def spell(self, roles: Iterable[Role], phases: Iterable[ProductPhase | None] = (None,)) -> str:
        """Roles and their formats in some products, as text for a table."""
        uses = [
            (role, phase) for role in roles for phase in phases if phase is None or phase in _USES.get(role, PHASES)
        ]
        return ", ".join(dict.fromkeys(f"{role} {self.format_of(role, phase)}" for role, phase in uses))


def version(tensor: Tensor) -> int:
    """Number of writes to a tensor; 0 for tensors of inference mode, which do not count them and are never cached."""
    return 0 if tensor.is_inference() else tensor._version


class _Copy:
    """The rounded copy of a tensor, and how to round that tensor again to the same bits."""

    __slots__ = ("copy", "how", "is_own", "repeat", "source", "version")

    def __init__(
        self, tensor: Tensor, how: object, copy: Operand | None, repeat: Callable[[Tensor], Operand] | None
    ) -> None:
        self.source = weakref.ref(tensor)
        self.version = version(tensor)
        self.how = how
        self.copy = copy
        self.is_own = copy is tensor
        """Whether the tensor itself was rounded, in place."""
        self.repeat = repeat

    def emptied(self) -> "_Copy":
        """This entry without its memory; the tensor is rounded again when the copy is needed."""
        entry: _Copy = _Copy.__new__(_Copy)
        entry.source, entry.version, entry.how = self.source, self.version, self.how
        entry.copy, entry.is_own, entry.repeat = None, self.is_own, self.repeat
        return entry

    def moved_to(self, tensor: Tensor) -> "_Copy":
        """The same without its memory, of a tensor with the same numbers."""
        entry = self.emptied()
        entry.source, entry.version = weakref.ref(tensor), version(tensor)
        return entry

    def is_of(self, tensor: Tensor) -> bool:
        """Whether this is an entry of a tensor, or of what it is a view of, which was not written to since."""
        original = self.source()
        is_view = self.is_own and original is tensor._base and not isinstance(self.how, tuple)
        return original is not None and self.version == version(tensor) and (original is tensor or is_view)

    def of(self, tensor: Tensor) -> Operand | None:
        """The rounded copy if this is an entry of `tensor`, which was not written to since."""
        if self.version != version(tensor):
            return None
        original = self.source()
        if original is tensor or (self.copy is None and original is not None and _is_same_memory(original, tensor)):
            if self.copy is None:
                self.copy = tensor if self.repeat is None else self.repeat(tensor)
            return self.copy
        # A view of a result that was rounded in place is rounded too.
        if self.is_own and original is not None and original is tensor._base and not isinstance(self.how, tuple):
            return tensor.detach()
        return None


def _is_same_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


class Rounded:
    """Cache of the tensors rounded in this forward pass, so that none is rounded twice.

    Weights stay until the pass ends (a recurrent layer uses them at every time step). Of activations only the most
    recent stay, because the three projections of attention read the same one.
    """

    RECENT = 4

    def __init__(self) -> None:
        self._weights: dict[tuple[int, object], _Copy] = {}
        self._recent: deque[_Copy] = deque(maxlen=self.RECENT)
        self._inputs: list[tuple[list[_Copy], list[_Copy]]] = []
        """Copies of the tensors that a checkpointed region was called with: as weights, and the most recent."""
        self._exposed: set[int] = set()

    def find(self, tensor: Tensor, role: Role, how: object) -> Operand | None:
        """The rounded copy of `tensor`, unless it was written to since."""
        if id(tensor) in self._exposed or tensor.is_inference():  # writes to those of inference mode are not counted
            return None
        if role == "weight":
            held = self._weights.get((id(tensor), how))
            return held.of(tensor) if held else None
        for entry in self._recent:
            if entry.how == how and (copy := entry.of(tensor)) is not None:
                return copy
        return None

    def keep(
        self, tensor: Tensor, role: Role, how: object, copy: Operand, repeat: Callable[[Tensor], Operand] | None = None
    ) -> None:
        """Add the rounded copy of `tensor`; `repeat` computes it again, and is None if `copy` is the tensor itself."""
        entry = _Copy(tensor, how, copy, repeat)
        if role == "weight":
            self._weights[id(tensor), how] = entry
        else:
            self._recent.append(entry)

    def emptied(self, inputs: Iterable[Any] = ()) -> "Rounded":
        """A cache of the same tensors that holds no memory: a copy is computed again when it is first needed.

        `inputs` are the tensors that a checkpointed region is called with; see `stand_in`.
        """
        cache = Rounded()
        cache._weights = {key: entry.emptied() for key, entry in self._weights.items()}
        cache._recent.extend(entry.emptied() for entry in self._recent)
        cache._exposed = set(self._exposed)
        cache._inputs = [(self._copies(value, weights=True), self._copies(value)) for value in inputs] or self._inputs
        return cache

    def _copies(self, value: Any, *, weights: bool = False) -> list[_Copy]:
        held = self._weights.values() if weights else self._recent
        return [entry.emptied() for entry in held if entry.is_of(value)] if isinstance(value, Tensor) else []

    def stand_in(self, tensor: Tensor, number: int) -> None:
        """Treat a tensor as that input of the region."""
        if number < len(self._inputs):
            weights, recent = self._inputs[number]
            self._weights |= {(id(tensor), entry.how): entry.moved_to(tensor) for entry in weights}
            self._recent = deque(
                (*(entry.moved_to(tensor) for entry in recent), *self._recent), maxlen=self.RECENT + len(recent)
            )

    def expose(self, tensor: Tensor) -> None:
        """Round a tensor at every use: its `.data` was handed out, and writes to that are not counted."""
        self._exposed.add(id(tensor))

    def clear(self) -> None:
        """Empty the cache at the end of the forward pass."""
        self._weights.clear()
        self._recent.clear()
        self._exposed.clear()


class Use(NamedTuple):
    """The role of a tensor, the product that it is an operand of, and the axis that this reduces."""

    role: Role
    axis: int = -1
    groups: int = 1
    phase: ProductPhase | None = None
    part: str = ""


class Site:
    """One op of one layer at one step; rounds its tensors in the forward and backward pass."""

    def __init__(self, emulation: "Emulation", layer: str, call: str, training: bool) -> None:
        self.plan = emulation.plan(layer)
        self._emulation = emulation
        self._layer = layer
        self._call = call
        self._step = emulation.step
        self._stream = f"{emulation.own or ''}{emulation.stream}"
        self._training = training
        self._task: int = torch._C._current_graph_task_id()
        """The backward pass that a recomputed op runs in; -1 for the forward pass."""
        self._tasks: list[int] = []
        """The backward passes that this op had so far."""
        self._earlier_tasks = emulation.earlier_tasks
        self._delays = True
        """Whether scales may follow earlier passes; formats that are only asked about have no history."""
        self._product: type[Product] = LinearProduct
        self._is_of_weights = self._has_types = False

    def round(self, tensor: Tensor, use: Use) -> Tensor:
        """`tensor` in its role's format, with blocks along the axis; observers see the result in training.

        Weight gradients are not reduced again, so their blocks follow the format's own axis.
        """
        return numbers_of(self.round_for(tensor, use))

    def round_for(self, tensor: Tensor, use: Use) -> Operand:
        """Like `round`, for the product of the phase, which may take codes and scales.

        The operand has that product's format, and is transformed first where the product asks for it.
        """
        rounded = self._round(tensor, use)
        self._probe(tensor, rounded, use)
        self.show(rounded, use.role)
        return rounded

    def round_gradient(self, gradient: Tensor, error: Tensor, part: str = "") -> Tensor:
        """The rounded gradient of a weight, computed from `error`; rounded in place if it has its own memory."""
        quick = self.plan.round_gradient
        if quick is None or self._sees_before or gradient.data_ptr() == error.data_ptr():
            return self.round(gradient, Use("gradient", part=part))
        rounded = quick(gradient)
        self.show(rounded, "gradient")
        return rounded

    def round_operand(self, tensor: Tensor, use: Use) -> Operand:
        """Like `round_for`, for the forward product: a tensor that was rounded in this pass is not rounded again."""
        role = use.role
        if self.plan.is_used_as_is(role, "forward"):
            self._probe_again(tensor, tensor, use)
            self.show(tensor, role)
            return tensor if self.plan.is_exact else _without_sharing(tensor, role)
        role_format, length = self.plan.format_of(role, "forward"), self.plan.hadamard["forward"]
        how: object = self.plan.rounding_ids[role_format]
        if length or role_format.format.is_blocked or self._has_types:
            how = (how, use.axis, use.groups, length, self._has_types, self._takes_apart(role, "forward"))
        rounded = self._emulation.rounded.find(tensor, role, how)
        if rounded is None:
            rounded = self._round(tensor, use)
            self._emulation.rounded.keep(tensor, role, how, rounded, partial(self._round_again, use=use))
            self._probe(tensor, rounded, use)
        else:
            self._probe_again(tensor, rounded, use)
        self.show(rounded, role)
        return rounded

    def round_result_(self, tensor: Tensor, role: Role) -> None:
        """Round a vector op's fresh result in place, without autograd noticing.

        A backward pass that reads the result reads the rounded value, which is what the hardware has in memory.
        """
        if not self.plan.rounds_vector(role):
            return
        role_format = self.plan.numerics.format_of(role)
        key = self._key(role) if role_format.is_stochastic else None
        data = tensor.data  # not detach(), which would change the version, and autograd would report a user's change
        before = data.clone() if self._sees_before else data
        quantize(data, role_format.format, rounding=role_format.rounding_mode, key=key, out=data)
        self.keep_result(tensor, role, before)

    def keep_result(self, tensor: Tensor, role: Role, before: Tensor) -> None:
        """Note that a vector op's result is in its role's format; `before` is what it was."""
        self._emulation.rounded.keep(tensor, role, self.plan.rounding_ids[self.plan.numerics.format_of(role)], tensor)
        self._probe(before, tensor.data, Use(role))
        self.show(tensor, role)

    def round_error(self, error: Tensor | None) -> Tensor | None:
        """The rounded error of a vector op's result; None for one of several results that nothing uses."""
        if error is None:
            return None
        refuse_second_derivative(error)
        return self.round(error, Use("error"))

    def lines(self, operator: str) -> tuple[Line, Line]:
        """The arithmetic of this op's steps, forward and backward."""
        return self._line("activation", operator), self._line("error", operator)

    def _line(self, role: Role, operator: str) -> Line:
        numerics, emulation = self.plan.numerics, self._emulation
        role_format = numerics.format_of(role)
        is_exact = not self.plan.rounds_vector(role)

        def note(name: str, formats: str, flops: int) -> None:
            if emulation.watcher is not None:
                emulation.watcher.note_step(self._layer, f"{operator}.{name}", formats, flops)

        return Line(None if is_exact else role_format, role, self._key, note, emulation.bookkeeping)

    @property
    def _sees_before(self) -> bool:
        """Whether a recorder or an observer needs tensors before they are rounded."""
        pairs = self._emulation.pair_observers
        return any(recorder.is_due(self._step) for recorder in self._emulation.recorders) or any(
            observer.wants_pairs for observer in pairs
        )

    def _probe(self, tensor: Tensor, after: Operand, use: Use) -> None:
        """Show a tensor, before it is transformed, and its rounded copy to recorders and observers, in training."""
        if not self._training:
            return
        for recorder in self._emulation.recorders:
            self._record(recorder, tensor, after, use)
        for observer in self._emulation.pair_observers:
            if observer.wants_pairs:
                before = self._transformed(tensor, use)
                observer.pair(self._step, self._layer, use.role, before.detach(), numbers_of(after).detach())

    def _probe_again(self, tensor: Tensor, after: Operand, use: Use, product: ProductPhase | None = None) -> None:
        """Show a tensor that is exact, or that was rounded before, to the recorders that see all tensors."""
        if self._training:
            for recorder in self._emulation.recorders:
                if recorder.sees_all:
                    self._record(recorder, tensor, after, use, product)

    def _record(
        self, recorder: "Recorder", tensor: Tensor, after: Operand, use: Use, product: ProductPhase | None = None
    ) -> None:
        role = use.role
        if not recorder.is_due(self._step) or not recorder.wants(self._layer, role):
            return
        site, plan = self, recorder.what_if_plan(self._layer, self._step)
        if plan is not None:
            site = copy(self)
            site.plan, site._delays = plan, False
            if product is not None and not site.regroups(role):
                return
        before = site._transformed(tensor, use)
        if plan is not None:
            after = site._quantize(before, use)
        split, fmt = site._oriented(before, use)
        amax = site._delayed_amax(before, use, self.plan.format_of(role, use.phase), record=False)
        rounded = numbers_of(after).reshape(split.shape)
        recorder.see_rounding(self._step, self._layer, role, product, split, rounded, fmt, amax)

    def show(self, tensor: Operand, role: Role) -> None:
        """Pass a rounded tensor to the observers, in training."""
        if self._training and self._emulation.observers:
            for observer in self._emulation.observers:
                observer(self._step, self._layer, role, numbers_of(tensor).detach())

    @property
    def shares_operands(self) -> bool:
        """Whether torch can compute both backward products in one call: same tensors, float32 accumulation."""
        return self.plan.is_exact and not self._regrouped_roles

    @property
    def leaves_sums_of_errors(self) -> bool:
        """Whether the gradient of a bias adds up errors that are not rounded: block formats are for products only."""
        return self.plan.format_of("error", "input_grad").format.is_blocked

    def regroups(self, role: Role) -> bool:
        """Whether a tensor of this role is rounded separately for each product, along that product's axis."""
        return role in self._regrouped_roles

    @property
    def _regrouped_roles(self) -> frozenset[Role]:
        return self.plan.regrouped_weights if self._is_of_weights else self.plan.regrouped_roles

    def regroup(self, tensor: Operand, use: Use) -> Operand:
        """A saved tensor for a backward product: rounded as that product asks for, or as it was rounded before."""
        if not self.regroups(use.role):
            return tensor
        assert isinstance(tensor, Tensor)
        rounded = self._round(tensor, use)
        self._probe_again(tensor, rounded, use, use.phase)
        return rounded

    def multiply(self, phase: ProductPhase, left: Role, right: Role, part: str = "") -> Multiply | None:
        """The multiplication of the MAC unit for factors of these roles; None for torch's float32."""
        mac = None if self.plan.is_exact else self.plan.unit(phase, left, right, self._product)
        if mac is None:
            if (phase, left, right, self._product) in self.plan.float32_sums:
                self._emulation.warn_of_scales(self._layer, self._product.has_kernels)
            return None
        key = self._key(f"mac/{part or phase}") if mac.is_stochastic else None
        watcher = self._emulation.watcher

        def multiply(a: Operand | Patches, b: Operand | Patches, bias: Tensor | None = None) -> Tensor:
            unit = mac if mac.left is None else self._emulation.unit_on(a.device, mac)
            out = matmul(a, b, unit, key=key, bias=bias)
            if watcher is not None:
                watcher.note_product(2 * out.numel() * a.shape[-1])
            return out

        return multiply

    def transforms(self, phase: ProductPhase) -> bool:
        """Whether the operands of a product are transformed."""
        return self.plan.hadamard[phase] > 1

    def _transformed(self, tensor: Tensor, use: Use) -> Tensor:
        """An operand after the product's Hadamard transform along its reduction axis, within groups of channels."""
        if use.phase is None or not self.transforms(use.phase):
            return tensor
        length = gcd(self.plan.hadamard[use.phase], tensor.shape[use.axis] // use.groups)
        return transform(tensor.detach(), use.axis, length, self._emulation.seed)

    def _round(self, tensor: Tensor, use: Use) -> Operand:
        return self._quantize(self._transformed(tensor, use), use)

    def _quantize(self, tensor: Tensor, use: Use) -> Operand:
        role_format = self.plan.format_of(use.role, use.phase)
        if role_format.format == _FLOAT32:
            return tensor
        tensor = _without_sharing(tensor, use.role)
        if use.phase is not None and self._takes_apart(use.role, use.phase):
            return self._take_apart(tensor, use, role_format)
        if self._has_types and use.phase is not None:
            typed = self._as_operand(tensor, use, role_format)
            if typed is not None:
                return typed
        quick = self.plan.rounders.get(role_format)
        if quick is not None:
            return quick(tensor)
        key = self._key_for(use, role_format)
        amax = self._delayed_amax(tensor.detach(), use, role_format, record=self._training)
        if amax is not None:
            assert isinstance(role_format.format, Scaled)
            return role_format.format.round_with(tensor.detach(), amax, rounding=role_format.rounding_mode, key=key)
        if not role_format.format.is_blocked:
            return quantize(tensor.detach(), role_format.format, rounding=role_format.rounding_mode, key=key)
        split, oriented = self._oriented(tensor, use)
        return quantize(split.detach(), oriented, rounding=role_format.rounding_mode, key=key).view(tensor.shape)

    def _takes_apart(self, role: Role, phase: ProductPhase) -> bool:
        return self.plan.has_codes and self.plan.takes_apart(role, phase, self._product)

    def _take_apart(self, tensor: Tensor, use: Use, role_format: RoleFormat) -> Factored:
        """The codes and scales of an operand."""
        amax = self._delayed_amax(tensor.detach(), use, role_format, record=self._training)
        split, oriented = self._oriented(tensor, use)
        key = self._key_for(use, role_format)
        parts = factored(split.detach(), oriented, role_format.rounding_mode, key, amax=amax)
        return parts if split is tensor else Factored(parts.codes.view(tensor.shape), parts.scales)

    def prepare(self, product: Product, roles: tuple[Role, Role], device: torch.device) -> None:
        """Note the kind of product, and whether its operands have the types that tensor cores read."""
        emulation = self._emulation
        self._product, self._is_of_weights = type(product), roles == ("weight", "weight")
        if product.takes_types and self.plan.is_on_tensor_cores and not emulation.observers and not emulation.recorders:
            self._has_types = has_tensor_cores(device)

    def _as_operand(self, tensor: Tensor, use: Use, role_format: RoleFormat) -> Tensor | None:
        """The rounded operand in the type that tensor cores read; None if they have no type that holds its format."""
        if role_format.amax_history is not None:
            return None
        split, oriented = self._oriented(tensor, use)
        typed = typed_operand(split.detach(), oriented, role_format.rounding_mode, self._key_for(use, role_format))
        return None if typed is None else typed.view(tensor.shape)

    def _oriented(self, tensor: Tensor, use: Use) -> tuple[Tensor, Format]:
        """The tensor in the shape in which it is rounded, and its format with blocks along the axis in that shape."""
        role, axis, groups, phase, _ = use
        fmt = self.plan.format_of(role, phase).format
        if not fmt.is_blocked:
            return tensor, fmt
        if role == "weight" and tensor.dim() > 2 and not fmt.is_oriented and self._product.has_kernels:
            return tensor.flatten(1), fmt  # the matrix of kernels: output channels by input channels and positions
        # Blocks must not extend from one group of channels into the next.
        split = tensor.unflatten(axis, (groups, -1)) if groups > 1 else tensor
        if role == "gradient":
            return split, fitting(fmt, split)
        return split, fmt.along(axis + 1 if groups > 1 else axis)

    def _delayed_amax(self, tensor: Tensor, use: Use, role_format: RoleFormat, *, record: bool) -> Tensor | None:
        """The magnitude that the scale follows, from earlier passes; None if the scale is not delayed."""
        if role_format.amax_history is None or not self._delays:
            return None
        name = f"{self._layer}/{self._call}/{use.role}/{use.part}"
        with self._emulation.bookkeeping():
            return self._emulation.amax.scale_amax(name, tensor, role_format, record=record)

    def _key_for(self, use: Use, role_format: RoleFormat) -> Key | None:
        return self._key(f"{use.role}/{use.part}") if role_format.is_stochastic else None

    def _key(self, name: str) -> Key:
        purpose = "" if self._training else "evaluation/"
        path = f"{purpose}{self._stream}{self._layer}/{self._call}/{name}"
        earlier = self._count_earlier_tasks()
        return Key(self._emulation.seed, self._step, f"{path}/again{earlier}" if earlier else path)

    def _count_earlier_tasks(self) -> int:
        """The number of backward passes over a retained graph before the one that is running; 0 in a forward pass."""
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return 0
        if task not in self._tasks:
            self._tasks.append(task)
        return self._earlier_tasks + self._tasks.index(task)

    def _round_again(self, tensor: Tensor, use: Use) -> Operand:
        """The rounding of the forward pass, for a recomputation."""
        site = copy(self)
        site._task = torch._C._current_graph_task_id()
        return site._round(tensor, use)


def _without_sharing(tensor: Tensor, role: Role) -> Tensor:
    """A weight in memory of its own, where FSDP may free and refill the memory of weights.

    The CPU's kernels read tensors through NumPy, after which torch refuses to resize the memory.
    """
    if role == "weight" and tensor.device.type == "cpu" and is_distributed():
        return tensor.detach().clone()
    return tensor


def fitting(fmt: Format, tensor: Tensor) -> Format:
    """The format for a tensor that no product reduces: blocks along the format's axis, or the last axis.

    A bias, for example, has fewer axes than the weights whose format it shares.
    """
    axis = getattr(fmt, "axis", -1) if fmt.is_oriented else -1
    return fmt if -tensor.dim() <= axis < tensor.dim() else fmt.along(-1)


def stream_of(parameters: Iterable[Tensor]) -> str:
    """A prefix of random streams that tells models and optimizers apart by the values of their parameters."""
    total = blake2b(digest_size=6)
    for parameter in parameters:
        if is_lazy(parameter):
            continue
        local = getattr(parameter.data, "_local_tensor", parameter.data).detach()
        numbers = b"" if local.is_meta else local.reshape(-1)[:64].double().cpu().numpy().tobytes()
        total.update(f"{tuple(local.shape)} ".encode() + numbers)
    return f"{total.hexdigest()}/"


def _shard_of(tensor: Any) -> str:
    """The position of this process's part of a distributed tensor (FSDP2), whose parts draw different numbers."""
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return ""
    positions = [
        str(position)
        for position, placement in zip(mesh.get_coordinate() or (), tensor.placements, strict=False)
        if placement.is_shard()
    ]
    return f"/shard {'.'.join(positions)}" if positions else ""


def round_in_place(
    tensors: Sequence[tuple[Tensor, str]], role_format: RoleFormat, role: Role, seed: int, step: int
) -> None:
    """Round named tensors that persist from step to step: master weights, optimizer state."""
    if role_format.format == _FLOAT32:
        return
    # FSDP2's parameters are distributed tensors, of which each process rounds its own part.
    parts: list[Tensor] = [getattr(tensor.data, "_local_tensor", tensor.data) for tensor, _ in tensors]
    groups: dict[int, tuple[Format, list[int]]] = {}
    for index, part in enumerate(parts):
        fmt = fitting(role_format.format, part)
        groups.setdefault(id(fmt), (fmt, []))[1].append(index)  # by identity, because formats take long to hash
    with torch.no_grad():
        for fmt, members in groups.values():
            copies = [_without_sharing(parts[index], "weight") for index in members]
            keys = None
            if role_format.is_stochastic:
                named = [tensors[index] for index in members]
                keys = [Key(seed, step, f"{name}/{role}{_shard_of(tensor)}") for tensor, name in named]
            quantize_all_(copies, fmt, rounding=role_format.rounding_mode, keys=keys)
            for index, rounded in zip(members, copies, strict=True):
                if rounded is not parts[index]:
                    parts[index].copy_(rounded)
