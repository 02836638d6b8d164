"""The record of a step, before the phases and roles of its calls are known."""

from __future__ import annotations

from dataclasses import dataclass, field

from presilicon.records import Access, Convolution, Gemm, OperatorWork, OpKind, Role, Stage


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a call saw it."""

    storage: int
    shape: tuple[int, ...]
    integer_bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One operator call, or one part of it."""

    operator: str
    label: str
    """The operator's short name, and the part's when the call has several."""
    kind: OpKind
    stage: Stage
    layer: str
    node: int
    """Number of the autograd node's visit in which it ran; -1 outside the backward pass."""
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    flops: int
    depends_on: tuple[int, ...]
    gemm: Gemm | None = None
    convolution: Convolution | None = None
    differentiates: int | None = None
    """Position of the call whose autograd node it ran in."""
    access: Access = "dense"
    recurrent: bool = False
    fixed_statistics: bool = False
    work: OperatorWork | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Everything recorded about a step."""

    calls: list[RecordedCall] = field(default_factory=list)
    roles: dict[int, Role] = field(default_factory=dict)
    """Role of each storage that exists before the step or is created in its forward pass."""
    flowing: dict[int, set[Role]] = field(default_factory=dict)
    """Roles of each storage that the backward pass moved from node to node: `error`, `gradient`, or both."""
    owners: dict[int, str] = field(default_factory=dict)
    """The layer that a parameter, its gradient or its optimizer state belongs to."""
