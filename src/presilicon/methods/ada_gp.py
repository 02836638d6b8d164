"""ADA-GP (Janfaza et al., "ADA-GP: Accelerating DNN Training By Adaptive Gradient Prediction", MICRO 2023).

A small network predicts the weight gradients of each layer from the layer's own outputs. After a warm-up of usual
backpropagation, steps with predicted gradients, which have no backward pass and keep no activations, alternate with
usual ones, which also train the predictor; fewer are predicted as training proceeds. Output channels are the batch of
the predictor, so that one predictor serves layers of all sizes; it returns a row of the weight gradient for each
channel. The alternation, the reorganization and the ratios are the source's; the lengths in steps, the sizes of the
predictor and its scales (it predicts gradients in units of their running root mean square) are ours. Parameters other
than the weights of linear and convolution layers are not updated in predicted steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, torch
from presilicon.designs import AttachedMethod, Capture, Design, Method, Proceed, TrainingRun, TrainingStep
from presilicon.methods.layers import channel_axis, in_batch, look_at, product_layers
from presilicon.records import Gemm, MethodFact, Op, Phase, Role, StepFacts, StepGraph, TensorRef

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "ada-gp"
_ADAM: tuple[Role, ...] = ("gradient", "state", "state")
_AVERAGED = 0.9
"""Weight of the past in running averages."""


class AdaGp(Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="ada-gp"):
    """Predicts weight gradients in most steps, instead of backpropagating."""

    in_training = "predicted weight gradients in most steps"
    in_hardware = "no backward pass and no kept activations in those steps; the predictor's products in all"

    warmup: Annotated[int, Meta(ge=1)] = 100
    """Steps of backpropagation before the first prediction."""
    ratios: tuple[Annotated[int, Meta(ge=1, le=1000)], ...] = (4, 3, 2, 1)
    """Predicted steps for each usual one, in stage after stage; the last ratio holds to the end."""
    stage: Annotated[int, Meta(ge=1)] = 100
    """Steps of a stage."""
    features: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Numbers of a channel that the predictor sees."""
    hidden: Annotated[int, Meta(ge=1, le=65536)] = 64
    """Width of its two hidden layers."""
    learning_rate: Annotated[float, Meta(gt=0, le=1)] = 3e-3
    """Of the predictor, which Adam trains."""
    source: Literal["predictor", "zeros", "random"] = "predictor"
    """Gradients of predicted steps. `zeros` and `random` (normal, of the size of true ones) are controls: a result that
    they reach too is one of the usual steps alone."""

    def check(self) -> None:
        """There must be a ratio."""
        if not self.ratios:
            raise ConfigError("ratios must have at least one number, as in ratios = [4, 3, 2, 1]")

    def check_design(self, design: Design) -> None:
        """A prediction is one for a whole batch."""
        if design.machine.update_rule.per_sample:
            raise ConfigError(
                "methods: ada-gp predicts the gradient of a batch, but this machine updates after every sample; choose "
                "another machine or schedule"
            )

    def is_predicted(self, step: int) -> bool:
        """Whether a step has predicted gradients.

        >>> "".join("GB"[not AdaGp(warmup=2, ratios=(3, 1), stage=4).is_predicted(step)] for step in range(12))
        'BBGGGBGBGBGB'
        """
        place = step - self.warmup
        if place < 0:
            return False
        ratio = self.ratios[min(place // self.stage, len(self.ratios) - 1)]
        return (place % self.stage) % (ratio + 1) < ratio

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `_Predicting`."""
        layers = product_layers(training.model)
        if not layers:
            raise ConfigError(f"methods: {NAME} finds no linear or convolution layer whose gradients it could predict")
        return _Predicting(self, training, layers)

    def rewrite(self, graph: StepGraph, facts: StepFacts, capture: Capture) -> StepGraph:
        """Every step runs the predictor; steps of backpropagation also train it."""
        if self.source != "predictor":
            return graph
        parameters = {tensor.id: tensor for tensor in graph.parameters}  # products transpose some
        weights = {
            op.layer: parameters.get(tensor.id, tensor)
            for op in graph.ops
            if op.phase == "forward" and op.gemm is not None
            for tensor in op.inputs[:2]
            if tensor.role == "weight"
        }
        is_trained = not any(fact.method == NAME and fact.name == "predicted" for fact in facts.methods)
        phases: tuple[Phase, ...] = ("forward", "input_grad", "weight_grad") if is_trained else ("forward",)
        ops = list(graph.ops)
        shared = 1 + max(tensor.id for op in ops for tensor in (*op.inputs, *op.outputs))
        next_id = shared + 2
        widest = max((weight.elements // weight.shape[0] for weight in weights.values()), default=0)
        for layer, weight in weights.items():
            channels = weight.shape[0]
            for number, (k, n) in enumerate(self._sizes(weight.elements // channels, len(weights))):
                # All layers share the weights of the predictor, but each has its own part of the last.
                own, next_id = (shared + number, next_id) if number < 2 else (next_id, next_id + 1)
                for phase in phases:
                    if phase == "input_grad" and number == 0:
                        continue  # nothing trains what the predictor reads
                    name = f"{layer}.predictor{number}.{phase}"
                    ops.append(_product(len(ops), name, layer, phase, (channels, k, n), own, next_id))
                    next_id += 2
        if is_trained and weights:
            ops.append(self._update(len(ops), widest, len(weights), next_id))
        return replace(graph, ops=tuple(ops))

    def _update(self, index: int, row: int, layers: int, first_id: int) -> Op:
        """Adam's update of the predictor: its weights and two moments of each."""
        count = sum(k * n for k, n in self._sizes(row, layers))
        weights = TensorRef(first_id, (count,), "master")
        gradients, *moments = (TensorRef(first_id + i, (count,), role) for i, role in enumerate(_ADAM, 1))
        return Op(
            index=index,
            name="predictor.update",
            kind="optimizer",
            operator="presilicon.adam",
            phase="update",
            layer="",
            inputs=(weights, gradients, *moments),
            outputs=(weights, *moments),
            flops=12 * count,
        )

    def _sizes(self, row: int, layers: int) -> Iterator[tuple[int, int]]:
        """Inputs and outputs of the predictor's layers, for rows of a gradient of so many numbers."""
        yield from ((self.features + layers, self.hidden), (self.hidden, self.hidden), (self.hidden, row))


def speedup(predicted: int, usual: int, overhead: float = 0.0) -> float:
    """Time of backpropagation in all steps over the time if `predicted` of `predicted + usual` have no backward pass.

    A backward pass takes as long as two forward passes; `overhead` is the predictor's time over a forward pass's.

    >>> [round(speedup(ratio, 1), 2) for ratio in (4, 3, 2, 1)]
    [2.14, 2.0, 1.8, 1.5]
    """
    return 3 * (predicted + usual) / (predicted * (1 + overhead) + usual * (3 + overhead))


def _product(
    index: int, name: str, layer: str, phase: Phase, sizes: tuple[int, int, int], weight: int, first_id: int
) -> Op:
    """A product of the predictor with (channels, inputs, outputs), in one of its phases."""
    m, k, n = sizes
    if phase == "forward":
        gemm = Gemm(m, k, n)
        a, b = TensorRef(first_id, (m, k), "activation"), TensorRef(weight, (k, n), "weight")
        c = TensorRef(first_id + 1, (m, n), "activation")
    elif phase == "input_grad":
        gemm = Gemm(m, n, k)
        a, b = TensorRef(first_id, (m, n), "error"), TensorRef(weight, (k, n), "weight")
        c = TensorRef(first_id + 1, (m, k), "error")
    else:
        gemm = Gemm(k, m, n)
        a, b = TensorRef(first_id, (m, k), "activation"), TensorRef(first_id + 1, (m, n), "error")
        c = TensorRef(weight, (k, n), "gradient")
    return Op(
        index=index,
        name=name,
        kind="gemm",
        operator="presilicon.predict",
        phase=phase,
        layer=layer,
        inputs=(a, b),
        outputs=(c,),
        flops=gemm.flops,
        gemm=gemm,
    )


class _Predicting(AttachedMethod):
    """The predictor, and the sizes of gradients that it has seen."""

    def __init__(self, parameters: AdaGp, training: TrainingRun, layers: dict[str, nn.Module]) -> None:
        self._parameters, self._training, self._layers = parameters, training, layers
        self._weights = {name: layer.get_parameter("weight") for name, layer in layers.items()}
        self._features: dict[str, Tensor] = {}
        self._sizes = {name: weight.new_zeros(()) for name, weight in self._weights.items()}
        self._cosines: dict[str, float] = {}
        rows = [weight[0].numel() for weight in self._weights.values()]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._predictor = torch.nn.Sequential(
                torch.nn.Linear(parameters.features + len(layers), parameters.hidden),
                torch.nn.ReLU(),
                torch.nn.Linear(parameters.hidden, parameters.hidden),
                torch.nn.ReLU(),
                torch.nn.Linear(parameters.hidden, max(rows)),
            ).to(next(iter(self._weights.values())).device)
        self._optimizer = torch.optim.Adam(self._predictor.parameters(), lr=parameters.learning_rate)
        look_at(layers, self._see)

    def step(self, step: TrainingStep, proceed: Proceed) -> None:
        """A layer that this step does not call has no gradient."""
        self._features.clear()
        proceed()

    def _see(self, layer: str, _: Tensor, output: Tensor) -> None:
        """Keep the few numbers of each output channel that the predictor takes: the mean picture, or the batch."""
        if not self._training.model.training:
            return
        with torch.no_grad():
            axis = channel_axis(self._layers[layer])
            x = in_batch(output.detach(), self._layers[layer]).movedim(axis, 0)
            channels = x.mean(1).flatten(1) if axis == 1 else x.flatten(1)
            self._features[layer] = torch.nn.functional.adaptive_avg_pool1d(channels, self._parameters.features)

    def forward(self, step: TrainingStep, proceed: Proceed) -> None:
        """In a predicted step, no parameter asks for a gradient, so that nothing is kept for a backward pass."""
        if not self._parameters.is_predicted(step.number):
            return proceed()
        trained = [p for p in self._training.model.parameters() if p.requires_grad]
        for parameter in trained:
            parameter.requires_grad_(False)
        try:
            proceed()
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)

    def backward(self, step: TrainingStep, proceed: Proceed) -> None:
        """Predicted gradients in place of the backward pass."""
        if not self._parameters.is_predicted(step.number):
            return proceed()
        scale = step.gradient_scale
        generator = self._training.generator(step, NAME)
        with torch.no_grad():
            for layer, weight in self._weights.items():
                if layer not in self._features:
                    continue
                gradient = self._gradient(layer, generator) * (self._sizes[layer] * scale)
                weight.grad = gradient if weight.grad is None else weight.grad + gradient

    def _gradient(self, layer: str, generator: Any) -> Tensor:
        """A gradient in units of its usual size."""
        weight = self._weights[layer]
        if self._parameters.source == "zeros":
            return torch.zeros_like(weight)
        if self._parameters.source == "random":
            return torch.randn(weight.shape, generator=generator).to(weight.device)
        return self._predict(layer)

    def _predict(self, layer: str) -> Tensor:
        features, weight = self._features[layer], self._weights[layer]
        marks = features.new_zeros(len(features), len(self._weights))
        marks[:, list(self._weights).index(layer)] = 1
        size = features.square().mean().sqrt().clamp(min=1e-12)
        hidden, last, count = self._predictor[:-1], self._predictor[-1], weight[0].numel()
        assert isinstance(last, torch.nn.Linear)
        inner = hidden(torch.cat((features / size, marks), 1))
        rows: Tensor = torch.nn.functional.linear(inner, last.weight[:count], last.bias[:count])
        return rows.reshape(weight.shape)

    def update(self, step: TrainingStep, proceed: Proceed) -> None:
        """Train the predictor on true gradients, before they are used."""
        if not self._parameters.is_predicted(step.number) and self._parameters.source == "predictor":
            self._optimizer.zero_grad()
            losses = []
            for layer, weight in self._weights.items():
                if weight.grad is None or layer not in self._features:
                    continue
                true = weight.grad.detach()
                self._note_size(layer, true)
                predicted = self._predict(layer)
                self._cosines[layer] = float(torch.cosine_similarity(predicted.detach().flatten(), true.flatten(), 0))
                wanted = true / self._sizes[layer].clamp(min=1e-30)
                losses.append((predicted - wanted).square().mean())
            if losses:
                torch.stack(losses).sum().backward()
                self._optimizer.step()
        elif not self._parameters.is_predicted(step.number):
            for layer, weight in self._weights.items():
                if weight.grad is not None:
                    self._note_size(layer, weight.grad.detach())
        proceed()

    def _note_size(self, layer: str, gradient: Tensor) -> None:
        size = gradient.square().mean().sqrt()
        before = self._sizes[layer]
        self._sizes[layer] = size if float(before) == 0 else _AVERAGED * before + (1 - _AVERAGED) * size

    def facts(self, step: TrainingStep, facts: StepFacts) -> StepFacts:
        """Whether the step was predicted."""
        if not self._parameters.is_predicted(step.number):
            return facts
        return replace(facts, methods=(*facts.methods, MethodFact(method=NAME, name="predicted", value=True)))

    @property
    def cosines(self) -> dict[str, float]:
        """Cosines between predicted and true gradients at the last usual step, by layer."""
        return self._cosines

    def state_dict(self) -> dict[str, Any]:
        """The predictor, its optimizer, and the sizes of gradients."""
        return {
            "predictor": self._predictor.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "sizes": dict(self._sizes),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self._predictor.load_state_dict(state["predictor"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._sizes = {name: state["sizes"][name].to(weight.device) for name, weight in self._weights.items()}
