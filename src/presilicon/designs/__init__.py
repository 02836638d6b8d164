"""Frozen descriptions of hardware: machines, numerics, technology tables; the design file and the presets."""

from presilicon.designs.caterpillar import CaterpillarMachine, Schedule
from presilicon.designs.design import Design, design_names, diff_designs, load_design
from presilicon.designs.instrument import ALU_FUNCTIONS, BLOCKS, REDUCE_FUNCTIONS, Hardware, Instrument, Tap
from presilicon.designs.machine import Machine
from presilicon.designs.numerics import Change, Numerics, Override, RoleFormat
from presilicon.designs.operators import Operators, OperatorSpec
from presilicon.designs.recipe import Recipe, load_recipe, recipe_names
from presilicon.designs.roofline import ClassRate, HostTimes, MatrixRate, Provenance, RooflineMachine
from presilicon.designs.scaling import LossScale
from presilicon.designs.system import (
    Characterization,
    Device,
    Row,
    System,
    load_characterization,
    load_system,
    system_names,
)
from presilicon.designs.systolic import Dataflow, Dataflows, Reduction, SystolicMachine, Transpose
from presilicon.designs.technology import (
    AreaPoint,
    AreaTable,
    EnergyPoint,
    Figure,
    Technology,
    curve_pj,
    curve_um2,
    load_technology,
    technology_names,
)

__all__ = [
    "ALU_FUNCTIONS",
    "BLOCKS",
    "REDUCE_FUNCTIONS",
    "AreaPoint",
    "AreaTable",
    "CaterpillarMachine",
    "Change",
    "Characterization",
    "ClassRate",
    "Dataflow",
    "Dataflows",
    "Design",
    "Device",
    "EnergyPoint",
    "Figure",
    "Hardware",
    "HostTimes",
    "Instrument",
    "LossScale",
    "Machine",
    "MatrixRate",
    "Numerics",
    "OperatorSpec",
    "Operators",
    "Override",
    "Provenance",
    "Recipe",
    "Reduction",
    "RoleFormat",
    "RooflineMachine",
    "Row",
    "Schedule",
    "System",
    "SystolicMachine",
    "Tap",
    "Technology",
    "Transpose",
    "curve_pj",
    "curve_um2",
    "design_names",
    "diff_designs",
    "load_characterization",
    "load_design",
    "load_recipe",
    "load_system",
    "load_technology",
    "recipe_names",
    "system_names",
    "technology_names",
]
