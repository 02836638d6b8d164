"""Frozen data that crosses rooms, and the protocols that join them.

Everything here is plain, comparable, hashable where it is used as a key, and serialisable: no torch, no numpy.
"""

from presilicon.records.area import Area
from presilicon.records.cost import Cost, OpCost
from presilicon.records.coverage import CoveredOp, EmulationCoverage
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
from presilicon.records.memory import Lifetime, MemoryPart, MemoryPoint, MemoryTimeline
from presilicon.records.operator_cost import OperatorCost
from presilicon.records.panel import Curve, Panel
from presilicon.records.protocols import AttachedHook, CostRule, Observer, PairObserver, TrainingHook
from presilicon.records.reproduction import Reproduced, Reproduction
from presilicon.records.result import Comparison, CurvePoint, Interval, Result, SeedResult
from presilicon.records.schedule import Mode, Pool, PowerTrace, Problem, Schedule, ScheduleCost, Started, Task
from presilicon.records.sensitivity import ClosestCall, RankingChange, RankingSensitivity, Sensitivity
from presilicon.records.trace import Evaluation, FactsRun, LayerFact, StepFacts, Trace

__all__ = [
    "PHASES",
    "ROLES",
    "Area",
    "ArrayFrames",
    "AttachedHook",
    "CellFrame",
    "ClosestCall",
    "Comparison",
    "Convolution",
    "Cost",
    "CostRule",
    "Coverage",
    "CoveredOp",
    "Curve",
    "CurvePoint",
    "EmulationCoverage",
    "Ends",
    "Evaluation",
    "FactsRun",
    "Fairness",
    "Figure",
    "Finding",
    "ForeignTime",
    "ForeignTimes",
    "Gemm",
    "Interval",
    "LayerFact",
    "Lifetime",
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
    "Role",
    "RoleShares",
    "Schedule",
    "ScheduleCost",
    "SeedResult",
    "Sensitivity",
    "Started",
    "StepFacts",
    "StepGraph",
    "Task",
    "TensorRef",
    "Trace",
    "TrainingHook",
]
