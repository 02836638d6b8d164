"""Joins the engines: emulation says how many steps, simulation what a step costs."""

from presilicon.study.evaluation import check_device, compare, evaluate
from presilicon.study.price import price_trace
from presilicon.study.reproductions import reproduce, reproduction_names
from presilicon.study.statistics import interval

__all__ = [
    "check_device",
    "compare",
    "evaluate",
    "interval",
    "price_trace",
    "reproduce",
    "reproduction_names",
]
