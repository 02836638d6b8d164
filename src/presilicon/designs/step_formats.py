"""Formats in force in a training step, by layer and role, and the bytes of tensors in them."""

from presilicon.designs.numerics import Numerics, RoleFormat
from presilicon.formats import Format, parse
from presilicon.records import Ends, Role, StepFacts, StepGraph, TensorRef


class StepFormats:
    """Formats of a step by layer and role: those of the step's facts, or else of the design's numerics."""

    def __init__(self, numerics: Numerics, facts: StepFacts, graph: StepGraph | None = None) -> None:
        self._numerics = numerics
        self._ends = Ends() if graph is None else graph.ends
        ops = () if graph is None or numerics.is_uniform else graph.ops
        self._weighted = () if graph is None else graph.weighted_layers
        self._layers = tuple(dict.fromkeys(op.layer for op in ops))
        self._bits: dict[tuple[str, Role], float] = {}
        self._in_force: dict[str, Numerics] = {}
        self._special = {
            (fact.layer, fact.role): RoleFormat(parse(fact.format), stored_bits=fact.stored_bits)
            for fact in facts.layers
            if fact.format
        }
        self._densities = {(fact.layer, fact.role): fact.density for fact in facts.layers if fact.density is not None}
        self._doubled = frozenset[int]() if graph is None else self._find_doubled(graph)

    def numerics_of(self, layer: str) -> Numerics:
        """The numerics with which a layer begins, overrides applied; a schedule's later changes come as facts."""
        if self._numerics.is_uniform:
            return self._numerics
        if layer not in self._in_force:
            self._in_force[layer] = self._numerics.in_force(layer, 0, self._ends)
        return self._in_force[layer]

    def format_of(self, role: Role, layer: str) -> Format:
        """The format of `role` in `layer`."""
        return self._chosen(role, layer).format

    def density_of(self, role: Role, layer: str) -> float:
        """The measured share of elements of `role` in `layer` that are not zero; 1 where nothing was measured."""
        return self._densities.get((layer, role), 1.0)

    def bytes_of(self, tensor: TensorRef, layer: str) -> float:
        """Bytes of a tensor in memory, as an op of `layer` sees it."""
        key = (layer, tensor.role)
        if key not in self._bits:
            self._bits[key] = self._chosen(tensor.role, layer).bits_per_element
        return tensor.elements * self._bits[key] / 8

    def written_bytes(self, tensor: TensorRef, layer: str) -> float:
        """Bytes that storing a tensor takes: two copies if products use it in blocks along two axes."""
        return self.bytes_of(tensor, layer) * (2 if tensor.id in self._doubled else 1)

    def _find_doubled(self, graph: StepGraph) -> frozenset[int]:
        """Storages that two products use with blocks along different axes, so that each has its own copy."""
        if (
            self._numerics.is_uniform
            and not self._special
            and not any(self._numerics.format_of(role).format.is_oriented for role in ("weight", "activation", "error"))
        ):
            return frozenset()
        first_phase: dict[int, str] = {}
        doubled: set[int] = set()
        for op in graph.ops:
            if op.gemm is None or self.numerics_of(op.layer).grouping != "per-product":
                continue
            for tensor in op.inputs[:2]:
                is_oriented = self.format_of(tensor.role, op.layer).is_oriented
                if is_oriented and first_phase.setdefault(tensor.id, op.phase) != op.phase:
                    doubled.add(tensor.id)
        return frozenset(doubled)

    def _chosen(self, role: Role, layer: str) -> RoleFormat:
        return self._special.get((layer, role)) or self.numerics_of(layer).format_of(role)

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
