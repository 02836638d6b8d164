"""Bit-exact models of the instrument: arithmetic, reference, compiled twin, and the chip at its own rate."""
