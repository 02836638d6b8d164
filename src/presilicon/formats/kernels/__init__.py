"""Rounding of numbers and tensors: a slow reference, plain torch, Numba for CPUs and Triton for GPUs."""
