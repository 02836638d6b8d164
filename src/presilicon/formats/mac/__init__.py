"""MAC units: their description, a slow reference, and matrix products in plain torch, Numba and Triton."""
