"""Pipelined backpropagation on CATERPILLAR: every layer has its own cores, and samples stream through them.

In a slot of the pipeline every layer takes one sample forward and another one backward, and updates its weights at
once. With L layers, counted from 1, sample i is forward in layer l in slot i + l - 1 and backward in slot
i + 2 L - l - 1, so 2 (L - l) updates lie between the weights that its activations and its errors have seen.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from presilicon.base import ConfigError


class CaterpillarPipeline(Struct, frozen=True, kw_only=True):
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


def allot_cores(
    cores: int, layers: Sequence[str], cycles: Callable[[int, int], float], least: Sequence[int] = ()
) -> tuple[tuple[int, ...], float]:
    """Cores for each layer, at least one, that make the slowest as fast as possible; and the cycles of the slowest.

    `cycles(stage, cores)` are those of a stage for a sample, infinite where so few cores cannot do it. More cores go to
    the slowest stage as long as that makes it faster. Each has the `least` that hold its weights, if there are as many.

    Raises:
        ConfigError: there are more layers than cores.
    """
    if len(layers) > cores:
        raise ConfigError(
            f'machine.schedule is "pipelined", which gives each of {len(layers)} layers a core of its own, but '
            f"machine.cores is {cores}"
        )
    allotted = list(least) if least and sum(least) <= cores else [1] * len(layers)
    times = [cycles(stage, own) for stage, own in enumerate(allotted)]
    left = cores - sum(allotted)
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
