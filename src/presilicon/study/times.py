"""Whose times price the steps of a design: ours, or another's that were given for it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from presilicon.base.errors import ConfigError, unknown
from presilicon.designs import Design
from presilicon.records import Cost, ForeignTimes, StepFacts, StepGraph
from presilicon.runs import config_hash
from presilicon.simulation import MatchedTimes, match_times, put_times, read_times, simulate

Times = ForeignTimes | Path | str
"""Times of a step, or the file that has them."""


def match_designs(
    times: Times | Mapping[str, Times] | None,
    designs: Sequence[Design],
    graph: StepGraph,
    clock_ghz: float | None = None,
) -> dict[str, MatchedTimes]:
    """The times of each design that has some given, by its name, each found an op in the graph.

    Cycles are those of `clock_ghz`, or else of the design's own clock.

    Raises:
        ConfigError: a file is broken, names an op that is not there or a design that is not, or there are several
            designs and nothing says whose times they are.
    """
    if times is None:
        return {}
    if not isinstance(times, Mapping):
        if len(designs) != 1:
            raise ConfigError("times for one of several designs: say whose they are, as in --times fp8-systolic=FILE")
        times = {designs[0].name: times}
    by_name = {design.name: design for design in designs}
    found = {}
    for name, given in times.items():
        if name not in by_name:
            raise unknown("design", name, by_name)
        design = by_name[name]
        clock = design.machine.clock_ghz if clock_ghz is None else clock_ghz
        read = given if isinstance(given, ForeignTimes) else read_times(given, clock)
        found[name] = match_times(graph, simulate(graph, design), read)
    return found


def step_price(graph: StepGraph, design: Design, times: MatchedTimes | None) -> Callable[[StepFacts], Cost]:
    """What a step with some facts costs: `simulate`, with the given times in place."""

    def price(facts: StepFacts) -> Cost:
        cost = simulate(graph, design, facts)
        return cost if times is None else put_times(cost, times)[0]

    return price


def with_times(
    provenance: dict[str, Any], graph: StepGraph, design: Design, times: MatchedTimes | None
) -> dict[str, Any]:
    """The provenance of a result with whose times it rests on, and of how much of a step; they are in its hash."""
    if times is None:
        return provenance | {"times": "simulated"}
    given = {name: msgspec.to_builtins(op) for name, op in times.ops.items()}
    return provenance | {
        "config_hash": config_hash({"config": provenance["config_hash"], "times": given}),
        "times": msgspec.to_builtins(put_times(simulate(graph, design), times)[1]),
    }
