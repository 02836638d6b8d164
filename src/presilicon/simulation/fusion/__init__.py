"""Ops that run as one group without a trip to DRAM between them, and data that stays on chip between groups."""
