"""Systolic arrays as circuits: a linear layer's three products with the weights in place."""
