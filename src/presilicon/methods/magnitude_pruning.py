"""Gradual magnitude pruning (Zhu and Gupta, "To prune, or not to prune", arXiv 1710.01878).

The sparsity of each layer follows s(t) = s_f - s_f (1 - (t - t_0) / (t_1 - t_0))^3 from step t_0 to t_1, raised every
few steps; the smallest weights of the layer are set to zero and stay there. The cubic course is the source's; the
steps and the final sparsity are our defaults, for the small workloads of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, torch
from presilicon.designs import AttachedMethod, Capture, Method, Proceed, TrainingRun, TrainingStep
from presilicon.methods.layers import (
    by_reduction,
    density_facts,
    op_after,
    packed_facts,
    structured_facts,
    updated_weights,
)
from presilicon.records import MethodFact, ProductFact, StepFacts, StepGraph
from presilicon.simulation import parse_pattern
from presilicon.workloads import ends_of

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "magnitude-pruning"


class MagnitudePruning(
    Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="magnitude-pruning"
):
    """Sets the smallest weights of each layer to zero, more of them as training proceeds."""

    in_training = "a growing share of each layer's weights is zero and stays so"
    in_hardware = "densities for machines that skip zeros; masking after each update, selection when pruning"

    sparsity: Annotated[float, Meta(gt=0, lt=1)] = 0.8
    """Share of zeros in each layer at the end."""
    begin: Annotated[int, Meta(ge=0)] = 50
    """Step after which weights are first pruned."""
    end: Annotated[int, Meta(ge=1)] = 200
    """Step from which the final sparsity holds."""
    every: Annotated[int, Meta(ge=1)] = 10
    """Steps between two prunings."""
    dense_last: bool = True
    """Whether the last layer stays dense."""
    pattern: str | None = None
    """N:M, as "2:4": the N largest of each M neighbours along the reduction stay, from the first pruning on, in place
    of a share that grows to `sparsity`."""
    columns: Annotated[int, Meta(ge=1, le=1 << 16)] = 16
    """Columns of cells that share a tile of weights, on a machine that skips zero weights."""

    def check(self) -> None:
        """Pruning must end after it begins."""
        if self.pattern is not None:
            parse_pattern(self.pattern)
        if self.end <= self.begin:
            raise ConfigError(f"end must be above begin = {self.begin}, not {self.end}")

    def sparsity_at(self, step: int) -> float:
        """The share of zeros after a step.

        >>> [round(MagnitudePruning(sparsity=0.8, begin=0, end=100).sparsity_at(step), 3) for step in (0, 50, 100)]
        [0.0, 0.7, 0.8]
        """
        progress = min(max((step - self.begin) / (self.end - self.begin), 0.0), 1.0)
        return self.sparsity * (1 - (1 - progress) ** 3)

    def is_due(self, step: int) -> bool:
        """Whether weights are pruned after a step."""
        return step == self.end or (self.begin <= step < self.end and (step - self.begin) % self.every == 0)

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `_Pruning`."""
        # Layers that share a weight are all pruned, and all stay dense if one of them is the last.
        weights = {
            name.rpartition(".")[0]: parameter
            for name, parameter in training.model.named_parameters(remove_duplicate=False)
            if parameter.dim() >= 2 and name.rpartition(".")[2] == "weight" and parameter.requires_grad
        }
        if self.dense_last:
            last = ends_of(training.model).last
            dense = {id(weight) for layer, weight in weights.items() if f"{layer}.".startswith(f"{last}.")}
            weights = {layer: weight for layer, weight in weights.items() if id(weight) not in dense}
        if not weights:
            raise ConfigError(
                f"methods: {NAME} finds no weights to prune: the model has no matrix of weights"
                + (" but the last; set dense_last = false" if self.dense_last else "")
            )
        return _Pruning(self, weights)

    def rewrite(self, graph: StepGraph, facts: StepFacts, capture: Capture) -> StepGraph:
        """The mask is applied to the master weights after each update; where masks change, weights are ranked first."""
        pruned = {fact.layer for fact in facts.methods if fact.method == NAME and fact.name == "masked"}
        ranked = any(fact.method == NAME and fact.name == "ranked" for fact in facts.methods)
        ops = list(graph.ops)
        for master, update in updated_weights(graph, pruned):
            if ranked:
                ops.append(op_after(update, len(ops), "rank", "reduction", master))
            ops.append(op_after(update, len(ops), "mask", "elementwise", master))
        return replace(graph, ops=tuple(ops))


