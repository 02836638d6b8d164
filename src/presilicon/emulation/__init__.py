"""Emulation of a design's numerics in the training of any torch model."""

from presilicon.emulation.attach import emulate_, emulation_of, next_step, restore_
from presilicon.emulation.coverage import coverage, coverage_workload
from presilicon.emulation.emulation import TensorCoreWarning, UncoveredWarning
from presilicon.emulation.exact import exact
from presilicon.emulation.losses import emulated
from presilicon.emulation.monitoring.monitor import Monitor, monitor
from presilicon.emulation.monitoring.sensitivity import format_sensitivity, workload_sensitivity
from presilicon.emulation.monitoring.trainers import monitor_trainer
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.emulation.scaling import LossScaler
from presilicon.emulation.state.steps import StepWarning, UnscaledWarning
from presilicon.emulation.training.checkpoint import Checkpoint, SavedRun
from presilicon.emulation.training.hopeless import HOPELESS_RULE
from presilicon.emulation.training.isolation import isolated
from presilicon.emulation.training.loop import train, train_record
from presilicon.emulation.training.methods import transform_model
from presilicon.emulation.training.record import TrainingRecord, changed_parts
from presilicon.emulation.training.turns import PassOn, take_turns

__all__ = [
    "HOPELESS_RULE",
    "Checkpoint",
    "LossScaler",
    "Monitor",
    "PassOn",
    "SavedRun",
    "StepWarning",
    "TensorCoreWarning",
    "TrainingRecord",
    "UncoveredWarning",
    "UnscaledWarning",
    "changed_parts",
    "coverage",
    "coverage_workload",
    "emulate_",
    "emulate_optimizer_",
    "emulated",
    "emulation_of",
    "exact",
    "format_sensitivity",
    "isolated",
    "monitor",
    "monitor_trainer",
    "next_step",
    "restore_",
    "take_turns",
    "train",
    "train_record",
    "transform_model",
    "workload_sensitivity",
]
