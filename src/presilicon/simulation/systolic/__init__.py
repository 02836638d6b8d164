"""The systolic machine: description, cycles, tiling, price, area and a cell-by-cell reference."""

from presilicon.simulation.systolic.machine import SystolicMachine

__all__ = ["SystolicMachine"]
