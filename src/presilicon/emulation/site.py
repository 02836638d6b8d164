"""Rounding of the tensors of one op of one layer at one step."""

from copy import copy
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from presilicon.designs import RoleFormat
from presilicon.emulation.layer_plan import FLOAT32
from presilicon.emulation.ops.hadamard import transform
from presilicon.emulation.ops.products import LinearProduct, Multiply, Product, numbers_of
from presilicon.emulation.persistent import fitting, without_sharing
from presilicon.emulation.rounded import Operand
from presilicon.emulation.steps.lines import Line
from presilicon.emulation.transforms import refuse_second_derivative
from presilicon.formats import (
    Factored,
    Format,
    Key,
    Patches,
    Scaled,
    factored,
    has_tensor_cores,
    matmul,
    quantize,
    typed_operand,
)
from presilicon.records import ProductPhase, Role

if TYPE_CHECKING:
    from presilicon.emulation.emulation import Emulation
    from presilicon.emulation.monitoring.recorder import Recorder


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
            return tensor if self.plan.is_exact else without_sharing(tensor, role)
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
        if role_format.format == FLOAT32:
            return tensor
        tensor = without_sharing(tensor, use.role)
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
