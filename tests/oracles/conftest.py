"""Oracles that are not searched for examples."""

collect_ignore = ["inductor.py"]
"""torch's compiler warns of itself when it is imported; the tests import it in a process of its own."""
