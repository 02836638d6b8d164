"""Frozen descriptions of hardware: machines, numerics, energy tables; the design file and the presets."""

from presilicon.designs.caterpillar import CaterpillarMachine, Schedule
from presilicon.designs.design import Design, design_names, diff_designs, load_design
from presilicon.designs.machine import Machine
from presilicon.designs.numerics import Numerics, RoleFormat
from presilicon.designs.recipe import Recipe, load_recipe, recipe_names
from presilicon.designs.systolic import Dataflow, Dataflows, Reduction, SystolicMachine, Transpose
from presilicon.designs.technology import (
    EnergyPoint,
    Technology,
    curve_pj,
    load_technology,
    technology_names,
)

__all__ = [
    "CaterpillarMachine",
    "Dataflow",
    "Dataflows",
    "Design",
    "EnergyPoint",
    "Machine",
    "Numerics",
    "Recipe",
    "Reduction",
    "RoleFormat",
    "Schedule",
    "SystolicMachine",
    "Technology",
    "Transpose",
    "curve_pj",
    "design_names",
    "diff_designs",
    "load_design",
    "load_recipe",
    "load_technology",
    "recipe_names",
    "technology_names",
]
