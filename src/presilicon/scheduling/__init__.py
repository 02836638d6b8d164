"""Placing and ordering the ops of a training step over several devices, under energy and power goals."""
