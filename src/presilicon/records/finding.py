"""What went wrong, or may, in a training run: where, when, and what kind of mistake it is."""

from typing import Literal

from msgspec import Struct

from presilicon.records.graph import Role

Symptom = Literal[
    "non-finite",
    "overflow",
    "saturation",
    "underflow",
    "dead-relu",
    "vanishing",
    "exploding",
    "loss-scale",
    "data",
]
BugClass = Literal["data", "structural", "conceptual"]
"""`data`: what the model was fed. `structural`: the logic itself, a division by zero, say. `conceptual`: a choice that
does not suit the model, as a format whose range is too small."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that a diagnosis found."""

    step: int
    symptom: Symptom
    bug: BugClass
    message: str
    """What was seen, and what to try."""
    layer: str = ""
    role: Role | None = None
    origin: Literal["produced", "passed on", ""] = ""
    """Of a number that is not finite: whether the layer made it of finite ones, or was handed it."""
    share: float | None = None
    """The fraction of elements, or of steps, that it concerns."""


class RoleShares(Struct, frozen=True, kw_only=True):
    """What rounding did to the tensors of one role at a step that was looked at."""

    step: int
    role: Role
    underflow: float
    """Fraction of nonzero numbers that became zero."""
    overflow: float
    """Fraction of finite numbers that became infinite or no number."""
    saturation: float
    """Fraction of numbers beyond the largest value that were held at it."""
