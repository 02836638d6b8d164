"""The arithmetic of an emulated layer: matrix products and vector ops of torch, rounded in their formats."""
