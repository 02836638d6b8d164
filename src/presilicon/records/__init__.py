"""Frozen data that crosses rooms, and the protocols that join them.

Everything here is plain, comparable, hashable where it is used as a key, and serialisable: no torch, no numpy.
"""

from presilicon.records.area import Area
from presilicon.records.cost import Cost, OpCost
from presilicon.records.coverage import CoveredOp, EmulationCoverage
from presilicon.records.events import (
    AnyEvent,
    DesignEvent,
    EvaluationEvent,
    Event,
    FindingEvent,
    Histogram,
    InstrumentAggregation,
    InstrumentAnswer,
    InstrumentEnded,
    InstrumentEvent,
    InstrumentLosses,
    InstrumentReading,
    InstrumentStarted,
    InstrumentWarning,
    LockEvent,
    ResultEvent,
    RoundingEvent,
    SeedEvent,
    SeedFinished,
    SeedRestored,
    TapInfo,
    TapLosses,
)
from presilicon.records.fairness import Fairness, Pair, Probability
from presilicon.records.figure import Figure
from presilicon.records.finding import Finding, RoleShares
from presilicon.records.foreign import Coverage, ForeignTime, ForeignTimes
from presilicon.records.frames import ArrayFrames, CellFrame
from presilicon.records.graph import (
    PHASES,
    ROLES,
    Convolution,
    Ends,
    Gemm,
    Op,
    OpKind,
    Phase,
    Role,
    StepGraph,
    TensorRef,
)
from presilicon.records.memory import MEMORY_PARTS, Lifetime, MemoryPart, MemoryPoint, MemoryTimeline
from presilicon.records.operator_cost import OperatorCost
from presilicon.records.panel import Curve, Panel
from presilicon.records.protocols import AttachedHook, Observer, PairObserver, PassiveHook, Stateful, TrainingHook
from presilicon.records.reproduction import Reproduced, Reproduction
from presilicon.records.result import Comparison, CurvePoint, Interval, Result, SeedResult
from presilicon.records.schedule import Mode, Pool, PowerTrace, Problem, Schedule, ScheduleCost, Started, Task
from presilicon.records.sensitivity import ClosestCall, RankingChange, RankingSensitivity, Sensitivity
from presilicon.records.trace import Evaluation, FactsRun, LayerFact, StepFacts, Trace

__all__ = [
    "MEMORY_PARTS",
    "PHASES",
    "ROLES",
    "AnyEvent",
    "Area",
    "ArrayFrames",
    "AttachedHook",
    "CellFrame",
    "ClosestCall",
    "Comparison",
    "Convolution",
    "Cost",
    "Coverage",
    "CoveredOp",
    "Curve",
    "CurvePoint",
    "DesignEvent",
    "EmulationCoverage",
    "Ends",
    "Evaluation",
    "EvaluationEvent",
    "Event",
    "FactsRun",
    "Fairness",
    "Figure",
    "Finding",
    "FindingEvent",
    "ForeignTime",
    "ForeignTimes",
    "Gemm",
    "Histogram",
    "InstrumentAggregation",
    "InstrumentAnswer",
    "InstrumentEnded",
    "InstrumentEvent",
    "InstrumentLosses",
    "InstrumentReading",
    "InstrumentStarted",
    "InstrumentWarning",
    "Interval",
    "LayerFact",
    "Lifetime",
    "LockEvent",
    "MemoryPart",
    "MemoryPoint",
    "MemoryTimeline",
    "Mode",
    "Observer",
    "Op",
    "OpCost",
    "OpKind",
    "OperatorCost",
    "Pair",
    "PairObserver",
    "Panel",
    "PassiveHook",
    "Phase",
    "Pool",
    "PowerTrace",
    "Probability",
    "Problem",
    "RankingChange",
    "RankingSensitivity",
    "Reproduced",
    "Reproduction",
    "Result",
    "ResultEvent",
    "Role",
    "RoleShares",
    "RoundingEvent",
    "Schedule",
    "ScheduleCost",
    "SeedEvent",
    "SeedFinished",
    "SeedRestored",
    "SeedResult",
    "Sensitivity",
    "Started",
    "Stateful",
    "StepFacts",
    "StepGraph",
    "TapInfo",
    "TapLosses",
    "Task",
    "TensorRef",
    "Trace",
    "TrainingHook",
]
