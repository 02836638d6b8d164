"""Numerics: the format of each role that a number can play in a training step, in every layer, over time."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from presilicon.base import ConfigError, FormatError, located
from presilicon.designs.operators import Operators
from presilicon.designs.patterns import patterns_meet
from presilicon.designs.scaling import LossScale
from presilicon.formats import (
    Format,
    MacUnit,
    Rounding,
    Scaled,
    Stochastic,
    VectorUnit,
    parse,
    parse_rounding,
    parse_unit,
    short_name,
    tensor_core,
)
from presilicon.ops import Operator
from presilicon.records import PHASES, PRODUCT_PHASES, ROLES, Ends, Phase, ProductPhase, Role

Grouping = Literal["per-product", "fixed"]
Vector = Literal["float32", "round-results", "round-steps"]
Sums = Literal["float32", "tensor-core"]


class RoleFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """Storage of the tensors of one role. In a file, the format's spelling alone is enough."""

    shorthand: ClassVar[str] = "format"

    format: Format
    rounding: str | None = None
    """A rounding mode, nearest-even if none is named (a user-defined format may have a rounding of its own);
    `stochastic(bits=8, source=lfsr)` names the random source that the hardware has."""

    stored_bits: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Bits of an element in memory, where that is more than the format needs: TensorFloat-32 has 19 and takes 32."""

    amax_history: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    """Delayed scaling of a format with one scale per tensor: the scale follows the largest magnitudes of the last so
    many forward passes, not those of the tensor itself, and numbers beyond them saturate."""

    amax_rule: Literal["max", "most-recent"] | None = None
    """The magnitude that delayed scaling takes from its history; the largest if none is named."""

    def check(self) -> None:
        """The rounding must be one that exists, and the format must fit in the bits that it is stored in."""
        if self.rounding is not None:
            parse_rounding(self.rounding)
        if self.amax_history is not None and not (isinstance(self.format, Scaled) and self.format.per == "tensor"):
            raise ConfigError(
                f"amax_history: delayed scaling needs one scale per tensor, which {self.format} has not; "
                'try format = "scaled(element=e4m3fn)"'
            )
        if self.amax_rule is not None and self.amax_history is None:
            raise ConfigError("amax_rule: only delayed scaling has a rule; set amax_history as well")
        needed = self.format.bits_per_element
        if self.stored_bits is not None and self.stored_bits < needed:
            raise ConfigError(f"stored_bits: given {self.stored_bits}, but {self.format} needs {needed:g}")

    @property
    def bits_per_element(self) -> float:
        """Bits of an element in memory, shared exponents and scales included."""
        return self.format.bits_per_element if self.stored_bits is None else float(self.stored_bits)

    @property
    def rounding_mode(self) -> Rounding | Stochastic | None:
        """The rounding as `quantize` takes it."""
        return None if self.rounding is None else cast("Rounding | Stochastic", parse_rounding(self.rounding))

    @property
    def is_stochastic(self) -> bool:
        """Whether rounding draws random numbers."""
        return isinstance(self.rounding_mode, Stochastic) or (self.rounding is None and self.format.draws)

    def __str__(self) -> str:
        delay = None if self.amax_history is None else f"scale of the last {self.amax_history} passes"
        notes = [note for note in (self.rounding, delay) if note is not None]
        return f"{self.format} ({', '.join(notes)})" if notes else str(self.format)


FLOAT32 = RoleFormat(parse("float32"))


def _convert_roles(owner: "Override | Numerics | ProductNumerics") -> None:
    """Replace formats and spellings of formats by `RoleFormat`s.

    Raises:
        ConfigError: a role is something else.
    """
    for role in ROLES:
        if not hasattr(owner, role):
            continue
        value: Any = getattr(owner, role)
        if value is None or isinstance(value, RoleFormat):
            continue
        if not isinstance(value, str | Format):
            raise ConfigError(
                f'{role}: must be a RoleFormat, a Format or its spelling, as in "bfloat16", not {value!r}'
            )
        force_setattr(owner, role, RoleFormat(parse(value) if isinstance(value, str) else value))


class ProductNumerics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numerics of one matrix product of a layer, where they differ from those of the roles.

    >>> half = ProductNumerics(activation="bfloat16", error="bfloat16")
    >>> numerics = Numerics(activation="e4m3fn", error="e5m2", weight_grad=half)
    >>> str(numerics.operand("activation", "forward")), str(numerics.operand("activation", "weight_grad"))
    ('e4m3fn', 'bfloat16')
    """

    weight: RoleFormat | None = None
    activation: RoleFormat | None = None
    error: RoleFormat | None = None
    mac: MacUnit | None = None
    """Accumulation of this product."""
    hadamard: Annotated[int, Meta(ge=0, le=1024)] | None = None
    """Length of the random Hadamard transforms along the reduced axis of both operands, before they are rounded: a
    power of two; 0 for none. A product of transformed operands is the same but for rounding, and outliers are spread
    over their block. An axis that the length does not divide has blocks of the largest power of two that does."""

    def __post_init__(self) -> None:
        _convert_roles(self)

    def check(self) -> None:
        """Formats and roundings must exist, and a transform must have a length that is a power of two."""
        for name in ("weight", "activation", "error"):
            role_format: RoleFormat | None = getattr(self, name)
            if role_format is not None:
                with located(name):
                    role_format.check()
        if self.hadamard and self.hadamard.bit_count() != 1:
            raise ConfigError(f"hadamard: must be a power of two, not {self.hadamard}; try 16")

    def changed(self, other: "ProductNumerics") -> "ProductNumerics":
        """These numerics with the fields that are set in `other`."""
        return replace(self, **_fields_set(other))

    def without(self, fields: Iterable[str]) -> "ProductNumerics":
        """These numerics without some of their fields."""
        return replace(self, **{name: None for name in fields if name in ProductNumerics.__struct_fields__})


