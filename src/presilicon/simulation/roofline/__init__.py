"""The roofline machine: description, kernels and price of chips that exist."""

from presilicon.simulation.roofline.machine import RooflineMachine

__all__ = ["RooflineMachine"]
