"""Pipelined backpropagation on CATERPILLAR: every layer has its own cores, and samples stream through them.

In a slot of the pipeline every layer takes one sample forward and another one backward, and updates its weights at
once. With L layers, counted from 1, sample i is forward in layer l in slot i + l - 1 and backward in slot
i + 2 L - l - 1, so 2 (L - l) updates lie between the weights that its activations and its errors have seen.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import UpdateRule
from presilicon.records import Op, StepGraph


class Pipeline(Struct, frozen=True, kw_only=True):
    """Layers on their cores."""

    layers: tuple[str, ...]
    cores: tuple[int, ...]
    slot_cycles: int
    """Cycles of the slowest layer: the time per sample once the pipeline is full."""
    stage_of: dict[int, int]
    """The layer, by position, that runs each op, by index."""

    @property
    def fill_slots(self) -> int:
        """Slots in addition to one per sample, to fill the pipeline at the beginning and drain it at the end."""
        return 2 * (len(self.layers) - 1)


def staleness(layers: int | StepGraph) -> tuple[int, ...]:
    """Age in samples, by layer, of the weights that a sample's activations have seen when its errors arrive.

    >>> staleness(4)
    (6, 4, 2, 0)
    """
    count = layers if isinstance(layers, int) else len(weighted_layers(layers.ops))
    return UpdateRule(per_sample=True, pipelined=True).staleness(count)


def weighted_layers(ops: Sequence[Op]) -> tuple[str, ...]:
    """Layers with a matrix product of weights in the forward pass, in order."""
    named = [op.layer for op in ops if op.phase == "forward" and op.gemm is not None and op.inputs[1].role == "weight"]
    return tuple(dict.fromkeys(named))


def stages(ops: Sequence[Op]) -> dict[int, int]:
    """The stage of each op, by index.

    A layer without weights belongs to the stage of the layer before it, losses and ops of no layer to the last stage,
    and an update to the stage of its layer.
    """
    layers = weighted_layers(ops)
    if not layers:
        raise ConfigError('machine.schedule is "pipelined", but the step has no layer with weights to make stages of')
    weighted = {layer: stage for stage, layer in enumerate(layers)}
    known: dict[str, int] = {}
    stage = 0
    for op in ops:
        if op.phase == "forward" and op.layer:
            stage = weighted.get(op.layer, stage)
            known.setdefault(op.layer, stage)
    return {op.index: known.get(op.layer, len(layers) - 1) for op in ops}


def allot_cores(
    cores: int, layers: Sequence[str], cycles: Callable[[int, int], float]
) -> tuple[tuple[int, ...], float]:
    """Cores for each layer, at least one, that make the slowest as fast as possible; and the cycles of the slowest.

    `cycles(stage, cores)` are those of a stage for a sample, infinite where so few cores cannot do it. More cores go to
    the slowest stage as long as that makes it faster.

    Raises:
        ConfigError: there are more layers than cores.
    """
    if len(layers) > cores:
        raise ConfigError(
            f'machine.schedule is "pipelined", which gives each of {len(layers)} layers a core of its own, but '
            f"machine.cores is {cores}"
        )
    allotted = [1] * len(layers)
    times = [cycles(stage, 1) for stage in range(len(layers))]
    left = cores - len(layers)
    while left:
        slowest = max(range(len(layers)), key=times.__getitem__)
        tries = ((more, cycles(slowest, allotted[slowest] + more)) for more in range(1, left + 1))
        better = next(((more, time) for more, time in tries if time < times[slowest]), None)
        if better is None:
            break
        allotted[slowest] += better[0]
        times[slowest] = better[1]
        left -= better[0]
    return tuple(allotted), max(times)


def delays(layers: Sequence[str]) -> Mapping[str, int]:
    """The staleness of each layer by its name."""
    return dict(zip(layers, staleness(len(layers)), strict=True))
