"""A training step on a chip with several cores: the best way to divide it among them."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import sqrt

from msgspec.structs import replace

from presilicon.base import PICO, ConfigError
from presilicon.designs import Design, MachineStep, StepPrice, Technology
from presilicon.simulation.area import area
from presilicon.simulation.cores.description import Cores
from presilicon.simulation.cores.division import Division
from presilicon.simulation.cores.network import Network
from presilicon.simulation.cores.pipeline import CorePipeline
from presilicon.simulation.mapping.tiles import goal_of
from presilicon.simulation.systolic.machine import SystolicMachine

_WAYS = {
    "data": ("data",),
    "tile": ("data", "tile"),
    "layer": ("layer",),
    "best": ("data", "tile", "layer"),
}
"""Ways to divide a step that each word allows: a division by samples is one by tiles."""


def price_cores(step: MachineStep, machine: SystolicMachine) -> StepPrice:
    """The best way by the machine's objective to divide the step, of those it allows, on all of its cores or some."""
    assert step.technology is not None
    cores = machine.cores
    hop_byte_j = 8 * PICO * hop_pj(cores, step.design, step.technology)
    whole = Network.of_cores(cores)
    alone = Division(step, machine, whole.parts()[-1], "none", hop_byte_j).price()
    prices = [alone]
    for way in _ways(step, machine, whole, alone, hop_byte_j):
        with suppress(ConfigError):  # a share of a memory may be too small for one tile of some product
            prices.append(way().price())
    best = min(
        prices,
        key=lambda price: goal_of(machine.objective, price.time_s, sum(price.energy_by_component_j.values())),
    )
    assert best.cores is not None
    return replace(best, cores=replace(best.cores, alone_s=alone.time_s))


def _ways(
    step: MachineStep, machine: SystolicMachine, whole: Network, alone: StepPrice, hop_byte_j: float
) -> Iterator[Callable[[], Division | CorePipeline]]:
    for part in whole.parts()[:-1]:
        for parallel in _WAYS[machine.cores.parallel]:
            if parallel == "layer":
                yield partial(CorePipeline, step, machine, part, alone, hop_byte_j)
            else:
                yield partial(Division, step, machine, part, parallel, hop_byte_j)


def hop_pj(cores: Cores, design: Design, technology: Technology) -> float:
    """Picojoules of a bit from one core to the next.

    Raises:
        ConfigError: neither the design nor the technology table gives it.
    """
    if cores.pj_bit_hop is not None:
        return cores.pj_bit_hop
    mm2 = area(design, technology).mm2
    if technology.wire is None or mm2 is None:
        raise ConfigError(
            f"machine.cores.pj_bit_hop must be given: technology {technology.name} has no wires, or no areas"
        )
    return technology.wire.pj_bit_mm * sqrt(mm2 / cores.count)
