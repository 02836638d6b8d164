"""Frozen descriptions of hardware: machines, numerics, technology tables; the design file and the presets.

The machine kinds live beside their engines and are found by name: `MACHINES.load("systolic")`.
"""

from importlib import import_module
from typing import Any

from presilicon.designs.design import Design, design_names, diff_designs, diff_plain, flat_fields, load_design
from presilicon.designs.instrument import (
    ALU_FUNCTIONS,
    BLOCKS,
    REDUCE_FUNCTIONS,
    WIDEST_WORD,
    Hardware,
    Instrument,
    Tap,
    TapRole,
)
from presilicon.designs.machine import MACHINES, MINIBATCH, Machine, UpdateRule
from presilicon.designs.method import METHODS, AttachedMethod, Capture, Method, Proceed, TrainingRun, TrainingStep
from presilicon.designs.numerics import (
    Change,
    Numerics,
    Override,
    ProductNumerics,
    RoleFormat,
    decode_format,
    unmatched_pattern,
)
from presilicon.designs.operators import Operators, OperatorSpec
from presilicon.designs.pricing import Convention, MachineStep, StepPrice, op_cost
from presilicon.designs.recipe import Recipe, load_numerics, load_recipe, recipe_label, recipe_names, write_numerics
from presilicon.designs.scaling import LossScale
from presilicon.designs.step_formats import StepFormats
from presilicon.designs.system import (
    Characterization,
    Device,
    Row,
    System,
    load_characterization,
    load_system,
    system_names,
)
from presilicon.designs.technology import (
    AreaPoint,
    AreaTable,
    EnergyPoint,
    Figure,
    FigurePath,
    Label,
    MacArea,
    MacEnergy,
    Technology,
    curve_pj,
    curve_um2,
    figure_name,
    load_technology,
    technology_names,
)
from presilicon.designs.variation import vary_designs

__all__ = [
    "ALU_FUNCTIONS",
    "BLOCKS",
    "MACHINES",
    "METHODS",
    "MINIBATCH",
    "REDUCE_FUNCTIONS",
    "WIDEST_WORD",
    "AreaPoint",
    "AreaTable",
    "AttachedMethod",
    "Capture",
    "Change",
    "Characterization",
    "Convention",
    "Design",
    "Device",
    "EnergyPoint",
    "Figure",
    "FigurePath",
    "Hardware",
    "Instrument",
    "Label",
    "LossScale",
    "MacArea",
    "MacEnergy",
    "Machine",
    "MachineStep",
    "Method",
    "Numerics",
    "OperatorSpec",
    "Operators",
    "Override",
    "Proceed",
    "ProductNumerics",
    "Recipe",
    "RoleFormat",
    "Row",
    "StepFormats",
    "StepPrice",
    "System",
    "Tap",
    "TapRole",
    "Technology",
    "TrainingRun",
    "TrainingStep",
    "UpdateRule",
    "curve_pj",
    "curve_um2",
    "decode_format",
    "design_names",
    "diff_designs",
    "diff_plain",
    "figure_name",
    "flat_fields",
    "load_characterization",
    "load_design",
    "load_numerics",
    "load_recipe",
    "load_system",
    "load_technology",
    "op_cost",
    "recipe_label",
    "recipe_names",
    "system_names",
    "technology_names",
    "unmatched_pattern",
    "vary_designs",
    "write_numerics",
]

_MACHINE_NAMES = (
    *(
        "ACTIVITIES",
        "CaterpillarMachine",
        "ChipEnergy",
        "Dataflow",
        "Dataflows",
        "HostTimes",
        "MatrixRate",
        "Provenance",
        "Reduction",
    ),
    *("RooflineMachine", "SystolicMachine", "Transpose"),
)


def __getattr__(name: str) -> Any:
    """Names of machine kinds, which live in `presilicon.simulation`; the layering allows no import of it here."""
    if name in _MACHINE_NAMES:
        return getattr(import_module("presilicon.simulation"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
