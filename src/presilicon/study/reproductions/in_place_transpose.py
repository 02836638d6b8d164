"""Seed lecture's in-place transposed multiplication: values and what it saves."""

from presilicon.base.errors import RunFailedError
from presilicon.records import Reproduction


def reproduce() -> Reproduction:
    """Not written yet."""
    raise RunFailedError("in-place-transpose cannot be reproduced yet")
