"""Machines that skip zeros, simulated on the zeros that training met."""
