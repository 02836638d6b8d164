"""Joins the engines: emulation says how many steps, simulation what a step costs."""

from presilicon.study.evaluation import Trained, check_device, compare, evaluate, price, train_designs
from presilicon.study.fairness import check_strict, compare_all, fairness, strict_problems
from presilicon.study.price import price_trace
from presilicon.study.reproductions import reproduce, reproduction_names
from presilicon.study.sensitivity import sensitivity, step_sensitivity
from presilicon.study.statistics import interval

__all__ = [
    "Trained",
    "check_device",
    "check_strict",
    "compare",
    "compare_all",
    "evaluate",
    "fairness",
    "interval",
    "price",
    "price_trace",
    "reproduce",
    "reproduction_names",
    "sensitivity",
    "step_sensitivity",
    "strict_problems",
    "train_designs",
]
