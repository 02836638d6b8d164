"""Presilicon: how long, and how many joules, a design needs to train a model to an accuracy, before silicon exists.

    import presilicon as ps

    design = ps.load_design("bf16-systolic")
    workload = ps.load_workload("digits-cnn")
    result = ps.evaluate(design, workload, seeds=5)
    result.time_to_accuracy_s

Names are resolved when they are first used: importing the package loads neither torch nor numpy. Functions check the
types of their arguments.
"""

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOMS = {
    "base": ("ConfigError", "MissingToolError", "PresiliconError"),
    "formats": ("Format", "parse", "quantize"),
    "records": ("Cost", "Result", "StepFacts", "StepGraph", "Trace"),
    "ops": ("Operator", "operator"),
    "designs": ("Design", "Numerics", "System", "load_design", "load_numerics", "load_system"),
    "workloads": ("Metric", "Splits", "Workload", "capture", "load_metric", "load_workload"),
    "emulation": (
        *("LossScaler", "coverage", "emulate_", "emulate_optimizer_", "emulated", "exact"),
        *("format_sensitivity", "monitor", "monitor_trainer", "next_step", "restore_", "train"),
    ),
    "simulation": ("memory_timeline", "simulate"),
    "study": ("compare", "evaluate", "hybrid", "schedule", "sweep"),
}
_HOMES = {name: f"presilicon.{room}" for room, names in _ROOMS.items() for name in names}

__all__ = [  # spelled out for type checkers
    "ConfigError", "Cost", "Design", "Format", "LossScaler", "Metric", "MissingToolError", "Numerics", "Operator",
    "PresiliconError", "Result", "Splits", "StepFacts", "StepGraph", "System", "Trace", "Workload", "__version__",
    "capture", "compare", "coverage", "emulate_", "emulate_optimizer_", "emulated", "evaluate", "exact",
    "format_sensitivity", "hybrid", "load_design", "load_metric", "load_numerics", "load_system", "load_workload",
    "memory_timeline", "monitor", "monitor_trainer", "next_step", "operator", "parse", "quantize", "restore_",
    "schedule", "simulate", "sweep", "train",
]  # fmt: skip

if TYPE_CHECKING:
    from presilicon.base import ConfigError, MissingToolError, PresiliconError
    from presilicon.designs import Design, Numerics, System, load_design, load_numerics, load_system
    from presilicon.emulation import (
        LossScaler,
        coverage,
        emulate_,
        emulate_optimizer_,
        emulated,
        exact,
        format_sensitivity,
        monitor,
        monitor_trainer,
        next_step,
        restore_,
        train,
    )
    from presilicon.formats import Format, parse, quantize
    from presilicon.ops import Operator, operator
    from presilicon.records import Cost, Result, StepFacts, StepGraph, Trace
    from presilicon.simulation import memory_timeline, simulate
    from presilicon.study import compare, evaluate, hybrid, schedule, sweep
    from presilicon.workloads import Metric, Splits, Workload, capture, load_metric, load_workload


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'presilicon' has no attribute '{name}'")
    value = getattr(import_module(home), name)
    return import_module("presilicon.base").checked(value) if isinstance(value, FunctionType) else value


def __dir__() -> list[str]:
    return sorted(__all__)
