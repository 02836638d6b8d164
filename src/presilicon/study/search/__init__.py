"""Studies: many designs simulated or trained, the Pareto front of them, and the design to build."""
