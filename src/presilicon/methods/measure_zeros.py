"""The zeros of training, measured: for machines that gate them, or compress operands that have them.

Training itself does not change. In some steps the operands of each layer's three products are looked at after their
rounding; what is found holds until the next look. The number of samples and the steps between two looks are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, torch
from presilicon.designs import AttachedMethod, Design, Method, Proceed, TrainingRun, TrainingStep
from presilicon.formats import quantize
from presilicon.methods.layers import channel_axis, in_batch, look_at, product_layers
from presilicon.records import PRODUCT_PHASES, LayerFact, ProductFact, ProductPhase, Role, StepFacts

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

_PICTURES = 4
"""Pictures of a batch whose patches are looked at."""


class MeasureZeros(
    Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="measure-zeros"
):
    """Measures the zeros of the operands of each product, and of their pairs."""

    in_training = "nothing; the zeros of operands are looked at"
    in_hardware = "densities for machines that gate zeros or compress operands"

    every: Annotated[int, Meta(ge=1)] = 50
    """Steps between two looks."""
    samples: Annotated[int, Meta(ge=1, le=1 << 20)] = 64
    """Dot products of each product that are looked at."""

    def check_design(self, design: Design) -> None:
        """An operand must be the same in all products: it is looked at once, as its role has it."""
        for numerics in design.numerics.variants():
            is_mixed = any(numerics.product(phase).hadamard for phase in PRODUCT_PHASES)
            if is_mixed or not numerics.has_formats_by_role:
                what = "Hadamard transforms" if is_mixed else "formats of single products"
                raise ConfigError(
                    f"methods: {self.member_name} looks at an operand once, in the format of its role, but the "
                    f"numerics have {what}: leave out one of them"
                )

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `Looking`."""
        return Looking(self.member_name, training, self.every, self.samples, zeros="gated", measure=_density)


def _density(pairs: Tensor) -> float:
    return int(pairs.count_nonzero()) / max(pairs.numel(), 1)


