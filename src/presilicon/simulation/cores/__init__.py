"""Several cores on one chip: their network, ways to divide a training step among them, and its price."""
