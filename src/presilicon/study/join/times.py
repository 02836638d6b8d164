"""Times of other simulators or profilers, in place of our own, for the designs of a study."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from presilicon.base import ConfigError, unknown
from presilicon.designs import Design
from presilicon.records import ForeignTimes, StepGraph
from presilicon.runs import config_hash
from presilicon.simulation import MatchedTimes, match_times, put_times, read_times, simulate
from presilicon.study.join.plan import Times


def match_designs(
    times: Times | Mapping[str, Times] | None,
    designs: Sequence[Design],
    graphs: Mapping[str, Callable[[], StepGraph]],
    clock_ghz: float | None = None,
) -> dict[str, MatchedTimes]:
    """The given times by design name, each matched with an op of the design's step.

    Cycles are converted with `clock_ghz`, or else with the design's own clock.

    Raises:
        ConfigError: a file is malformed, names an op or a design that does not exist, or there are several designs and
            nothing says which one the times are for.
    """
    if times is None:
        return {}
    if not isinstance(times, Mapping):
        if len(designs) != 1:
            raise ConfigError("times for one of several designs: name it, as in --times fp8-systolic=FILE")
        times = {designs[0].name: times}
    by_name = {design.name: design for design in designs}
    matched = {}
    for name, source in times.items():
        if name not in by_name:
            raise unknown("design", name, by_name)
        design = by_name[name]
        clock = design.machine.clock_ghz if clock_ghz is None else clock_ghz
        foreign = source if isinstance(source, ForeignTimes) else read_times(source, clock)
        graph = graphs[name]()
        matched[name] = match_times(graph, simulate(graph, design), foreign)
    return matched


def with_times(
    provenance: dict[str, Any], graph: StepGraph, design: Design, times: MatchedTimes | None
) -> dict[str, Any]:
    """A provenance extended by the origin of the times and the share of a step they cover; its hash includes them."""
    if times is None:
        return provenance | {"times": "simulated"}
    ops = {name: msgspec.to_builtins(op) for name, op in times.ops.items()}
    return provenance | {
        "config_hash": config_hash({"config": provenance["config_hash"], "times": ops}),
        "times": msgspec.to_builtins(put_times(simulate(graph, design), times)[1]),
    }
