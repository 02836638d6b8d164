"""Operators on tensors: the op that torch sees, and its executions in torch, Numba and Triton."""