class Looking(AttachedMethod):
    """The zeros of each product at the last look.

    `measure` takes samples of the dot products of a product, True for pairs without a zero, and returns their cycles,
    or multiplications, over those with zeros computed.
    """

    def __init__(
        self,
        name: str,
        training: TrainingRun,
        every: int,
        samples: int,
        *,
        zeros: str,
        measure: Callable[[Tensor], float],
    ) -> None:
        layers = product_layers(training.model)
        if not layers:
            raise ConfigError(f"methods: {name} finds no linear or convolution layer to look at")
        self._name, self._training, self._layers = name, training, layers
        self._every, self._samples, self._zeros, self._share_of = every, samples, zeros, measure
        self._shares: dict[tuple[str, ProductPhase], float] = {}
        self._densities: dict[tuple[str, Role], float] = {}
        self._generator: Generator | None = None
        self._next, self._has_looked = 0, False
        look_at(layers, self._look)

    def step(self, step: TrainingStep, proceed: Proceed) -> None:
        """Look at the operands of the step, if that is due; a step without a backward pass shows no errors."""
        is_due = step.number >= self._next
        self._generator = self._training.generator(step, self._name) if is_due else None
        self._has_looked = False
        proceed()
        self._generator = None
        if self._has_looked:
            self._next = step.number + self._every

    def _look(self, layer: str, x: Tensor, output: Tensor) -> None:
        if self._generator is not None and output.requires_grad:
            axis = channel_axis(self._layers[layer])
            x = self._nonzero(x, layer, "activation", axis)
            output.register_hook(lambda error: self._measure(layer, x, self._nonzero(error, layer, "error", axis)))

    def _nonzero(self, x: Tensor, layer: str, role: Role, axis: int) -> Tensor:
        """Where an operand is not zero, in the format that its layer has now, rounded to the nearest."""
        x = in_batch(x.detach(), self._layers[layer])
        return quantize(x, self._training.format_of(layer, role).format.along(axis)) != 0

    def _measure(self, layer: str, x: Tensor, error: Tensor) -> None:
        if self._generator is None:
            return
        self._has_looked = True
        module = self._layers[layer]
        weight = self._nonzero(module.get_parameter("weight"), layer, "weight", 1)
        operands: tuple[tuple[Role, Tensor], ...] = (("activation", x), ("weight", weight), ("error", error))
        for role, operand in operands:
            self._densities[layer, role] = _density(operand)
        streams = _streams(module, x, weight, error, self._samples, self._generator)
        for phase in PRODUCT_PHASES:
            self._shares[layer, phase] = self._share_of(streams[phase])

    def facts(self, step: TrainingStep, facts: StepFacts) -> StepFacts:
        """The share of each product, and the densities of its operands that nobody else has measured."""
        known = {(fact.layer, fact.role) for fact in facts.layers if fact.density is not None}
        densities = (
            LayerFact(layer=layer, role=role, density=density)
            for (layer, role), density in self._densities.items()
            if (layer, role) not in known
        )
        own = (
            ProductFact(layer=layer, product=phase, zeros=self._zeros, share=share)
            for (layer, phase), share in self._shares.items()
        )
        return replace(facts, layers=(*facts.layers, *densities), products=(*facts.products, *own))

    def state_dict(self) -> dict[str, Any]:
        """The zeros at the last look, and the step of the next."""
        shares = [[*key, share] for key, share in self._shares.items()]
        densities = [[*key, density] for key, density in self._densities.items()]
        return {"shares": shares, "densities": densities, "next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self._shares = {(layer, phase): float(share) for layer, phase, share in state["shares"]}
        self._densities = {(layer, role): float(share) for layer, role, share in state["densities"]}
        self._next = int(state["next"])


def _streams(
    module: nn.Module, x: Tensor, weight: Tensor, error: Tensor, samples: int, generator: Generator
) -> dict[ProductPhase, Tensor]:
    """Samples of the dot products of each phase: True for pairs to multiply.

    Of a grouped convolution, one group is looked at. The input gradient of a convolution takes the errors around a
    position; with a step above 1, an input meets so few of them that one error and one element of the kernel stand for
    all.
    """

    def pick(matrix: Tensor) -> Tensor:
        return matrix[torch.randint(len(matrix), (samples,), generator=generator).to(matrix.device)]

    if weight.dim() == 2:
        patches, errors = x.flatten(0, -2), error.flatten(0, -2)
        near, forward_weights, backward_weights = errors, weight, weight.t()
    else:
        groups = getattr(module, "groups", 1)
        group = int(torch.randint(groups, (), generator=generator))
        x, error = (part[:_PICTURES].chunk(groups, 1)[group] for part in (x, error))
        weight = weight.chunk(groups, 0)[group]
        patches, errors = _patches(module, x), error.flatten(2).transpose(1, 2).flatten(0, 1)
        near, backward_weights = errors, weight.transpose(0, 1).flatten(2).transpose(1, 2).flatten(0, 1)
        if all(step == 1 for step in getattr(module, "stride", ())):
            near, backward_weights = (
                _neighbourhoods(error, weight.shape[2:]),
                weight.flatten(2).transpose(0, 1).flatten(1),
            )
        forward_weights = weight.flatten(1)
    return {
        "forward": pick(patches) & pick(forward_weights),
        "input_grad": pick(near) & pick(backward_weights),
        "weight_grad": pick(patches.t()) & pick(errors.t()),
    }


def _patches(module: Any, x: Tensor) -> Tensor:
    """(positions, channels by kernel) of a convolution of any number of axes."""
    reach = [dilation * (kernel - 1) for kernel, dilation in zip(module.kernel_size, module.dilation, strict=True)]
    if module.padding == "same":
        before, both = [part // 2 for part in reach], reach
    else:
        before = [0] * len(reach) if module.padding == "valid" else list(module.padding)
        both = [2 * part for part in before]
    sizes = zip(x.shape[2:], both, reach, module.stride, strict=True)
    positions = tuple((size + padding - far - 1) // step + 1 for size, padding, far, step in sizes)
    return _taps(x, module.kernel_size, positions, module.stride, before, module.dilation)


def _neighbourhoods(error: Tensor, kernel: Any) -> Tensor:
    """(positions, channels by kernel) of the errors around each position."""
    ones = (1,) * len(kernel)
    return _taps(error, kernel, error.shape[2:], ones, [(size - 1) // 2 for size in kernel], ones)


def _taps(x: Tensor, kernel: Any, positions: Any, step: Any, padding: Any, dilation: Any) -> Tensor:
    from presilicon.formats import Patches

    kernel, positions, step, padding, dilation = (tuple(part) for part in (kernel, positions, step, padding, dilation))
    taps = Patches(x.float(), kernel, positions, step, padding, dilation, (1,) * len(kernel)).dense()[0]
    return taps.view(len(taps), -1, x.shape[1]).transpose(1, 2).flatten(1) != 0
