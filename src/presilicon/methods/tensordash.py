"""TensorDash (Mahmoud et al., MICRO 2020, arXiv 2009.00748): hardware that skips the zeros that training makes.

Training itself does not change. In some steps the operands of each layer's three products are looked at after their
rounding, and the lanes of `simulation.sparsity` are simulated on samples of their dot products; the cycles found hold
until the next look. Lookahead, lookaside and the multiplexer are the source's; the order in which lanes choose, the
number of samples and the steps between two looks are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import AttachedMethod, Design, Method, Proceed, TrainingRun, TrainingStep
from presilicon.formats import quantize
from presilicon.methods.layers import product_layers
from presilicon.records import PRODUCT_PHASES, ProductFact, ProductPhase, Role, StepFacts

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

NAME = "tensordash"
_PICTURES = 4
"""Pictures of a batch whose patches are looked at."""


class TensorDash(
    Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="tensordash"
):
    """Skips multiplications by zero, in the order in which operands come."""

    in_training = "nothing; the zeros of operands are looked at"
    in_hardware = "cycles of each product from its zeros, on a machine that skips pairs"

    every: Annotated[int, Meta(ge=1)] = 50
    """Steps between two looks."""
    samples: Annotated[int, Meta(ge=1, le=1 << 20)] = 64
    """Dot products of each product that are simulated."""

    def check_design(self, design: Design) -> None:
        """The machine must have the lanes."""
        if not getattr(design.machine, "skips_zero_pairs", False):
            raise ConfigError(
                f"methods: {NAME} simulates lanes that skip pairs with a zero, which this machine does not have: set "
                "machine.skips_zero_pairs = true on a systolic machine"
            )

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `_Looking`."""
        layers = product_layers(training.model)
        if not layers:
            raise ConfigError(f"methods: {NAME} finds no linear or convolution layer to look at")
        return _Looking(self, training, layers)


class _Looking(AttachedMethod):
    """The cycles of each product at the last look."""

    def __init__(self, parameters: TensorDash, training: TrainingRun, layers: dict[str, nn.Module]) -> None:
        self._parameters, self._training, self._layers = parameters, training, layers
        self._cycles: dict[tuple[str, ProductPhase], float] = {}
        self._inputs: dict[str, Tensor] = {}
        self._generator: Generator | None = None
        for name, layer in layers.items():
            layer.register_forward_hook(lambda module, inputs, output, name=name: self._look(name, inputs[0], output))

    def step(self, step: TrainingStep, proceed: Proceed) -> None:
        """Look at the operands of the step, if that is due."""
        is_due = step.number % self._parameters.every == 0
        self._generator = self._training.generator(step, NAME) if is_due else None
        proceed()
        self._generator = None

    def _look(self, layer: str, x: Tensor, output: Tensor) -> None:
        if self._generator is not None and output.requires_grad:
            x = self._nonzero(x, "activation")
            output.register_hook(lambda error: self._measure(layer, x, self._nonzero(error, "error")))

    def _nonzero(self, x: Tensor, role: Role) -> Tensor:
        """Where an operand is not zero, in its format."""
        return quantize(x.detach(), self._training.numerics.format_of(role).format) != 0

    def _measure(self, layer: str, x: Tensor, error: Tensor) -> None:
        from presilicon.simulation import LANES, lane_cycles

        if self._generator is None:
            return
        module = self._layers[layer]
        weight = self._nonzero(module.get_parameter("weight"), "weight")
        streams = _streams(module, x, weight, error, self._parameters.samples, self._generator)
        for phase in PRODUCT_PHASES:
            pairs = streams[phase]
            rows = pairs.shape[1] // LANES
            if rows == 0:  # shorter than the lanes: nothing can be skipped
                self._cycles[layer, phase] = 1.0
                continue
            lines = pairs[:, : rows * LANES].reshape(len(pairs), rows, LANES).cpu().numpy()
            self._cycles[layer, phase] = sum(lane_cycles(line) for line in lines) / (len(lines) * rows)

    def facts(self, step: TrainingStep, facts: StepFacts) -> StepFacts:
        """The cycles of each product, over those without skipping."""
        own = (ProductFact(layer=layer, product=phase, cycles=share) for (layer, phase), share in self._cycles.items())
        return replace(facts, products=(*facts.products, *own))

    def state_dict(self) -> dict[str, Any]:
        """The cycles at the last look."""
        return {"cycles": [[layer, phase, share] for (layer, phase), share in self._cycles.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self._cycles = {(layer, phase): float(share) for layer, phase, share in state["cycles"]}


def _streams(
    module: nn.Module, x: Tensor, weight: Tensor, error: Tensor, samples: int, generator: Generator
) -> dict[ProductPhase, Tensor]:
    """Samples of the dot products of each phase: True for pairs to multiply.

    Those of an input gradient of a convolution take the errors around a position, as they lie for a step of 1.
    """
    import torch

    if weight.dim() == 2:
        patches, near, errors = x.flatten(0, -2), error.flatten(0, -2), error.flatten(0, -2)
        forward_weights, backward_weights = weight, weight.t()
    else:
        patches, errors = _patches(module, x[:_PICTURES]), error[:_PICTURES].flatten(2).transpose(1, 2).flatten(0, 1)
        near = _neighbourhoods(error[:_PICTURES], weight.shape[2:])
        groups = getattr(module, "groups", 1)
        part = weight.shape[0] // groups
        patches = patches[:, : patches.shape[1] // groups]  # of the first group, for all of them
        errors, weight = errors[:, :part], weight[:part]
        near = near.view(len(near), -1, weight[0, 0].numel())[:, :part].flatten(1)
        forward_weights, backward_weights = weight.flatten(1), weight.flatten(2).transpose(0, 1).flatten(1)

    def pick(matrix: Tensor) -> Tensor:
        return matrix[torch.randint(len(matrix), (samples,), generator=generator).to(matrix.device)]

    return {
        "forward": pick(patches) & pick(forward_weights),
        "input_grad": pick(near) & pick(backward_weights),
        "weight_grad": pick(patches.t()) & pick(errors.t()),
    }


def _patches(module: Any, x: Tensor) -> Tensor:
    """(positions, channels by kernel) of a convolution of any number of axes."""
    from presilicon.formats import Patches

    ones = (1,) * len(module.kernel_size)
    sizes = zip(x.shape[2:], module.kernel_size, module.stride, module.padding, module.dilation, strict=True)
    positions = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    patches = Patches(
        x.float(), module.kernel_size, positions, module.stride, module.padding, module.dilation, ones
    ).dense()[0]
    channels = x.shape[1]
    return patches.view(len(patches), -1, channels).transpose(1, 2).flatten(1) != 0


def _neighbourhoods(error: Tensor, kernel: Any) -> Tensor:
    """(positions, channels by kernel) of the errors around each position."""
    from presilicon.formats import Patches

    ones = (1,) * len(kernel)
    padding = tuple((size - 1) // 2 for size in kernel)
    patches = Patches(error.float(), tuple(kernel), tuple(error.shape[2:]), ones, padding, ones, ones).dense()[0]
    return patches.view(len(patches), -1, error.shape[1]).transpose(1, 2).flatten(1) != 0
