"""The systolic machine: description, memories, mappings, cycles, price, area and a cell-by-cell reference."""

from presilicon.simulation.systolic.machine import SystolicMachine

__all__ = ["SystolicMachine"]
