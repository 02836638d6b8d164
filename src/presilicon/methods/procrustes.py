"""Procrustes (Yang et al., MICRO 2020), after DropBack (Golub, Lemieux and Lis, 2018): train few weights all along.

After each update only the weights that have moved farthest from their decayed initial values keep what they learnt; all
others return to d w0, where w0 is the initial weight, which hardware generates again from its seed and never stores,
and d falls by a factor in every step, so that they become zeros. The weights to keep are those whose distance is above
a quantile, which is estimated from the stream of distances instead of by sorting (DUMIQUE). The rule, the decay of 0.9
and one threshold for all layers are the source's; its quantile estimator is not published, and the form and rate here
are ours, and so is `zero_below`: the source lets d w0 underflow, which takes about 1,000 steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, torch
from presilicon.designs import AttachedMethod, Capture, Design, Method, Proceed, TrainingRun, TrainingStep
from presilicon.formats import quantize
from presilicon.methods.layers import density_facts, op_after, packed_facts, product_layers, updated_weights
from presilicon.methods.quantile import QuantileEstimator
from presilicon.records import MethodFact, StepFacts, StepGraph

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "procrustes"


class Procrustes(
    Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="procrustes"
):
    """Tracks a small share of the weights; the others decay to zero."""

    in_training = "few weights are trained; the others decay to zero"
    in_hardware = "densities for machines that skip zeros; selection of tracked weights after each update"

    density: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    """Share of the weights that are tracked."""
    decay: Annotated[float, Meta(gt=0, lt=1)] = 0.9
    """Factor on the initial weights in each step."""
    zero_below: Annotated[float, Meta(ge=0, lt=1)] = 1e-3
    """Initial weights are zero once they have decayed to this share."""
    per_layer: bool = False
    """Whether each layer has a quantile of its own."""
    selection: Annotated[str, Meta(pattern="^(estimate|sort)$")] = "estimate"
    """`sort` keeps exactly the share, and is the estimate's control."""
    rate: Annotated[float, Meta(gt=0, le=0.1)] = 3e-4
    """Relative change of the estimate with each distance."""
    columns: Annotated[int, Meta(ge=1, le=1 << 16)] = 16
    """Columns of cells that share a tile of weights."""
    balanced: bool = True
    """Whether the denser halves of a tile are paired with the sparser ones."""

    def check_design(self, design: Design) -> None:
        """Weights are selected after an update of all of them."""
        if design.machine.update_rule.pipelined:
            raise ConfigError(
                f"methods: {NAME} compares the weights of all layers after an update, but on this machine layers "
                "update at different times; choose another schedule"
            )

    def factor_after(self, step: int) -> float:
        """The d of the initial weights after a step.

        >>> [round(Procrustes().factor_after(step), 4) for step in (0, 1, 64, 65)]
        [0.9, 0.81, 0.0011, 0.0]
        """
        factor = self.decay ** (step + 1)
        return factor if factor >= self.zero_below else 0.0

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `_Tracking`."""
        layers = product_layers(training.model)
        if not layers:
            raise ConfigError(
                f"methods: {NAME} finds no weights to track: the model has no linear or convolution layer"
            )
        weights = {name: layer.get_parameter("weight") for name, layer in layers.items()}
        return _Tracking(self, weights, training)

    def rewrite(self, graph: StepGraph, facts: StepFacts, capture: Capture) -> StepGraph:
        """After each update the distances of weights are compared with the estimate, which they move."""
        tracked = {fact.layer for fact in facts.methods if fact.method == NAME}
        ops = list(graph.ops)
        for master, update in updated_weights(graph, tracked):
            ops.append(op_after(update, len(ops), "track", "elementwise", master, flops=_FLOPS))
        return replace(graph, ops=tuple(ops))


_FLOPS = 5
"""For each weight: an initial weight times d, the distance, a comparison, a change of the estimate, a choice."""


class _Tracking(AttachedMethod):
    """The initial weights, and the estimates of the threshold."""

    def __init__(self, parameters: Procrustes, weights: dict[str, nn.Parameter], training: TrainingRun) -> None:
        self._parameters, self._weights, self._training = parameters, weights, training
        # Hardware generates them again; here they are those of the model before its first step.
        self._initial = {name: weight.detach().clone() for name, weight in weights.items()}
        scopes = list(weights) if parameters.per_layer else [""]
        self._estimators = {scope: QuantileEstimator(1 - parameters.density, parameters.rate) for scope in scopes}

    def update(self, step: TrainingStep, proceed: Proceed) -> None:
        """Return all but the tracked weights to their decayed initial values."""
        proceed()
        factor = self._parameters.factor_after(step.number)
        with torch.no_grad():
            bases = {
                name: quantize(initial * factor, self._training.format_of(name, "master").format)
                for name, initial in self._initial.items()
            }
            moved = {name: (weight - bases[name]).abs() for name, weight in self._weights.items()}
            tracked = self._track(moved)
            for name, weight in self._weights.items():
                weight.copy_(torch.where(tracked[name], weight, bases[name]))
                for state in self._training.optimizer.state.get(weight, {}).values():
                    if isinstance(state, torch.Tensor) and state.shape == weight.shape:
                        state.mul_(tracked[name])  # nothing is stored for the others

    def _track(self, moved: dict[str, Tensor]) -> dict[str, Tensor]:
        """Which weights are tracked."""
        if self._parameters.per_layer:
            return {name: self._choose(name, distances) for name, distances in moved.items()}
        sizes = [distances.numel() for distances in moved.values()]
        chosen = self._choose("", torch.cat([distances.flatten() for distances in moved.values()])).split(sizes)
        return {name: part.view_as(moved[name]) for name, part in zip(moved, chosen, strict=True)}

    def _choose(self, scope: str, distances: Tensor) -> Tensor:
        if self._parameters.selection == "estimate":
            return distances > self._estimators[scope].see(distances)
        kept = max(int(self._parameters.density * distances.numel()), 1)
        chosen = distances.new_zeros(distances.numel())
        chosen[distances.flatten().argsort(descending=True, stable=True)[:kept]] = 1
        return chosen.view_as(distances) > 0

    def facts(self, step: TrainingStep, facts: StepFacts) -> StepFacts:
        """The measured share of weights that are not zero, in each layer."""
        parameters = self._parameters
        updated = () if facts.update_skipped else self._weights
        own = tuple(MethodFact(method=NAME, name="tracked", value=True, layer=layer) for layer in updated)
        return replace(
            facts,
            layers=(*facts.layers, *density_facts(self._weights)),
            products=(*facts.products, *packed_facts(self._weights, parameters.columns, balanced=parameters.balanced)),
            methods=(*facts.methods, *own),
        )

    def state_dict(self) -> dict[str, Any]:
        """The estimates; the initial weights are those of the seed."""
        return {scope or "all": estimator.value for scope, estimator in self._estimators.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the estimates."""
        for scope, estimator in self._estimators.items():
            estimator.value = float(state[scope or "all"])
