"""Findings of a diagnosis: problems in a training run, with place, time and class."""

from typing import Literal

from msgspec import Struct

from presilicon.records.graph import Role

Symptom = Literal[
    "non-finite", "overflow", "saturation", "underflow", "dead-relu", "vanishing", "exploding", "loss-scale", "data"
]
BugClass = Literal["data", "structural", "conceptual"]
"""`data`: the inputs. `structural`: the computation itself, such as a division by zero. `conceptual`: a choice that
does not suit the model, such as a format whose range is too small."""


class Finding(Struct, frozen=True, kw_only=True):
    """One finding of a diagnosis."""

    step: int
    symptom: Symptom
    bug: BugClass
    message: str
    """Observation and advice."""
    layer: str = ""
    role: Role | None = None
    origin: Literal["produced", "passed on", ""] = ""
    """For a number that is not finite: whether the layer produced it from finite inputs or passed it on."""
    share: float | None = None
    """Fraction of elements or steps that are affected."""


class RoleShares(Struct, frozen=True, kw_only=True):
    """Effect of rounding on the tensors of one role at an inspected step."""

    step: int
    role: Role
    underflow: float
    """Fraction of nonzero numbers that became zero."""
    overflow: float
    """Fraction of finite numbers that became infinite or no number."""
    saturation: float
    """Fraction of numbers beyond the largest value that were held at it."""