def _fields_set(struct: Struct, but: tuple[str, ...] = ()) -> dict[str, Any]:
    names = [name for name in struct.__struct_fields__ if name not in but]
    return {name: value for name in names if (value := getattr(struct, name)) is not None}


class Override(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other numerics for some layers: fields that are set replace the design's own."""

    layers: str
    """A pattern of qualified names, as in "blocks.0.*"; it means the modules inside those that it matches, too. "first"
    and "last" mean the first and the last layer that has a matrix of weights."""
    weight: RoleFormat | None = None
    activation: RoleFormat | None = None
    error: RoleFormat | None = None
    gradient: RoleFormat | None = None
    master: RoleFormat | None = None
    state: RoleFormat | None = None
    vector: Vector | None = None
    mac: MacUnit | None = None
    sums: Sums | None = None
    forward: ProductNumerics | None = None
    input_grad: ProductNumerics | None = None
    weight_grad: ProductNumerics | None = None

    def __post_init__(self) -> None:
        _convert_roles(self)

    def matches(self, layer: str, ends: Ends = Ends()) -> bool:
        """Whether the override applies to `layer`.

        >>> Override(layers="blocks.1").matches("blocks.1.norm"), Override(layers="blocks.1").matches("blocks.10")
        (True, False)
        """
        if self.layers in ("first", "last"):
            end = ends.first if self.layers == "first" else ends.last
            return layer == end or (end != "" and layer.startswith(f"{end}."))
        parts = layer.split(".")
        return any(fnmatchcase(".".join(parts[:depth]), self.layers) for depth in range(len(parts), 0, -1))

    def changes(self) -> dict[str, Any]:
        """The fields of `Numerics` that it replaces."""
        return _fields_set(self, but=("layers", "from_step"))


class Change(Override, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An override that begins at a training step and holds from then on."""

    from_step: Annotated[int, Meta(ge=0)]
    """Steps are counted from 0."""


class Numerics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The format of each role, and the MAC unit of each product. What is not named stays in float32.

    A role takes a `RoleFormat`, or a format or its spelling alone: `Numerics(weight="e4m3fn")`.

    Forward multiplies activation and weight; the input gradient, error and weight; the weight gradient, activation and
    error. The optimizer works on the master weights; `weight` is a rounded copy of them.
    """

    weight: RoleFormat = FLOAT32
    activation: RoleFormat = FLOAT32
    error: RoleFormat = FLOAT32
    """Gradients of activations, as they enter the two backward products."""
    gradient: RoleFormat = FLOAT32
    """Gradients of weights, as they enter the optimizer."""
    master: RoleFormat = FLOAT32
    state: RoleFormat = FLOAT32
    """Optimizer state."""
    grouping: Grouping = "per-product"
    """Axis of the blocks of block formats. `per-product`: along the reduction axis of each product, so that a tensor
    used in two of them is blocked twice, from its unrounded values. `fixed`: one copy, blocked along the reduction axis
    of the first product that uses it (forward; for errors the input gradient). Square tiles lie the same way in every
    product."""
    vector: Vector = "float32"
    """Treatment of ops that are not matrix products. `float32`: they compute in float32 and keep their results so;
    tensors are rounded where they enter a product. `round-results`: their results are rounded to the activation format,
    the errors that come back to them to the error format, and the gradients of their parameters to the gradient format.
    A block format belongs to the operand of a product: where a role has one, vector results of it stay as they are.
    `round-steps`: norms, softmax, losses and updates are divided into additions, multiplications, divisions, square
    roots, exponentials and logarithms, each of which is rounded; sums are trees of neighbours, and the bias of a
    product is added so too. A user-defined format with functions of its own computes these steps by them, whatever is
    set here."""
    mac: MacUnit = MacUnit()
    """Accumulation of products, in all three phases."""
    sums: Sums = "float32"
    """Sums of MAC units that only add in float32. `float32`: in an order of the library's own. `tensor-core`: as the
    instructions of a Hopper GPU add, which is the same on every machine, and fast on that GPU. Operands that no
    instruction holds are added in float32."""
    forward: ProductNumerics = ProductNumerics()
    """Other formats and another MAC unit for the forward product, where they are set."""
    input_grad: ProductNumerics = ProductNumerics()
    weight_grad: ProductNumerics = ProductNumerics()
    overrides: tuple[Override, ...] = ()
    """Other numerics for some layers; where several match, later ones win."""
    schedule: tuple[Change, ...] = ()
    """Other numerics from some step on, applied after the overrides; where several hold, later ones win."""
    operators: Operators | None = None
    """Replacements of functions such as tanh, everywhere in the model."""
    loss_scale: LossScale = LossScale()
    """A factor that lifts gradients into the range of the errors' format."""

    def __post_init__(self) -> None:
        _convert_roles(self)
        for name, kind in (("overrides", Override), ("schedule", Change)):
            entries = getattr(self, name)
            if not isinstance(entries, tuple | list) or not all(isinstance(entry, kind) for entry in entries):
                raise ConfigError(f"{name}: must be a tuple of {kind.__name__}, not {entries!r}")
            force_setattr(self, name, tuple(entries))

    def check(self) -> None:
        """Overrides must replace something, with formats and roundings that exist; errors must hold the loss scale."""
        for numerics in self.variants():
            largest = getattr(numerics.error.format, "max", None)
            if isinstance(largest, float):
                self.loss_scale.check_range(largest, str(numerics.error.format))
            for role in ("master", "state"):
                if numerics.format_of(role).amax_history is not None:
                    raise ConfigError(
                        f"{role}: delayed scaling is for tensors that a pass computes; leave out amax_history"
                    )
        for name, entries in (("overrides", self.overrides), ("schedule", self.schedule)):
            for index, entry in enumerate(entries):
                changes = entry.changes()
                if not changes:
                    raise ConfigError(
                        f'{name}[{index}]: replaces nothing in "{entry.layers}": set a role, such as weight'
                    )
                for field, value in changes.items():
                    if isinstance(value, RoleFormat | MacUnit | ProductNumerics) and hasattr(value, "check"):
                        with located(f"{name}[{index}].{field}"):
                            value.check()

    def variants(self) -> tuple["Numerics", ...]:
        """These numerics, and those with overrides and changes applied: everything that the hardware must support.

        Entries are applied together where their patterns may meet in a layer: without a model, more is not known.

        >>> wide = RoleFormat(parse("float16"))
        >>> entries = Override(layers="last", weight=FLOAT32), Override(layers="*", activation=wide)
        >>> numerics = Numerics(weight="e4m3", activation="e4m3", overrides=entries)
        >>> [f"{part.weight} by {part.activation}" for part in numerics.variants()]
        ['e4m3 by e4m3', 'float32 by e4m3', 'e4m3 by float16', 'float32 by float16']
        """
        if self.is_uniform:
            return (self,)
        # Numerics by the fewest patterns that lead to them: whatever meets more of these meets those, too.
        variants: dict[Numerics, set[frozenset[str]]] = {self: {frozenset()}}
        for entry in (*self.overrides, *self.schedule):
            for numerics, patterns in [(key, group) for key, groups in variants.items() for group in groups]:
                if all(patterns_meet(entry.layers, pattern) for pattern in patterns):
                    groups = variants.setdefault(numerics.changed(entry.changes()), set())
                    more = patterns | {entry.layers}
                    if not any(group <= more for group in groups):
                        groups.difference_update([group for group in groups if more < group])
                        groups.add(more)
        return tuple(variants)

    def changed(self, changes: Mapping[str, Any]) -> "Numerics":
        """These numerics with other fields; a role or MAC unit that is replaced is replaced in every product."""
        products: dict[str, Any] = {}
        for name in PRODUCT_PHASES:
            own: ProductNumerics = getattr(self, name)
            products[name] = own.without(changes).changed(changes.get(name) or ProductNumerics())
        return replace(self, **{**changes, **products})

    @property
    def is_uniform(self) -> bool:
        """Whether every layer has the same numerics at every step."""
        return not self.overrides and not self.schedule

    def has_steps(self, role: Role) -> bool:
        """Whether vector ops on tensors of a role are computed step by step, each step in the role's format."""
        fmt = self.format_of(role).format
        if fmt.arithmetic is not None and fmt.arithmetic.has_vector_arithmetic:
            return True
        return self.vector == "round-steps" and not fmt.is_blocked and fmt != FLOAT32.format

    @property
    def has_user_arithmetic(self) -> bool:
        """Whether a role has a format, or a product a MAC unit, with functions of the user's own."""
        formats = [self.format_of(role).format for role in ROLES]
        formats += [self.operand(role, phase).format for role in _OPERAND_ROLES for phase in PRODUCT_PHASES]
        is_own = any(fmt.arithmetic is not None for fmt in formats)
        return is_own or any(self.mac_of(phase).is_user_defined for phase in PHASES)

    @property
    def unit_name(self) -> str | None:
        """The name of a processing unit of any product, in any layer at any step; None if there is none."""
        return next((mac.unit.name for mac in self.macs() if mac.unit is not None), None)

    def macs(self) -> tuple[MacUnit, ...]:
        """The MAC units of all products, in any layer at any step."""
        return tuple(dict.fromkeys(part.mac_of(phase) for part in self.variants() for phase in PRODUCT_PHASES))

    @property
    def computes_vectors(self) -> bool:
        """Whether vector ops, and so the loss, are rounded or computed step by step, in any layer at any step."""
        return any(
            part.vector != "float32" or part.has_steps("activation") or part.has_steps("error")
            for part in self.variants()
        )

    @property
    def has_formats_by_role(self) -> bool:
        """Whether no product has formats of its own: each role has one format in all of them."""
        return all(getattr(self.product(phase), role) is None for phase in PRODUCT_PHASES for role in _OPERAND_ROLES)

    @property
    def delays_scales(self) -> bool:
        """Whether any tensor has a scale that follows from earlier passes."""
        return any(
            role_format.amax_history is not None
            for part in self.variants()
            for role in ROLES
            for role_format in (part.format_of(role), *(part.operand(role, phase) for phase in PRODUCT_PHASES))
        )

    def is_stochastic(self, roles: Iterable[Role] = ROLES) -> bool:
        """Whether any layer draws random numbers, at any step, to round these roles or its sums."""
        chosen = tuple(roles)
        return any(
            any(part.format_of(role).is_stochastic for role in chosen)
            or any(part.operand(role, product).is_stochastic for role in chosen for product in PRODUCT_PHASES)
            or any(part.mac_of(phase).is_stochastic for phase in PHASES)
            for part in self.variants()
        )

    def remarks(self) -> tuple[str, ...]:
        """Sentences on formats that do not keep what their rounding promises, in any layer at any step.

        >>> print(*Numerics(error=RoleFormat(parse("mxfp4"), "stochastic")).remarks())  # doctest: +ELLIPSIS
        error mxfp4 (stochastic) is biased toward zero: its scales clip ...; those of mxfp4(scale=ceil) do not
        """
        clipped: dict[str, None] = {}
        for part in self.variants():
            for role in ROLES:
                for role_format in (part.format_of(role), *(part.operand(role, phase) for phase in PRODUCT_PHASES)):
                    better = role_format.format.unclipped
                    if better is not None and role_format.is_stochastic:
                        words = "is biased toward zero: its scales clip the largest numbers of a block"
                        clipped[f"{role} {role_format} {words}; those of {short_name(better)} do not"] = None
        return tuple(clipped)

    def in_force(self, layer: str, step: int = 0, ends: Ends = Ends()) -> "Numerics":
        """The numerics of one layer at one step, with no overrides left. Emulation and simulation both ask here.

        >>> half = RoleFormat(parse("bfloat16"))
        >>> numerics = Numerics(schedule=(Change(layers="fc", from_step=100, weight=half),))
        >>> [str(numerics.in_force("fc", step).weight) for step in (99, 100)]
        ['float32', 'bfloat16']
        """
        if self.is_uniform:
            return self
        active: list[Override] = [*self.overrides, *(change for change in self.schedule if change.from_step <= step)]
        in_force = replace(self, overrides=(), schedule=())
        for override in active:
            if override.matches(layer, ends):
                in_force = in_force.changed(override.changes())
        return in_force

    def resolve(self, role: Role, layer: str, step: int = 0, ends: Ends = Ends()) -> RoleFormat:
        """The format of `role` in `layer` at `step`."""
        return self.in_force(layer, step, ends).format_of(role)

    def stage(self, step: int) -> int:
        """The step from which the numerics of `step` have been in force: that of the last change which has begun."""
        return max((change.from_step for change in self.schedule if change.from_step <= step), default=0)

    def check_layers(self, layers: Iterable[str], ends: Ends = Ends()) -> None:
        """Every pattern must match a layer of the model.

        Raises:
            ConfigError: one matches none; the message lists near names.
        """
        if self.is_uniform:
            return
        names = list(layers)
        for entry in (*self.overrides, *self.schedule):
            if not any(entry.matches(name, ends) for name in names):
                raise unmatched_pattern("numerics", entry.layers, names)

    def make_operators(self) -> tuple[Operator, ...]:
        """The operators that replace functions."""
        return () if self.operators is None else self.operators.make()

    def format_of(self, role: Role) -> RoleFormat:
        """The format of `role`."""
        chosen: RoleFormat = getattr(self, role)
        return chosen

    def product(self, phase: Phase) -> ProductNumerics:
        """The numerics of a product's own; those of an update's products are empty."""
        own: ProductNumerics = getattr(self, phase, _NOTHING)
        return own

    def operand(self, role: Role, phase: Phase) -> RoleFormat:
        """The format of `role` as an operand of a product."""
        own: RoleFormat | None = getattr(self.product(phase), role, None)
        return self.format_of(role) if own is None else own

    def mac_of(self, phase: Phase) -> MacUnit:
        """The MAC unit of a product."""
        return self.product(phase).mac or self.mac

    def unit_of(self, phase: Phase, left: Role, right: Role) -> MacUnit:
        """The MAC unit of a product whose factors have these roles."""
        mac = self.mac_of(phase)
        if self.sums == "float32" or not mac.is_float32:
            return mac
        try:
            return tensor_core(self.operand(left, phase).format, self.operand(right, phase).format)
        except FormatError:
            return mac

    def formats_differing(self, other: "Numerics") -> dict[tuple[Role, ProductPhase | None], RoleFormat]:
        """The roles whose format is another than in `other`, and the operands that then have a format of their own."""
        roles = {role: self.format_of(role) for role in ROLES if self.format_of(role) != other.format_of(role)}
        differing: dict[tuple[Role, ProductPhase | None], RoleFormat] = {(role, None): roles[role] for role in roles}
        for product in PRODUCT_PHASES:
            for role in _OPERAND_ROLES:
                mine = self.operand(role, product)
                if mine != (roles[role] if role in roles else other.operand(role, product)):
                    differing[role, product] = mine
        return differing


_OPERAND_ROLES: tuple[Role, ...] = ("weight", "activation", "error")
_NOTHING = ProductNumerics()


def unmatched_pattern(where: str, pattern: str, layers: Sequence[str]) -> ConfigError:
    """The error for a pattern that matches none of a model's layers, with the names near it."""
    near = get_close_matches(pattern, layers, n=5, cutoff=0.4) or [name for name in layers if name][:5]
    listing = ", ".join(f'"{name}"' for name in near if name)
    if not listing:
        return ConfigError(f'{where}: the pattern "{pattern}" matches no layer; the model is one layer, named "*"')
    return ConfigError(f'{where}: the pattern "{pattern}" matches none of the {len(layers)} layers; near it: {listing}')


def decode_format(kind: type, value: Any) -> Any:
    """A number format from its spelling in a file; the hook that `decode` takes."""
    if kind is Format:
        if not isinstance(value, str):
            raise ConfigError(f'given {value!r}, expected the spelling of a number format, as in "bfloat16"')
        return parse(value)
    if kind is VectorUnit:
        return parse_unit(value)
    raise TypeError(f"no rule to read a {kind.__name__}")
