"""Joins the engines: emulation says how many steps, simulation what a step costs."""

from presilicon.study.evaluation import Evaluated, Plan, Study, carry_out, check_device, compare, evaluate, plan_request
from presilicon.study.fairness import check_strict, compare_all, fairness, strict_problems
from presilicon.study.prices import StepPrices, price_trace
from presilicon.study.request import EvaluateRequest, load_request, read_request
from presilicon.study.scheduling import (
    SIZINGS,
    Scheduled,
    ScheduleRequest,
    Sizing,
    capture_steps,
    carry_out_schedule,
    join_steps,
    problem_of,
    schedule,
)
from presilicon.study.sensitivity import sensitivity, step_sensitivity
from presilicon.study.statistics import interval

__all__ = [
    "SIZINGS",
    "EvaluateRequest",
    "Evaluated",
    "Plan",
    "ScheduleRequest",
    "Scheduled",
    "Sizing",
    "StepPrices",
    "Study",
    "capture_steps",
    "carry_out",
    "carry_out_schedule",
    "check_device",
    "check_strict",
    "compare",
    "compare_all",
    "evaluate",
    "fairness",
    "interval",
    "join_steps",
    "load_request",
    "plan_request",
    "price_trace",
    "problem_of",
    "read_request",
    "schedule",
    "sensitivity",
    "step_sensitivity",
    "strict_problems",
]
