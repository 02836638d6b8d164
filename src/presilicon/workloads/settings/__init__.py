"""How a workload is trained and measured: optimizers, learning-rate schedules, metrics."""
