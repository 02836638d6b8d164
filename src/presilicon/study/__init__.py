"""Joins the engines: emulation says how many steps, simulation what a step costs.

Importing this room loads nothing else; names are resolved when they are first used.
"""

from typing import TYPE_CHECKING

from presilicon.base import deferred

if TYPE_CHECKING:
    from presilicon.study.execution import ExecuteOptions, execute
    from presilicon.study.hybrid_context import Hybrid, hybrid
    from presilicon.study.instrumented import compare_with_stream, layers_of_workload, stream_file, train_watched
    from presilicon.study.join.evaluation import Study, carry_out, compare, evaluate
    from presilicon.study.join.fairness import check_strict, compare_all, fairness, strict_problems
    from presilicon.study.join.idle import idle_in_prices
    from presilicon.study.join.plan import EvaluationPlan, check_device, plan_request
    from presilicon.study.join.prices import StepGraphs, StepPrices, check_step_taps, price_remarks, price_trace
    from presilicon.study.join.request import EvaluateRequest, load_request, read_request, where_started
    from presilicon.study.join.run_changes import configuration_changes, design_changes
    from presilicon.study.join.sensitivity import sensitivity, step_sensitivity
    from presilicon.study.join.statistics import interval
    from presilicon.study.operand_energy import OperandEnergy, operand_energies
    from presilicon.study.options import ExecutionOptions, Flag, RequestOptions, ScheduleOptions, Sizing
    from presilicon.study.replaying import Replay, ReplayPoint, replay
    from presilicon.study.reproducing import reproduce, reproduction_names, trains
    from presilicon.study.runner import SweepProgress
    from presilicon.study.scheduling import (
        MODELS,
        SIZINGS,
        Scheduled,
        ScheduleRequest,
        capture_steps,
        carry_out_schedule,
        join_steps,
        problem_of,
        schedule,
    )
    from presilicon.study.search.file import read_study, with_options
    from presilicon.study.search.sweep import SweepOptions, carry_out_sweep, read_study_of, sweep

__getattr__ = deferred(__name__)

__all__ = [
    "MODELS",
    "SIZINGS",
    "EvaluateRequest",
    "EvaluationPlan",
    "ExecuteOptions",
    "ExecutionOptions",
    "Flag",
    "Hybrid",
    "OperandEnergy",
    "Replay",
    "ReplayPoint",
    "RequestOptions",
    "ScheduleOptions",
    "ScheduleRequest",
    "Scheduled",
    "Sizing",
    "StepGraphs",
    "StepPrices",
    "Study",
    "SweepOptions",
    "SweepProgress",
    "capture_steps",
    "carry_out",
    "carry_out_schedule",
    "carry_out_sweep",
    "check_device",
    "check_step_taps",
    "check_strict",
    "compare",
    "compare_all",
    "compare_with_stream",
    "configuration_changes",
    "design_changes",
    "evaluate",
    "execute",
    "fairness",
    "hybrid",
    "idle_in_prices",
    "interval",
    "join_steps",
    "layers_of_workload",
    "load_request",
    "operand_energies",
    "plan_request",
    "price_remarks",
    "price_trace",
    "problem_of",
    "read_request",
    "read_study",
    "read_study_of",
    "replay",
    "reproduce",
    "reproduction_names",
    "schedule",
    "sensitivity",
    "step_sensitivity",
    "stream_file",
    "strict_problems",
    "sweep",
    "train_watched",
    "trains",
    "where_started",
    "with_options",
]
