"""Executions of programs in torch, Numba and Triton."""
