"""Presilicon: how long, and how many joules, a design needs to train a model to an accuracy, before silicon exists.

    import presilicon as ps

    design = ps.load_design("bf16-systolic")
    workload = ps.load_workload("digits-cnn")
    result = ps.evaluate(design, workload, seeds=5)
    result.time_to_accuracy_s

Names are resolved when they are first used: importing the package loads neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "presilicon.base",
    "MissingToolError": "presilicon.base",
    "PresiliconError": "presilicon.base",
    "Format": "presilicon.formats",
    "parse": "presilicon.formats",
    "quantize": "presilicon.formats",
    "Cost": "presilicon.records",
    "Result": "presilicon.records",
    "StepFacts": "presilicon.records",
    "StepGraph": "presilicon.records",
    "Trace": "presilicon.records",
    "Operator": "presilicon.operators",
    "operator": "presilicon.operators",
    "Design": "presilicon.designs",
    "Numerics": "presilicon.designs",
    "System": "presilicon.designs",
    "load_design": "presilicon.designs",
    "load_numerics": "presilicon.designs",
    "load_system": "presilicon.designs",
    "Metric": "presilicon.workloads",
    "Splits": "presilicon.workloads",
    "Workload": "presilicon.workloads",
    "capture": "presilicon.workloads",
    "load_metric": "presilicon.workloads",
    "load_workload": "presilicon.workloads",
    "LossScaler": "presilicon.emulation",
    "coverage": "presilicon.emulation",
    "emulate_": "presilicon.emulation",
    "emulate_optimizer_": "presilicon.emulation",
    "emulated": "presilicon.emulation",
    "exact": "presilicon.emulation",
    "format_sensitivity": "presilicon.emulation",
    "monitor": "presilicon.emulation",
    "monitor_trainer": "presilicon.emulation",
    "next_step": "presilicon.emulation",
    "restore_": "presilicon.emulation",
    "train": "presilicon.emulation",
    "memory_timeline": "presilicon.simulation",
    "simulate": "presilicon.simulation",
    "compare": "presilicon.study",
    "evaluate": "presilicon.study",
    "schedule": "presilicon.study",
}

__all__ = ["__version__", *_HOMES]

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
    from presilicon.operators import Operator, operator
    from presilicon.records import Cost, Result, StepFacts, StepGraph, Trace
    from presilicon.simulation import memory_timeline, simulate
    from presilicon.study import compare, evaluate, schedule
    from presilicon.workloads import Metric, Splits, Workload, capture, load_metric, load_workload


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'presilicon' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
