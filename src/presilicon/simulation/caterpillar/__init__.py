"""CATERPILLAR: description, cycles, pipeline, price and area."""

from presilicon.simulation.caterpillar.machine import CaterpillarMachine

__all__ = ["CaterpillarMachine"]
