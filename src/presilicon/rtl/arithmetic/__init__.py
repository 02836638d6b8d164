"""MAC units and their parts as circuits: parameters, simulation, golden vectors, written directories."""
