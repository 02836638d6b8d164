"""Statistics of the tensors of an emulated model."""
