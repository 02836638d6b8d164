"""Execution of a schedule on real devices: one interface for every op on torch and OpenCL devices."""
