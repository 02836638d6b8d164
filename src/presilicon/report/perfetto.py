"""A simulated step as a trace that Perfetto and chrome://tracing show: one track per unit, and counters over time.

The format is Google's Trace Event Format: complete events (`X`) for what runs, counter events (`C`) for what is held,
drawn or moved, metadata events (`M`) for names. Times are microseconds from 0, as the format has them, with whole
nanoseconds: Perfetto keeps no finer ones, and spans that share an edge must not overlap by what is rounded away.
"""

import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from presilicon.base.errors import ConfigError
from presilicon.records import Cost, MemoryTimeline, OpCost, StepGraph

_PROCESS = 1
_STEP, _PHASES, _FIRST_UNIT = 1, 2, 10
_DRAM = "dram"
_MEMORY, _POWER, _BANDWIDTH = "memory held (MB)", "power (W)", "DRAM bandwidth (GB/s)"

Event = dict[str, Any]


def save_trace(
    path: Path, cost: Cost, timeline: MemoryTimeline, *, design: str, graph: StepGraph, repeat: int = 1
) -> Path:
    """Write `trace_document` to a `.json` file, compressed when its name ends in `.json.gz`, and return its path.

    Raises:
        ConfigError: the name ends otherwise, or the file cannot be written.
    """
    if not path.name.lower().endswith((".json", ".json.gz")):
        raise ConfigError(f"{path}: a trace is a .json or a .json.gz file")
    document = trace_document(cost, timeline, design=design, graph=graph, repeat=repeat)
    content = json.dumps(document, separators=(",", ":")).encode()
    if path.suffix.lower() == ".gz":
        content = gzip.compress(content, mtime=0)  # the same step gives the same bytes
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    return path


def trace_document(
    cost: Cost, timeline: MemoryTimeline, *, design: str, graph: StepGraph, repeat: int = 1
) -> dict[str, Any]:
    """The step as a trace: phases, what each unit computes, what crosses DRAM, memory held, power and bandwidth.

    On its unit's track, an op is as long as it computes; what it waits for memory after that is a gap there, and a
    transfer on the DRAM track. Of `repeat` equal steps the first is shown and the others are one span, with means in
    place of the counters.
    """
    units = list(dict.fromkeys(op.unit for op in cost.ops))
    tracks = {unit: _FIRST_UNIT + number for number, unit in enumerate([*units, _DRAM])}
    title = f"{design}: {graph.name}, batch {graph.batch_size}"
    events = [
        _metadata("process_name", 0, name=title),
        *_track(_STEP, "step"),
        *_track(_PHASES, "phase"),
        *(event for unit, track in tracks.items() for event in _track(track, unit)),
        _span(_STEP, "step", 0.0, cost.time_s, time_s=cost.time_s, energy_j=cost.energy_j, cycles=cost.cycles),
    ]
    for phase, ops in groupby(cost.ops, key=lambda op: op.phase):
        run = list(ops)
        events.append(_span(_PHASES, phase.replace("_", " "), run[0].start_s, run[-1].end_s - run[0].start_s))
    for op in cost.ops:
        events.append(_span(tracks[op.unit], op.name, op.start_s, min(op.compute_s, op.time_s), **_details(op)))
    events += (transfer for transfer in _transfers(cost.ops, tracks[_DRAM]) if transfer["dur"])
    events += _counters(cost, timeline)
    if repeat > 1:
        events += _repeats(cost, timeline, repeat)
    events.append(_counter(_POWER, repeat * cost.time_s, power=0.0))
    events.append(_counter(_BANDWIDTH, repeat * cost.time_s, bandwidth=0.0))
    events.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0.0), -event.get("dur", 0.0)))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "schema": 1,
            "generator": "presilicon",
            "design": design,
            "workload": graph.name,
            "batch_size": graph.batch_size,
            "steps": repeat,
            "time_s": repeat * cost.time_s,
            "energy_j": repeat * cost.energy_j,
        },
    }


def _details(op: OpCost) -> dict[str, Any]:
    return {
        "kind": op.kind,
        "phase": op.phase,
        "layer": op.layer,
        "bound": op.bound,
        "time_s": op.time_s,
        "cycles": op.cycles,
        "energy_j": op.energy_j,
        "flops": op.flops,
        "bytes_dram": op.bytes_dram,
        "utilization": op.utilization,
    }


def _transfers(ops: tuple[OpCost, ...], track: int) -> Iterator[Event]:
    """What crosses DRAM: most while its op runs, and what is fetched ahead once the transfers before are done."""
    free_s = 0.0
    for op in ops:
        if op.prefetched_s:
            yield _span(track, f"{op.name} (ahead)", free_s, op.prefetched_s, op=op.name)
        left_s = min(op.memory_s - op.prefetched_s, op.time_s)
        if left_s > 0:
            yield _span(track, op.name, op.start_s, left_s, op=op.name, bytes=op.bytes_dram)
        free_s = op.start_s + max(left_s, 0.0)


def _counters(cost: Cost, timeline: MemoryTimeline) -> Iterator[Event]:
    for point in timeline.points:
        if point.end_s > point.start_s:
            yield _counter(_MEMORY, point.start_s, **{k: v / 1e6 for k, v in point.parts().items()})
    for op in cost.ops:
        if op.time_s:
            yield _counter(_POWER, op.start_s, power=op.energy_j / op.time_s)
            yield _counter(_BANDWIDTH, op.start_s, bandwidth=op.bytes_dram / op.time_s / 1e9)


def _repeats(cost: Cost, timeline: MemoryTimeline, repeat: int) -> Iterator[Event]:
    """All steps after the first: one span, and the means of a step as counters."""
    more, start_s, time_s = repeat - 1, cost.time_s, (repeat - 1) * cost.time_s
    noun = "step" if more == 1 else "steps"
    yield _span(
        _STEP, f"{more:,} more {noun} like it", start_s, time_s,
        steps=more, time_s=time_s, energy_j=more * cost.energy_j, cycles=more * cost.cycles,
    )  # fmt: skip
    if not cost.time_s:
        return
    moved = sum(op.bytes_dram for op in cost.ops)
    means: dict[str, float] = {}
    for point in timeline.points:
        share = (point.end_s - point.start_s) / cost.time_s
        for part, size in point.parts().items():
            means[part] = means.get(part, 0.0) + share * size / 1e6
    yield _counter(_MEMORY, start_s, **means)
    yield _counter(_POWER, start_s, power=cost.energy_j / cost.time_s)
    yield _counter(_BANDWIDTH, start_s, bandwidth=moved / cost.time_s / 1e9)


def _span(track: int, name: str, start_s: float, time_s: float, /, **details: Any) -> Event:
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": track,
        "name": name,
        "cat": "simulated",
        "ts": _micros(start_s),
        "dur": round(_micros(start_s + time_s) - _micros(start_s), 3),
        "args": details,
    }


def _counter(name: str, at_s: float, **series: float) -> Event:
    return {"ph": "C", "pid": _PROCESS, "name": name, "ts": _micros(at_s), "args": series}


def _micros(time_s: float) -> float:
    return round(time_s * 1e9) / 1e3


def _metadata(kind: str, track: int, **args: Any) -> Event:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": kind, "args": args}


def _track(track: int, name: str) -> tuple[Event, Event]:
    return _metadata("thread_name", track, name=name), _metadata("thread_sort_index", track, sort_index=track)
