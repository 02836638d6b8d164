"""Training as the hardware would do it: a design's numerics on any torch model."""

from presilicon.emulation.attach import emulate_, emulation_of, restore_, round_master_, round_state_
from presilicon.emulation.emulation import UncoveredWarning
from presilicon.emulation.training import train

__all__ = ["UncoveredWarning", "emulate_", "emulation_of", "restore_", "round_master_", "round_state_", "train"]
