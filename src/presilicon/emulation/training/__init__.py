"""Training runs: the loop, its checkpoints, and the diagnosis of steps that fail."""
