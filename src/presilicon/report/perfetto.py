"""A simulated step as a trace for Perfetto and chrome://tracing: one track per unit, and counters over time.

The format is Google's Trace Event Format: complete events (`X`) for ops and phases, counter events (`C`) for memory,
power and bandwidth, metadata events (`M`) for names. Times are microseconds from 0, rounded to nanoseconds: Perfetto
has no finer resolution, and adjacent spans must not overlap through rounding.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from presilicon.base import DOCUMENT_SCHEMA, ConfigError, pick, write_file
from presilicon.records import Cost, MemoryTimeline, OpCost, StepGraph

_PROCESS = 1
_STEP, _SECOND_TRACK = 1, 2
_PHASE, _DRAM = "phase", "dram"
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
        raise ConfigError(f"the name of a trace must end in .json or .json.gz: {path}")
    document = trace_document(cost, timeline, design=design, graph=graph, repeat=repeat)
    content = json.dumps(document, separators=(",", ":")).encode()
    if path.suffix.lower() == ".gz":
        content = gzip.compress(content, mtime=0)  # the same step gives the same bytes
    return write_file(path, content)


def trace_document(
    cost: Cost, timeline: MemoryTimeline, *, design: str, graph: StepGraph, repeat: int = 1
) -> dict[str, Any]:
    """The step as a trace: phases, ops per unit, DRAM transfers, memory, power and bandwidth.

    On its unit's track, an op is as long as it computes; the time it then waits for memory is a gap on that track and a
    transfer on the DRAM track. If ops overlap (the stages of a pipeline), they are spread over several rows, which have
    numbered tracks of their own. Of `repeat` equal steps the first is shown in full; the others are one span, with mean
    values for the counters.

    Power is that of the running ops; while the step waits (for the host or other chips), it is the energy spent outside
    ops. Over the step it adds up to its energy. Bandwidth is the mean over each op, including prefetches for the next.
    """
    cost = msgspec.structs.replace(cost, ops=tuple(cost.ops[position] for position in cost.order()))
    lanes = cost.lanes()
    rows = 1 + max(lanes, default=0)
    tracks = _tracks(cost.ops, lanes)
    title = f"{design}: {graph.name}, {cost.batch_text}"
    events = [
        metadata("process_name", 0, name=title),
        *_track(_STEP, "step"),
        *(event for name, track in tracks.items() for event in _track(track, name)),
        span(_STEP, "step", 0.0, cost.time_s, time_s=cost.time_s, energy_j=cost.energy_j, cycles=cost.cycles),
    ]
    for row in range(rows):
        mine = (op for op, lane in zip(cost.ops, lanes, strict=True) if lane == row)
        for phase, ops in groupby(mine, key=lambda op: op.phase):
            run = list(ops)
            track = tracks[_numbered(_PHASE, row, rows)]
            events.append(span(track, phase.replace("_", " "), run[0].start_s, run[-1].end_s - run[0].start_s))
    for (op, start_s, time_s), row in zip(_computed(cost.ops), lanes, strict=True):
        track = tracks[_numbered(op.unit, row, rows)]
        events.append(span(track, op.name, start_s, time_s, **pick(op, *_DETAILS)))
    transfers = _transfers(_merged(cost.ops)) if rows == 1 else _queued(cost)
    events += (
        span(tracks[_DRAM], f"{op.name} (ahead)" if ahead else op.name, start_s, time_s, op=op.name, bytes=moved)
        for op, ahead, start_s, time_s, moved in transfers
        if _micros(start_s + time_s) > _micros(start_s)
    )
    events += _counters(cost, timeline, rows)
    if repeat > 1:
        events += _repeats(cost, timeline, repeat)
    events.append(counter(_POWER, repeat * cost.time_s, power=0.0))
    events.append(counter(_BANDWIDTH, repeat * cost.time_s, bandwidth=0.0))
    events.sort(
        key=lambda event: (event["ph"] != "M", event.get("ts", 0.0))
    )  # events of zero length stay before the next
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "schema": DOCUMENT_SCHEMA,
            "generator": "presilicon",
            "design": design,
            "workload": graph.name,
            "batch_size": cost.batch_size,
            "steps": repeat,
            "time_s": repeat * cost.time_s,
            "energy_j": repeat * cost.energy_j,
        },
    }


def _groups(ops: Sequence[OpCost]) -> Iterator[list[OpCost]]:
    """Ops that are fused, together; others one by one."""
    for _, group in groupby(ops, key=lambda op: op.group or op.name):
        yield list(group)


def _computed(ops: Sequence[OpCost]) -> Iterator[tuple[OpCost, float, float]]:
    """Start and time of the compute of each op. In a group, each unit does its ops from the start of the group on."""
    for group in _groups(ops):
        whole_s = sum(op.time_s for op in group)
        busy_s = {unit: sum(op.compute_s for op in group if op.unit == unit) for unit in {op.unit for op in group}}
        free_s = dict.fromkeys(busy_s, group[0].start_s)
        for op in group:
            shrunk = min(1.0, whole_s / busy_s[op.unit]) if busy_s[op.unit] else 1.0
            yield op, free_s[op.unit], op.compute_s * shrunk
            free_s[op.unit] += op.compute_s * shrunk


def _merged(ops: Sequence[OpCost]) -> list[OpCost]:
    """Each group as one op, for what it moves."""
    merged = []
    for group in _groups(ops):
        sums = {name: sum(getattr(op, name) for op in group) for name in _SUMMED}
        merged.append(msgspec.structs.replace(group[0], **sums) if len(group) > 1 else group[0])
    return merged


_SUMMED = ("time_s", "memory_s", "prefetched_s", "bytes_dram")
_DETAILS = ("kind", "phase", "layer", "bound", "time_s", "cycles", "energy_j", "flops", "bytes_dram", "utilization")


def _tracks(ops: Sequence[OpCost], lanes: Sequence[int]) -> dict[str, int]:
    """Track numbers by name, without the step's track: rows of ops, then DRAM."""
    rows = 1 + max(lanes, default=0)
    names = []
    for row in range(rows):
        units = dict.fromkeys(op.unit for op, lane in zip(ops, lanes, strict=True) if lane == row)
        names += [_numbered(name, row, rows) for name in (_PHASE, *units)]
    return {name: track for track, name in enumerate([*names, _DRAM], start=_SECOND_TRACK)}


