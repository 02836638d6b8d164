"""Events of a run: typed records, one per line of `events.jsonl`, read by progress, watching and reports."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from presilicon.records.graph import Role
from presilicon.records.trace import BugClass, Ending, Symptom

# Bounds that hold when an event is read, so that a damaged log cannot put absurd numbers into a view.
Number = int | Annotated[float, Meta(ge=-1e300, le=1e300)]
Count = Annotated[int, Meta(ge=0)]


class ReadingFigure(Struct, frozen=True, omit_defaults=True):
    """One of an aggregation's results, and how it is drawn. Events carry it, so that old runs show what they showed."""

    name: str
    """Key in a reading's values."""
    title: str = ""
    """Heading of its panel; empty: the name."""
    percent: bool = False
    """Whether it is a share, shown in percent."""
    panel: str = ""
    """Figures of a tap with the same panel are drawn in one frame, such as percentiles; empty: a frame per figure, with
    the curves of all taps."""


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base of all events; the JSON key `event` names the type."""

    time: str = ""
    """UTC time at which the event was written; empty before that."""


class SeedEvent(Event, frozen=True, kw_only=True):
    """An event of one training run: a seed of a design."""

    design: str
    seed: int


class DesignEvent(Event, frozen=True, kw_only=True, tag="design"):
    """A design that takes part in the run, with its whole configuration."""

    design: str
    config: dict[str, Any]


class LockEvent(Event, frozen=True, kw_only=True, tag="lock"):
    """The lock of a process that no longer exists was taken over."""

    message: str


class EvaluationEvent(SeedEvent, frozen=True, kw_only=True, tag="evaluation"):
    """The validation split was evaluated. A value that is not finite is null in the file."""

    step: Count
    samples: Count | None = None
    """Training samples seen so far; None in older logs."""
    updates: Count | None = None
    """Updates of the weights so far; None in older logs."""
    value: Number | None
    """Of the workload's metric, which the run's configuration names."""
    loss: Number | None = None


class FindingEvent(SeedEvent, frozen=True, kw_only=True, tag="finding"):
    """A diagnosis found something; the fields are those of `Finding`."""

    step: int
    symptom: Symptom
    bug: BugClass
    message: str
    layer: str = ""
    role: Role | None = None
    origin: Literal["produced", "passed on", ""] = ""
    share: float | None = None


class RoundingEvent(SeedEvent, frozen=True, kw_only=True, tag="rounding"):
    """Shares of numbers that rounding changed a lot; the fields are those of `RoleShares`."""

    step: int
    role: Role
    underflow: float | None
    overflow: float | None
    saturation: float | None


class SeedFinished(SeedEvent, frozen=True, kw_only=True, tag="seed_finished"):
    """A training run ended."""

    steps: int
    ending: Ending
    reason: str = ""
    test_value: float | None


class SeedRestored(SeedFinished, frozen=True, kw_only=True, tag="seed_restored"):
    """A training run had ended before the run was resumed; its trace was read from the checkpoint."""


class SeedsAdded(Event, frozen=True, kw_only=True, tag="seeds_added"):
    """The seeds so far did not decide the ranking, so more are trained."""

    seeds: Count
    """Seeds per design from now on."""
    undecided: tuple[tuple[str, str], ...]
    """Pairs of designs that are not separated yet."""


Decision = Literal["refused", "outdone", "tried", "left out", "trained", "recommended"]


class DecisionEvent(Event, frozen=True, kw_only=True, tag="decision"):
    """A point of a study was left out, tried, chosen or recommended, and why."""

    point: str
    """Its key."""
    number: int
    decision: Decision
    reason: str


class ResultEvent(Event, frozen=True, kw_only=True, tag="result"):
    """The comparison that the run arrived at, as plain data."""

    comparison: dict[str, Any]


class InstrumentEvent(Event, frozen=True, kw_only=True):
    """An event of the instrument that watches the training named by `stream`; the study adds design and seed."""

    stream: str
    design: str = ""
    seed: int = 0


class TapInfo(Struct, frozen=True, kw_only=True):
    """One tap of an instrument: its name, the tap of the design it belongs to, its number, and what it is wired to."""

    name: str
    group: str = ""
    tap: int = 0
    layer: str
    role: str


class TapLosses(Struct, frozen=True, kw_only=True):
    """Frames of one tap that were delivered and lost, with the reasons for dropped ones where they are known."""

    delivered: Count = 0
    dropped: Count
    missing: Count
    torn: Count
    reasons: dict[str, Count] | UnsetType = UNSET


class Histogram(Struct, frozen=True):
    """Counts in bins."""

    edges: Sequence[Number | None]
    """One more than counts; null for infinity."""
    counts: Sequence[Count | Annotated[float, Meta(ge=0, le=1e300)]]

    def __post_init__(self) -> None:
        """Reject edges that do not fit the counts."""
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"{len(self.counts)} counts must have {len(self.counts) + 1} edges, not {len(self.edges)}")


class InstrumentStarted(InstrumentEvent, frozen=True, kw_only=True, tag="instrument_started"):
    """The instrument is attached to a training."""

    taps: list[TapInfo]
    first_step: Count = 0
    step_s: float | None = None
    address: str | UnsetType = UNSET
    """Socket on which the stream is offered."""
    token_file: str | UnsetType = UNSET
    """File in the run's directory with the token that hosts on other machines need."""


class InstrumentReading(InstrumentEvent, frozen=True, kw_only=True, tag="instrument"):
    """A decoded frame of one tap."""

    step: Count
    tap: str
    layer: str = ""
    role: str = ""
    aggregation: str
    values: dict[str, Number | None] = {}
    histogram: Histogram | UnsetType = UNSET
    lanes: list[Number | None] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class InstrumentAggregation(InstrumentEvent, frozen=True, kw_only=True, tag="instrument_aggregation"):
    """The figures of an aggregation that is new in this stream, and how they are drawn."""

    aggregation: str
    figures: tuple[ReadingFigure, ...]


class InstrumentLosses(InstrumentEvent, frozen=True, kw_only=True, tag="instrument_losses"):
    """Running totals of what the stream delivered and lost."""

    step: Count
    taps: dict[str, TapLosses] = {}
    bytes: Count = 0
    packets: Count = 0
    bad_packets: Count = 0
    skipped_bytes: Count = 0
    lost_packets: Count = 0
    undecodable: Count = 0
    ignored_bytes: Count | UnsetType = UNSET


class InstrumentWarning(InstrumentEvent, frozen=True, kw_only=True, tag="instrument_warning"):
    """A tap's counts may be too large for the instrument's words."""

    tap: str
    aggregation: str
    message: str
    largest_count: int = 0
    limit: int = 0


class InstrumentAnswer(InstrumentEvent, frozen=True, kw_only=True, tag="instrument_answer"):
    """The outcome of a command that was sent to a training."""

    command: str
    ok: bool
    step: Count
    message: str = ""
    request: dict[str, Any] = {}
    """The command itself, as plain data."""


class InstrumentEnded(InstrumentEvent, frozen=True, kw_only=True, tag="instrument_ended"):
    """The training that the instrument watched is over."""


AnyEvent = (
    DesignEvent
    | LockEvent
    | EvaluationEvent
    | FindingEvent
    | RoundingEvent
    | SeedFinished
    | SeedRestored
    | SeedsAdded
    | DecisionEvent
    | ResultEvent
    | InstrumentStarted
    | InstrumentReading
    | InstrumentAggregation
    | InstrumentLosses
    | InstrumentWarning
    | InstrumentAnswer
    | InstrumentEnded
)
"""Every type of event; `event` in the JSON object decides which."""
