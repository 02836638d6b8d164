"""Reading the data of a workload: kinds of splits, items, streams, and their random numbers."""
