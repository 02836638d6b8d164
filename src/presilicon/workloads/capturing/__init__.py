"""Capturing a training step: the operator calls of a step on the meta device, assembled to a graph of ops."""
