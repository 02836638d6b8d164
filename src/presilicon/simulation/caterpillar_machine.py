"""A training step on CATERPILLAR: a ring of cores that trains by single samples, by batches, or as a pipeline."""

from presilicon.base.errors import ConfigError
from presilicon.designs import CaterpillarMachine
from presilicon.simulation.pricing import Priced, Step


def price_caterpillar(step: Step, machine: CaterpillarMachine) -> Priced:
    """Not written yet."""
    raise ConfigError(f"machine.schedule: {machine.schedule} cannot be priced yet, for {step.graph.name}")
