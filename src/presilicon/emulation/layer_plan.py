"""Derived facts of a layer's numerics, computed once: what each of its ops rounds, and with which unit it adds."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import Tensor

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation.ops.products import Product
from presilicon.formats import MacUnit, Scaled, code_format, parse, rounder
from presilicon.records import PHASES, PRODUCT_PHASES, ROLES, ProductPhase, Role

FLOAT32 = parse("float32")

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
        self.active_roles = frozenset(role for role in ROLES if numerics.format_of(role).format != FLOAT32)
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
        return self._operands[role, phase].format == FLOAT32 and not self.hadamard[phase]

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
