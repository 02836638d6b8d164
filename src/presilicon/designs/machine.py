"""Machines: what a training step runs on. Each kind is described in its own module."""

from presilicon.designs.caterpillar import CaterpillarMachine
from presilicon.designs.roofline import RooflineMachine
from presilicon.designs.systolic import SystolicMachine

Machine = SystolicMachine | CaterpillarMachine | RooflineMachine
"""Every kind of machine: a union that `kind` in a design file decides."""
