"""The files of a schedule: its page, a trace for Perfetto, power over time, and the JSON document."""

import json
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from presilicon.base import DOCUMENT_SCHEMA, ConfigError
from presilicon.records import PowerTrace, Problem, Schedule
from presilicon.report.page.schedule import render_schedule
from presilicon.report.perfetto import counter, metadata, span
from presilicon.report.schedule import ScheduleView


def schedule_trace(problem: Problem, schedule: Schedule, trace: PowerTrace, *, system: str) -> dict[str, Any]:
    """A schedule in Google's Trace Event Format: a track per device, and power as counters."""
    lanes = {(pool.name, unit): 0 for pool in problem.pools for unit in range(pool.units)}
    lanes = {lane: number for number, lane in enumerate(lanes, start=1)}
    events = [metadata("process_name", 0, name=f"{system}: {problem.name}")]
    for (device, unit), number in lanes.items():
        events.append(metadata("thread_name", number, name=f"{device} {unit}"))
    for slot in schedule.started:
        task, mode = problem.tasks[slot.task], slot.mode
        figures = {"clock": mode.clock, "average_w": mode.average_w, "peak_w": mode.peak_w, "source": mode.source}
        for unit in slot.units:
            track, name = lanes[mode.device, unit], f"{task.kind} {task.size}".rstrip()
            lasts_s = slot.end_s - slot.start_s
            events.append(span(track, name, slot.start_s, lasts_s, category="scheduled", op=task.name, **figures))
    for time, average, peak in zip(trace.times_s, (*trace.average_w, 0.0), (*trace.peak_w, 0.0), strict=True):
        events.append(counter("power (W)", time, average=average, peak=peak))
    events.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0.0)))
    other = {"schema": DOCUMENT_SCHEMA, "generator": "presilicon", "system": system, "workload": problem.name}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def check_folder(folder: Path) -> None:
    """Create a folder and check that files can be written into it, before the work and not after it.

    Raises:
        ConfigError: the folder cannot be created, or not be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror or error}") from None


def save_schedule(folder: Path, view: ScheduleView, document: str, *, system: str) -> list[Path]:
    """Write `schedule.html`, `trace.json`, `power.csv` and `schedule.json` into a folder; returns their paths."""
    power = "time_s,average_w,peak_w\n" + "".join(
        f"{time:.9g},{average:.6g},{peak:.6g}\n"
        for time, average, peak in zip(view.trace.times_s, view.trace.average_w, view.trace.peak_w, strict=False)
    )
    trace = schedule_trace(view.problem, view.schedule, view.trace, system=system)
    texts = {
        "schedule.html": render_schedule(view),
        "trace.json": json.dumps(trace, separators=(",", ":")),
        "power.csv": power,
        "schedule.json": document,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror or error}") from None
    return [folder / name for name in texts]
