"""Training as the hardware would do it: a design's numerics on any torch model."""

from presilicon.emulation.attach import emulate_, emulation_of, restore_, round_master_, round_state_
from presilicon.emulation.coverage import coverage, coverage_workload
from presilicon.emulation.emulation import UncoveredWarning
from presilicon.emulation.functions import replace_function, replacement_for
from presilicon.emulation.losses import emulated
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.emulation.training import train

__all__ = [
    "UncoveredWarning",
    "coverage",
    "coverage_workload",
    "emulate_",
    "emulate_optimizer_",
    "emulated",
    "emulation_of",
    "replace_function",
    "replacement_for",
    "restore_",
    "round_master_",
    "round_state_",
    "train",
]