class _Pruning(AttachedMethod):
    """The mask of each layer."""

    def __init__(self, parameters: MagnitudePruning, weights: dict[str, nn.Parameter]) -> None:
        self._parameters, self._weights = parameters, weights
        self._masks: dict[str, Tensor] = {}
        self._is_due = self._has_ranked = False
        self._products: tuple[ProductFact, ...] | None = None

    def step(self, step: TrainingStep, proceed: Proceed) -> None:
        """Note that weights are to be pruned; if the update of the step is skipped, they are after the next one."""
        self._is_due |= self._parameters.is_due(step.number)
        self._has_ranked = False
        proceed()

    def update(self, step: TrainingStep, proceed: Proceed) -> None:
        """Set what was pruned to zero again after the update, and prune more if that is due."""
        proceed()
        with torch.no_grad():
            self._apply_masks()
            if self._is_due:
                self._choose(self._parameters.sparsity_at(step.number))
                self._apply_masks()
                self._is_due, self._has_ranked = False, True

    def _apply_masks(self) -> None:
        for layer, mask in self._masks.items():
            self._weights[layer].mul_(mask)

    def _choose(self, sparsity: float) -> None:
        """Keep the largest weights of each layer, or of each group of a pattern; ties go to the first."""
        self._products = None
        for layer, weight in self._weights.items():
            if self._parameters.pattern is not None:
                self._masks[layer] = _structured_mask(weight, self._parameters.pattern)
                continue
            flat = weight.detach().abs().flatten()
            kept = flat.numel() - int(sparsity * flat.numel())
            mask = flat.new_zeros(flat.numel())
            mask[flat.argsort(descending=True, stable=True)[:kept]] = 1
            self._masks[layer] = mask.view_as(weight)

    def facts(self, step: TrainingStep, facts: StepFacts) -> StepFacts:
        """The measured share of weights that are not zero, in each pruned layer."""
        if not self._masks:
            return facts
        measured = density_facts({layer: self._weights[layer] for layer in self._masks})
        updated = () if facts.update_skipped else self._masks
        own = [MethodFact(method=NAME, name="masked", value=True, layer=layer) for layer in updated]
        if self._has_ranked:
            own.append(MethodFact(method=NAME, name="ranked", value=True))
        if self._products is None:  # until weights are pruned again, the same ones are zero
            pattern, columns = self._parameters.pattern, self._parameters.columns
            masked = {layer: self._weights[layer] for layer in self._masks}
            structured = () if pattern is None else structured_facts(masked, pattern)
            self._products = (*packed_facts(masked, columns, balanced=False), *structured)
        return replace(
            facts,
            layers=(*facts.layers, *measured),
            products=(*facts.products, *self._products),
            methods=(*facts.methods, *own),
        )

    def state_dict(self) -> dict[str, Any]:
        """The mask of each layer, and whether weights are still to be pruned."""
        return {"masks": dict(self._masks), "due": self._is_due}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the masks."""
        for layer, mask in state["masks"].items():
            if mask.shape != self._weights[layer].shape:
                raise ValueError(f"the mask of {layer} has the shape {tuple(mask.shape)}")
            self._masks[layer] = mask.to(self._weights[layer].device)
        self._is_due = bool(state["due"])
        self._products = None


def _structured_mask(weight: Tensor, pattern: str) -> Tensor:
    """The mask of a layer in the shape and type of its weights."""
    from presilicon.simulation import keep_largest

    outputs, inputs, *kernel = weight.shape
    mask = torch.from_numpy(keep_largest(by_reduction(weight), pattern)).t().reshape(outputs, *kernel, inputs)
    return mask.movedim(-1, 1).to(weight)
