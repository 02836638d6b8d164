"""FAST (Zhang, McDanel and Kung, "FAST: DNN Training Under Variable Precision Block Floating Point", HPCA 2022).

Weights, activations and errors are block floats of a short or a long mantissa. Each tensor takes the long one if that
changes it much: if r(X) = mean |Q_high(X) - Q_low(X)| / mean |Q_low(X)| exceeds alpha - beta i/I - beta l/L at step i
of I in layer l of L, so that mantissas grow along training and along depth. Errors are rounded stochastically. The rule
is the source's. Its constants could not be checked against it; `steps` and `every` are our own, for the small workloads
of this package. A decision holds from the step after the one whose tensors it was made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from presilicon.base import ConfigError
from presilicon.designs import AttachedMethod, Design, Method, Proceed, RoleFormat, TrainingRun, TrainingStep
from presilicon.formats import BlockFloat, quantize
from presilicon.methods.layers import channel_axis, in_batch, look_at, product_layers

if TYPE_CHECKING:
    from torch import Tensor, nn

Policy = Literal["adaptive", "low", "high", "temporal", "temporal-reversed", "layerwise", "layerwise-reversed"]
Decided = Literal["weight", "activation", "error"]


class Fast(Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="fast"):
    """Chooses a short or a long mantissa for each tensor of each layer as training proceeds."""

    in_training = "block floats whose mantissas grow along layers and steps"
    in_hardware = "fewer passes of a multiplier that works slice by slice, and narrower tensors"

    low: Annotated[int, Meta(ge=1, le=8)] = 2
    """Mantissa bits of the short format."""
    high: Annotated[int, Meta(ge=2, le=16)] = 4
    group: Annotated[int, Meta(ge=1, le=4096)] = 16
    """Numbers that share an exponent."""
    exponent: Annotated[int, Meta(ge=2, le=8)] = 8
    """Bits of the shared exponent; the source has 3, within a window below the tensor's largest."""
    alpha: Annotated[float, Meta(ge=0, le=10)] = 0.6
    beta: Annotated[float, Meta(ge=0, le=10)] = 0.3
    steps: Annotated[int, Meta(ge=1)] = 400
    """The I of the rule: the threshold is at its lowest from this step on."""
    every: Annotated[int, Meta(ge=1)] = 10
    """Steps between two decisions."""
    policy: Policy = "adaptive"
    """`adaptive` is the source's rule, and the others its controls: always the low or the high format, the high one in
    the second half of the steps (`temporal`) or of the layers (`layerwise`), or in the first half (`-reversed`)."""

    def check(self) -> None:
        """The long mantissa must be longer."""
        if self.high <= self.low:
            raise ConfigError(f"high must be above low = {self.low}, not {self.high}")

    def check_design(self, design: Design) -> None:
        """The multipliers must gain from short mantissas."""
        if design.machine.kind != "systolic" or design.numerics.mac.slice_bits is None:
            raise ConfigError(
                "methods: fast needs a systolic machine whose multipliers take mantissas slice by slice, because all "
                "others take as long for short ones: set numerics.mac.slice_bits = 2"
            )

    def threshold(self, step: int, depth: float) -> float:
        """The r above which a tensor takes the long mantissa; `depth` is the layer's place from 0 to 1.

        >>> [round(Fast(steps=100).threshold(step, depth), 2) for step, depth in ((0, 0.0), (50, 0.0), (200, 1.0))]
        [0.6, 0.45, 0.0]
        """
        return self.alpha - self.beta * min(step / self.steps, 1.0) - self.beta * depth

    def block(self, bits: int) -> BlockFloat:
        """The format with a mantissa of so many bits."""
        return BlockFloat(mantissa=bits, exponent=self.exponent, group=self.group)

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `_Deciding`."""
        layers = product_layers(training.model)
        if not layers:
            raise ConfigError("methods: fast finds no linear or convolution layer whose formats it could choose")
        return _Deciding(self, training, layers)


class _Deciding(AttachedMethod):
    """Looks at the tensors of some steps, and sets the formats of the next ones."""

    def __init__(self, parameters: Fast, training: TrainingRun, layers: dict[str, nn.Module]) -> None:
        self._parameters, self._training, self._layers = parameters, training, layers
        self._low, self._high = (parameters.block(bits) for bits in (parameters.low, parameters.high))
        last = max(len(layers) - 1, 1)
        self._depths = {name: number / last for number, name in enumerate(layers)}
        self._improvements: dict[tuple[str, Decided], Tensor] = {}
        self._looks = False
        self._next = 0
        for name in layers:
            for role in ("weight", "activation", "error"):
                self._set(name, role, self._is_high_at(0, name))
        look_at(layers, self._look)

    def step(self, step: TrainingStep, proceed: Proceed) -> None:
        """Decide after the step, if that is due."""
        is_due = step.number >= self._next
        self._looks = is_due and self._parameters.policy == "adaptive"
        proceed()
        self._looks = False
        # A step without a backward pass shows no errors; the next one will be looked at.
        if is_due and (self._parameters.policy != "adaptive" or self._improvements):
            self._decide(step.number)
            self._next = step.number + self._parameters.every

    def _look(self, layer: str, x: Tensor, output: Tensor) -> None:
        if not self._looks or not output.requires_grad:
            return
        module = self._layers[layer]
        axis = channel_axis(module)
        self._improvements[layer, "activation"] = self._improvement(in_batch(x, module), axis)
        self._improvements[layer, "weight"] = self._improvement(module.get_parameter("weight"), 1)
        output.register_hook(lambda error: self._see_error(layer, in_batch(error, module), axis))

    def _see_error(self, layer: str, error: Tensor, axis: int) -> None:
        self._improvements[layer, "error"] = self._improvement(error, axis)

    def _improvement(self, x: Tensor, axis: int) -> Tensor:
        """r of a tensor, whose groups lie along the axis that its first product reduces."""
        low, high = (quantize(x.detach(), fmt.along(axis)) for fmt in (self._low, self._high))
        scale = low.abs().mean()
        change = (high - low).abs().mean()
        return change / scale.clamp(min=1e-45)

    def _decide(self, step: int) -> None:
        improvements = {key: float(value) for key, value in self._improvements.items()}
        self._improvements = {}
        for layer, depth in self._depths.items():
            for role in ("weight", "activation", "error"):
                if self._parameters.policy != "adaptive":
                    self._set(layer, role, self._is_high_at(step + 1, layer))
                elif (layer, role) in improvements:
                    threshold = self._parameters.threshold(step + 1, depth)
                    self._set(layer, role, improvements[layer, role] > threshold)

    def _is_high_at(self, step: int, layer: str) -> bool:
        """Whether the policy, other than the adaptive one, has the long mantissa."""
        policy, is_late = self._parameters.policy, step >= self._parameters.steps / 2
        is_deep = self._depths[layer] >= 0.5
        return {
            "high": True,
            "temporal": is_late,
            "temporal-reversed": not is_late,
            "layerwise": is_deep,
            "layerwise-reversed": not is_deep,
        }.get(policy, False)

    def state_dict(self) -> dict[str, Any]:
        """The step of the next decision; the formats are saved with the run."""
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self._next = int(state["next"])

    def _set(self, layer: str, role: Decided, is_high: bool) -> None:
        rounding = "stochastic" if role == "error" else "nearest-even"
        fmt = self._high if is_high else self._low
        self._training.set_format(layer, role, RoleFormat(fmt, rounding=rounding))
