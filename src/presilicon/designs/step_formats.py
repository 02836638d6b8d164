"""Formats in force in a training step, by layer and role, and the bytes of tensors in them."""

from presilicon.designs.numerics import Numerics, RoleFormat
from presilicon.formats import Format, parse
from presilicon.records import Ends, Phase, Role, StepFacts, StepGraph, TensorRef


class StepFormats:
    """Formats of a step by layer and role: those of the step's facts, or else of the design's numerics."""

    def __init__(self, numerics: Numerics, facts: StepFacts, graph: StepGraph | None = None) -> None:
        self._numerics = numerics
        self._step = facts.numerics_step
        self._ends = Ends() if graph is None else graph.ends
        ops = () if graph is None or numerics.is_uniform else graph.ops
        self._weighted = () if graph is None else graph.weighted_layers
        self._layers = tuple(dict.fromkeys(op.layer for op in ops))
        self._bits: dict[tuple[str, Role, Phase | None], float] = {}
        self._in_force: dict[str, Numerics] = {}
        self._special: dict[tuple[str, Role, Phase | None], RoleFormat] = {
            (fact.layer, fact.role, fact.product): RoleFormat(parse(fact.format), stored_bits=fact.stored_bits)
            for fact in facts.layers
            if fact.format
        }
        self._densities = {(fact.layer, fact.role): fact.density for fact in facts.layers if fact.density is not None}
        self._products: dict[tuple[str, Phase, str], float] = {
            (fact.layer, fact.product, fact.zeros): fact.share for fact in facts.products
        }
        self.copied_bits = {} if graph is None else self._find_copies(graph)

    def numerics_of(self, layer: str) -> Numerics:
        """The numerics of a layer, with overrides and the changes of a schedule that have begun."""
        if self._numerics.is_uniform:
            return self._numerics
        if layer not in self._in_force:
            self._in_force[layer] = self._numerics.in_force(layer, self._step, self._ends)
        return self._in_force[layer]

    def format_of(self, role: Role, layer: str, phase: Phase | None = None) -> Format:
        """The format of `role` in `layer`, as an operand of the product of `phase` if one is named."""
        return self._chosen(role, layer, phase).format

    @property
    def is_same_in_all_layers(self) -> bool:
        """Whether equal ops of different layers have equal formats and densities."""
        return self._numerics.is_uniform and not (
            self._special or self._densities or self._products or self.copied_bits
        )

    def density_of(self, role: Role, layer: str) -> float:
        """The measured share of elements of `role` in `layer` that are not zero; 1 where nothing was measured."""
        return self._densities.get((layer, role), 1.0)

    def product_share(self, layer: str, phase: Phase, zeros: str) -> float | None:
        """Cycles (or multiplications) of a product over those with zeros computed; None if nobody has measured them."""
        return self._products.get((layer, phase, zeros))

    def bytes_of(self, tensor: TensorRef, layer: str, phase: Phase | None = None) -> float:
        """Bytes of a tensor in memory, as an op of `layer` sees it, or the product of `phase` if one is named."""
        return tensor.elements * self.bits_of(layer, tensor.role, phase) / 8

    def bits_of(self, layer: str, role: Role, phase: Phase | None = None) -> float:
        """Bits of an element in memory, as an op of `layer` sees it, or the product of `phase` if one is named."""
        key = (layer, role, phase)
        bits = self._bits.get(key)
        if bits is None:
            bits = self._bits[key] = self._chosen(role, layer, phase).bits_per_element
        return bits

    def written_bytes(self, tensor: TensorRef, layer: str) -> float:
        """Bytes that storing a tensor takes: several copies if products use it in other formats, or other blocks."""
        bits = self.copied_bits.get(tensor.id)
        return self.bytes_of(tensor, layer) if bits is None else tensor.elements * bits / 8

    def _find_copies(self, graph: StepGraph) -> dict[int, float]:
        """Bits of an element of storages that products do not use in the one format of their role.

        Products that use a tensor in different formats, or in blocks along different axes, have copies of their own.
        """
        operands: tuple[Role, ...] = ("weight", "activation", "error")
        if (
            self._numerics.is_uniform
            and not self._special
            and self._numerics.has_formats_by_role
            and not any(self._numerics.format_of(role).format.is_oriented for role in operands)
        ):
            return {}
        copies: dict[int, dict[tuple[RoleFormat, Phase | None], float]] = {}
        single: dict[int, float] = {}
        for op in graph.ops:
            if op.gemm is None:
                continue
            regroups = self.numerics_of(op.layer).grouping == "per-product"
            for tensor in op.inputs[:2]:
                chosen = self._chosen(tensor.role, op.layer, op.phase)
                axis = op.phase if regroups and chosen.format.is_oriented else None
                copies.setdefault(tensor.id, {})[chosen, axis] = chosen.bits_per_element
                if chosen != self._chosen(tensor.role, op.layer):
                    single[tensor.id] = chosen.bits_per_element
        several = {storage: sum(bits.values()) for storage, bits in copies.items() if len(bits) > 1}
        return single | several

    def _chosen(self, role: Role, layer: str, phase: Phase | None = None) -> RoleFormat:
        special = self._special.get((layer, role, phase)) or self._special.get((layer, role, None))
        if special is not None:
            return special
        numerics = self.numerics_of(layer)
        return numerics.format_of(role) if phase is None else numerics.operand(role, phase)

    @property
    def copies_weights(self) -> bool:
        """Whether products use a rounded copy of the master weights, in any layer.

        Weights with `stored_bits` have no copy: they are rounded on their way to the multiplier.
        """
        if self._special:
            pairs = [(self._chosen("weight", layer), self._chosen("master", layer)) for layer in self._weighted]
            return any(weight.stored_bits is None and weight.format != master.format for weight, master in pairs)
        return any(
            weight.stored_bits is None and weight.format != numerics.master.format
            for numerics in (self._numerics, *map(self.numerics_of, self._layers))
            for weight in (numerics.weight,)
        )
