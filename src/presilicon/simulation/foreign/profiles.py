"""Profiles of PyTorch: times of operators on a real machine.

Operators are nested (`aten::linear` calls `aten::addmm`), and a captured graph has those of one level. So a figure
carries the names of all operators around it, outermost first, and is matched to the first that the graph has. On a GPU,
kernels take the time; each belongs to the operator that launched it, by its external id.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from presilicon.base import ConfigError
from presilicon.records import ForeignTime, ForeignTimes

MICRO = 1e-6
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_NAMES = ("Name", "key", "name")
_CALLS = ("# of Calls", "Calls", "count")
_DEVICE_TIMES = ("self_device_time_total", "self_cuda_time_total", "Self CUDA", "Self CUDA total (us)")
_HOST_TIMES = ("self_cpu_time_total", "Self CPU", "Self CPU total (us)")
_UNITS = {"": MICRO, "us": MICRO, "ms": 1e-3, "s": 1.0, "ns": 1e-9}
_LARGEST = 1e300
"""Microseconds; larger ones could overflow in sums."""
_ALSO = {
    "aten._convolution": "aten.convolution",
    "aten.cudnn_convolution": "aten.convolution",
    "aten.mkldnn_convolution": "aten.convolution",
    "aten.clamp_min": "aten.relu",
    "aten.cudnn_batch_norm": "aten.native_batch_norm",
    "aten.cudnn_batch_norm_backward": "aten.native_batch_norm_backward",
}
"""Operators that implement another one; averages do not say which operator called them."""


def read_profile(path: Path, events: Any) -> ForeignTimes:
    """The operators of an exported Chrome trace: by their kernels, or on a CPU by their own time.

    Steps are counted by the profiler's own marks, or by the calls of an optimizer.
    """
    if not isinstance(events, list):
        raise ConfigError(f"{path}: traceEvents should be a list, not {type(events).__name__}")
    spans = [_checked(path, number, event) for number, event in enumerate(events) if _is_span(event)]
    host = sorted((span for span in spans if span["cat"] == "cpu_op"), key=lambda span: (span["ts"], -span["dur"]))
    device = sorted((span for span in spans if span["cat"] in _ON_DEVICE), key=lambda span: span["ts"])
    if not host and not device:
        raise ConfigError(f"{path}: a trace without operators; it should come from PyTorch's profiler")
    around, own_us = _nest(host)
    entries = []
    if device:
        launchers = {span.get("args", {}).get("External id"): number for number, span in enumerate(host)}
        for number, span in enumerate(device, start=len(host)):
            launcher = launchers.get(span.get("args", {}).get("External id"))
            outer = () if launcher is None else around[launcher]
            entries.append(_entry(path, host, outer, span["dur"], also=((str(span["name"]), number),)))
    else:
        entries = [_entry(path, host, outer, own) for outer, own in zip(around, own_us, strict=True)]
    marks = [str(span["name"]) for span in spans if span["cat"] == "user_annotation"]
    steps = sum(mark.startswith("ProfilerStep#") for mark in marks)
    steps = steps or sum(mark.startswith("Optimizer.step#") for mark in marks) or 1
    return ForeignTimes(
        source=str(path), kind="torch-profiler", matching="operator", entries=tuple(entries), steps=steps
    )


def is_averages(header: Sequence[str]) -> bool:
    """Whether a CSV has the columns of the profiler's averages by operator."""
    return any(name in header for name in _NAMES) and any(name in header for name in _DEVICE_TIMES + _HOST_TIMES)