def _numbered(name: str, row: int, rows: int) -> str:
    return name if rows == 1 else f"{name} {row + 1}"


Transfer = tuple[OpCost, bool, float, float, float]
"""Op, whether it is a prefetch, start, duration and bytes of a transfer."""


def _transfers(ops: Sequence[OpCost]) -> Iterator[Transfer]:
    """DRAM transfers: most while their op runs, prefetches as soon as earlier transfers are done."""
    free_s = 0.0
    for op in ops:
        ahead = _ahead_bytes(op)
        if op.prefetched_s:
            yield op, True, free_s, max(0.0, min(op.prefetched_s, op.start_s - free_s)), ahead
        left_s = max(0.0, min(op.memory_s - op.prefetched_s, op.time_s))
        yield op, False, op.start_s, left_s, op.bytes_dram - ahead
        free_s = op.start_s + left_s


def _queued(cost: Cost) -> Iterator[Transfer]:
    """DRAM transfers of overlapping ops that share the channel: one after another, all within the step."""
    left_s = sum(op.memory_s for op in cost.ops)
    shrunk = min(1.0, cost.time_s / left_s) if left_s else 1.0
    left_s *= shrunk
    free_s = 0.0
    for op in sorted(cost.ops, key=lambda op: (op.start_s, op.index)):
        start_s = max(free_s, min(op.start_s, cost.time_s - left_s))
        yield op, False, start_s, op.memory_s * shrunk, op.bytes_dram
        free_s = start_s + op.memory_s * shrunk
        left_s -= op.memory_s * shrunk


def _ahead_bytes(op: OpCost) -> float:
    return op.bytes_dram * min(1.0, op.prefetched_s / op.memory_s) if op.memory_s else 0.0


def _counters(cost: Cost, timeline: MemoryTimeline, rows: int) -> Iterator[Event]:
    for point in timeline.points:
        if point.end_s > point.start_s:
            yield counter(_MEMORY, point.start_s, **{k: v / 1e6 for k, v in point.parts().items()})
    for at_ns, watts in _power(cost):
        yield counter(_POWER, at_ns / 1e9, power=watts)
    if rows == 1:
        moved = _moved(_merged(cost.ops))
    else:
        moved = [(start_s, time_s, size) for _, _, start_s, time_s, size in _queued(cost)]
    rates = [
        (_nanos(start_s), _nanos(start_s + time_s), size / time_s / 1e9) for start_s, time_s, size in moved if time_s
    ]
    for at_ns, _, gb_s in _levels(rates, _nanos(cost.time_s)):
        yield counter(_BANDWIDTH, at_ns / 1e9, bandwidth=gb_s)


