"""The instrument compiled by Numba."""

from presilicon.instrument.reference import Reference


class FastModel(Reference):
    """For now the reference itself."""