def read_averages(path: Path, header: Sequence[str], table: Sequence[tuple[str, Mapping[str, str]]]) -> ForeignTimes:
    """The profiler's averages by operator (`key_averages()`), as CSV; times in microseconds, or with their unit.

    The time is that of the device where there is any, or else of the host.
    """
    name_column = next(name for name in _NAMES if name in header)
    calls_column = next((name for name in _CALLS if name in header), None)
    columns = [name for name in (*_DEVICE_TIMES, *_HOST_TIMES) if name in header]
    times = {column: [_microseconds(row[column], column, place) for place, row in table] for column in columns}
    chosen = next((column for column in columns if any(times[column])), columns[0])
    entries, steps = [], 1
    for (place, row), time_s in zip(table, times[chosen], strict=True):
        calls = _calls(row[calls_column], calls_column, place) if calls_column else 1
        name = row[name_column]
        if name.startswith(("ProfilerStep", "Optimizer.step#")):
            steps = calls if name.startswith("ProfilerStep") or steps == 1 else steps
            continue
        operator = _operator(name)
        names = (_ALSO[operator], operator) if operator in _ALSO else (operator,)
        entries.append(ForeignTime(names=names, time_s=time_s, calls=calls, place=place))
    return ForeignTimes(
        source=str(path), kind="torch-profiler", matching="operator", entries=tuple(entries), steps=max(1, steps)
    )


def _is_span(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and "cat" in event


def _checked(path: Path, number: int, event: dict[str, Any]) -> dict[str, Any]:
    for field in ("ts", "dur"):
        value = event.get(field)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST:
            raise ConfigError(f"{path} $.traceEvents[{number}].{field} is {str(value)[:40]}, expected a number")
    if event["dur"] < 0:
        raise ConfigError(f"{path} $.traceEvents[{number}].dur is {event['dur']}, expected at least 0")
    arguments = event.get("args", {})
    if not isinstance(arguments, dict):
        raise ConfigError(f"{path} $.traceEvents[{number}].args should be an object, not {_kind(arguments)}")
    named = {"pid": event.get("pid"), "tid": event.get("tid"), "args.External id": arguments.get("External id")}
    for field, value in named.items():
        if value is not None and not isinstance(value, (int, float, str)):
            raise ConfigError(f"{path} $.traceEvents[{number}].{field} should be a number, not {_kind(value)}")
    for field in ("name", "cat"):
        if not isinstance(event.get(field, ""), str):
            raise ConfigError(f"{path} $.traceEvents[{number}].{field} should be text, not {_kind(event[field])}")
    return {"name": "", **event}


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", type(None): "null"}.get(type(value), "a number")


def _nest(host: Sequence[dict[str, Any]]) -> tuple[list[tuple[int, ...]], list[float]]:
    """For each operator: the numbers of those around it and its own, outermost first; and its own time."""
    around: list[tuple[int, ...]] = []
    own_us = [float(span["dur"]) for span in host]
    running: dict[Any, list[int]] = defaultdict(list)
    for number, span in enumerate(host):
        stack = running[span.get("pid"), span.get("tid")]
        while stack and host[stack[-1]]["ts"] + host[stack[-1]]["dur"] <= span["ts"]:
            stack.pop()
        if stack:
            own_us[stack[-1]] -= span["dur"]
        stack.append(number)
        around.append(tuple(stack))
    return around, [max(0.0, own) for own in own_us]


def _entry(
    path: Path,
    host: Sequence[dict[str, Any]],
    outer: Sequence[int],
    time_us: float,
    also: tuple[tuple[str, int], ...] = (),
) -> ForeignTime:
    names = [(_operator(str(host[number]["name"])), number) for number in outer] + list(also)
    return ForeignTime(
        names=tuple(name for name, _ in names),
        runs=tuple(number for _, number in names),
        time_s=time_us * MICRO,
        place=str(path),
    )


def _operator(name: str) -> str:
    return name.replace("::", ".")


def _calls(text: str, column: str, place: str) -> int:
    """A count; one where it is left empty."""
    if text and not (re.fullmatch("[0-9]{1,18}", text) and int(text)):
        raise ConfigError(f"{place}: {column} is {text[:40]!r}, expected a whole number of at least 1")
    return int(text or 1)


def _microseconds(text: str, column: str, place: str) -> float:
    match = re.fullmatch(r"([0-9.eE+-]+)\s*(ns|us|ms|s)?", text)
    try:
        value = float(match[1]) * _UNITS[match[2] or ""] if match else -1.0
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise ConfigError(f"{place}: {column} is {text[:40]!r}, expected microseconds of at least 0")
    return value