def _power(cost: Cost) -> list[tuple[int, float]]:
    """Start times and watts; integrated, they give the energy of the step.

    Energy spent outside ops is put into the waits, if there are any. Energy of ops shorter than a nanosecond, the
    resolution of a trace, is spread over the step.
    """
    end_ns = _nanos(cost.time_s)
    spans = [(_nanos(op.start_s), _nanos(op.end_s), op.energy_j) for op in cost.ops]
    levels = _levels(
        [(start, end, joules * 1e9 / (end - start)) for start, end, joules in spans if end > start], end_ns
    )
    ends = [at for at, _, _ in levels[1:]] + [end_ns]
    waits_ns = sum(end - at for (at, running, _), end in zip(levels, ends, strict=True) if not running)
    rest_j = max(0.0, cost.energy_j - sum(joules for _, _, joules in spans))
    always_j = sum(joules for start, end, joules in spans if end <= start) + (0.0 if waits_ns else rest_j)
    always_w = always_j * 1e9 / end_ns if end_ns else 0.0
    waiting_w = rest_j * 1e9 / waits_ns if waits_ns else 0.0
    return [(at, watts + always_w + (0.0 if running else waiting_w)) for at, running, watts in levels]


def _moved(ops: Sequence[OpCost]) -> list[tuple[float, float, float]]:
    """Start, seconds and bytes per op: its own transfers, and prefetches for the next op."""
    ahead = [_ahead_bytes(op) for op in ops]
    return [
        (op.start_s, op.time_s, op.bytes_dram - own + following)
        for op, own, following in zip(ops, ahead, [*ahead[1:], 0.0], strict=True)
    ]


def _levels(spans: Sequence[tuple[int, int, float]], end: int) -> list[tuple[int, int, float]]:
    """Start time, number of running spans and sum of their rates, for each interval before `end`."""
    edges: dict[int, tuple[list[int], list[int]]] = {0: ([], [])}
    for number, (start, stop, _) in enumerate(spans):
        if stop > start:
            edges.setdefault(start, ([], []))[0].append(number)
            edges.setdefault(stop, ([], []))[1].append(number)
    running: dict[int, float] = {}
    levels = []
    for at in sorted(edges):
        begun, ended = edges[at]
        for number in ended:
            del running[number]
        running.update({number: spans[number][2] for number in begun})
        if at < end:
            levels.append((at, len(running), sum(running.values(), 0.0)))
    return levels


def _repeats(cost: Cost, timeline: MemoryTimeline, repeat: int) -> Iterator[Event]:
    """All steps after the first as one span, with the means of a step as counters."""
    more, start_s, time_s = repeat - 1, cost.time_s, (repeat - 1) * cost.time_s
    noun = "step" if more == 1 else "steps"
    yield span(
        _STEP, f"{more:,} more {noun} like it", start_s, time_s,
        steps=more, time_s=time_s, energy_j=more * cost.energy_j, cycles=more * cost.cycles,
    )  # fmt: skip
    if not cost.time_s:
        return
    moved = sum(op.bytes_dram for op in cost.ops)
    means: dict[str, float] = {}
    # Ops may overlap, and there may be waits between them: the mean is over the seconds of ops.
    seconds = [point.end_s - point.start_s for point in timeline.points]
    if not sum(seconds):
        seconds = [1.0] * len(seconds)
    whole_s = sum(seconds)
    for point, held_s in zip(timeline.points, seconds, strict=True):
        for part, size in point.parts().items():
            means[part] = means.get(part, 0.0) + held_s / whole_s * size / 1e6
    yield counter(_MEMORY, start_s, **means)
    yield counter(_POWER, start_s, power=cost.energy_j / cost.time_s)
    yield counter(_BANDWIDTH, start_s, bandwidth=moved / cost.time_s / 1e9)


def span(track: int, name: str, start_s: float, time_s: float, /, category: str = "simulated", **details: Any) -> Event:
    """Something that lasts for some time on a track."""
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": track,
        "name": name,
        "cat": category,
        "ts": _micros(start_s),
        "dur": max(0.0, round(_micros(start_s + time_s) - _micros(start_s), 3)),
        "args": details,
    }


def counter(name: str, at_s: float, **series: float) -> Event:
    """Numbers that hold from a time on."""
    return {"ph": "C", "pid": _PROCESS, "name": name, "ts": _micros(at_s), "args": series}


def _micros(time_s: float) -> float:
    return _nanos(time_s) / 1e3


def _nanos(time_s: float) -> int:
    return round(time_s * 1e9)


def metadata(kind: str, track: int, **args: Any) -> Event:
    """The name or position of a track."""
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": kind, "args": args}


def _track(track: int, name: str) -> tuple[Event, Event]:
    return metadata("thread_name", track, name=name), metadata("thread_sort_index", track, sort_index=track)
