"""A schedule as one HTML page (a Gantt chart, power over time, what moved and why), and as a trace for Perfetto."""

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from presilicon.base.errors import ConfigError
from presilicon.base.units import format_joules, format_percent, format_seconds
from presilicon.records import PowerTrace, Problem, Schedule, ScheduleCost, Started
from presilicon.report.page import plain_page
from presilicon.report.palette import LIGHT

_WIDTH, _LEFT, _LANE, _POWER_HEIGHT = 1000, 74, 26, 220
_POINTS = 1500


class Payback(NamedTuple):
    """When devices that were bought to save energy have paid for themselves, and what that rests on."""

    price_usd: float
    usd_per_kwh: float
    saved_w: float
    """Less power for the same samples per second, in the mean."""
    years: float | None
    """None: never."""


class ScheduleView(NamedTuple):
    """All that a page shows of a schedule."""

    title: str
    subline: str
    problem: Problem
    schedule: Schedule
    cost: ScheduleCost
    trace: PowerTrace
    compared: Sequence[tuple[str, ScheduleCost, str]]
    """Name, cost and a note of each that the schedule is held against."""
    reasons: Sequence[str]
    reference: str
    cap_w: float | None
    payback: Payback | None
    notes: Sequence[str]


_STYLE = """
.gantt > svg { display: block; width: 100%; height: auto; margin-top: 16px; }
.gantt text { font: 12px var(--sans); fill: var(--soft); }
.gantt .names { margin-top: 8px; }
.gantt .names span { display: inline-block; margin-right: 1rem; font-size: 13px; }"""

_BODY = Template("""<section><h2>Costs of a step</h2>$costs</section>
<section class="gantt"><h2>What runs where</h2>$gantt</section>
<section class="gantt"><h2>Power</h2>$power</section>
<section><h2>What moved, and why</h2>$moved</section>
$payback
<section><h2>What this rests on</h2><ul>$notes</ul></section>
<footer>Scheduled, not run: times and powers are those of the table and of the models named above.</footer>
""")


def render_schedule(view: ScheduleView) -> str:
    """The page as text."""
    body = _BODY.substitute(
        costs=_costs(view),
        gantt=_gantt(view),
        power=_power(view),
        moved=_moved(view),
        payback=_payback(view.payback),
        notes="".join(f"<li>{escape(note)}</li>" for note in view.notes),
    )
    return plain_page(
        title=view.title,
        eyebrow="a training step over several devices",
        subline=view.subline,
        body=body,
        style=_STYLE,
    )


def _costs(view: ScheduleView) -> str:
    head = ("", "Time", "Samples/s", "Energy", "Average power", "Peak power", "Samples per J", "Violations", "")
    rows = [("this schedule", view.cost, ""), *view.compared]
    body = ""
    for name, cost, note in rows:
        cells = [
            format_seconds(cost.makespan_s),
            f"{cost.throughput_samples_per_s:.4g}",
            format_joules(cost.energy_per_step_j),
            f"{cost.average_power_w:.4g} W",
            f"{cost.peak_power_w:.4g} W",
            f"{cost.samples_per_j:.3g}",
            "–" if cost.violations is None else str(cost.violations),
        ]
        body += f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}'
        body += f'<td style="text-align:left">{escape(note)}</td></tr>'
    return _table(head, body)


def _table(head: Sequence[str], body: str) -> str:
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _gantt(view: ScheduleView) -> str:
    span = view.schedule.makespan_s or 1.0
    lanes = [(pool.name, unit) for pool in view.problem.pools for unit in range(pool.units)]
    top = {lane: index * _LANE + 4 for index, lane in enumerate(lanes)}
    busy: Counter[str] = Counter()
    for each in view.schedule.started:
        busy[view.problem.tasks[each.task].kind] += each.mode.time_s * each.mode.units  # type: ignore[assignment]
    kinds = [kind for kind, _ in busy.most_common(len(LIGHT) - 1)]
    # The kinds that take longest have colours of their own.
    colour = {kind: kinds.index(kind) if kind in kinds else len(LIGHT) - 1 for kind in busy}
    kinds += ["others"] if len(busy) > len(kinds) else []
    colour["others"] = len(LIGHT) - 1
    height = len(lanes) * _LANE + 28
    parts = [
        f'<text x="0" y="{top[lane] + _LANE - 10}">{escape(f"{lane[0]} {lane[1]}")}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{top[lane] + _LANE - 3}" y2="{top[lane] + _LANE - 3}" '
        'stroke="currentColor" stroke-opacity=".12"/>'
        for lane in lanes
    ]
    for each in view.schedule.started:
        task = view.problem.tasks[each.task]
        left = _LEFT + each.start_s / span * (_WIDTH - _LEFT)
        width = max(each.mode.time_s / span * (_WIDTH - _LEFT), 0.4)
        what = f"{task.name} {task.kind} {task.size}, {format_seconds(each.mode.time_s)}, {each.mode.average_w:.4g} W"
        clock = "" if each.mode.clock == 1.0 else f", clock {each.mode.clock:g}"
        parts += [
            f'<rect x="{left:.2f}" y="{top[each.mode.device, unit]}" width="{width:.2f}" height="{_LANE - 8}" '
            f'fill="var(--c{colour[task.kind]})"><title>{escape(what + clock)}</title></rect>'
            for unit in each.units
        ]
    parts += _axis(span, height)
    names = "".join(
        f'<span><svg width="12" height="12" style="display:inline"><rect width="12" height="12" '
        f'fill="var(--c{colour[kind]})"/></svg> {escape(kind)}</span>'
        for kind in kinds
    )
    label = "Gantt chart: one row for each device, one bar for each op"
    svg = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    return f'{svg}<p class="names">{names}</p>'


def _axis(span: float, height: float) -> list[str]:
    return [
        f'<text x="{_LEFT + part * (_WIDTH - _LEFT):.0f}" y="{height - 6:.0f}" '
        f'text-anchor="{"start" if part == 0 else "end" if part == 1 else "middle"}">'
        f"{escape(format_seconds(part * span))}</text>"
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]


def _power(view: ScheduleView) -> str:
    trace, span = view.trace, view.schedule.makespan_s or 1.0
    highest = max([*trace.peak_w, view.cap_w or 0.0, 1.0]) * 1.05
    bottom = _POWER_HEIGHT - 28

    def across(time: float) -> float:
        return _LEFT + time / span * (_WIDTH - _LEFT)

    def up(watts: float) -> float:
        return bottom - watts / highest * (bottom - 8)

    lines = []
    for watts, colour, name in ((trace.peak_w, 1, "peak"), (trace.average_w, 0, "average")):
        # Of very many pieces, evenly chosen ones.
        stride = max(1, len(watts) // _POINTS)
        points = []
        for index in range(0, len(watts), stride):
            group = watts[index : index + stride]
            value = max(group) if name == "peak" else sum(group) / len(group)
            end = trace.times_s[min(index + stride, len(watts))]
            points += [f"{across(trace.times_s[index]):.2f},{up(value):.2f}", f"{across(end):.2f},{up(value):.2f}"]
        lines.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="var(--c{colour})" stroke-width="1.4">'
            f"<title>{name} power</title></polyline>"
        )
    cap = ""
    if view.cap_w is not None:
        cap = (
            f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{up(view.cap_w):.1f}" y2="{up(view.cap_w):.1f}" stroke="var(--bad)" '
            f'stroke-dasharray="6 4"/><text x="{_WIDTH}" y="{up(view.cap_w) - 5:.1f}" text-anchor="end">cap '
            f"{view.cap_w:g} W</text>"
        )
    ticks = "".join(
        f'<text x="{_LEFT - 8}" y="{up(watts) + 4:.1f}" text-anchor="end">{watts:.0f} W</text>'
        for watts in (0.0, highest / 2, highest / 1.05)
    )
    legend = (
        '<p class="names"><span style="color:var(--c0)">average power</span>'
        '<span style="color:var(--c1)">peaks of what runs</span></p>'
    )
    axis = "".join(_axis(span, _POWER_HEIGHT))
    label = "Power over the step"
    svg = f'<svg viewBox="0 0 {_WIDTH} {_POWER_HEIGHT}" role="img" aria-label="{label}">'
    return f"{svg}{''.join(lines)}{cap}{ticks}{axis}</svg>{legend}"


class Moved(NamedTuple):
    """Ops of one kind and size on one device."""

    kind: str
    size: str
    device: str
    clock: float
    ops: int
    busy_s: float
    energy_j: float
    home_j: float | None
    """What they would take on the reference device at full clock."""
    why: str


def moved_rows(problem: Problem, started: Sequence[Started], reasons: Sequence[str], reference: str) -> list[Moved]:
    """What runs elsewhere, or at another clock, by kind, size and device, the longest first."""
    groups: dict[tuple[str, str, str, float], list[Started]] = {}
    for each in started:
        task = problem.tasks[each.task]
        if each.mode.device != reference or each.mode.clock != 1.0:
            groups.setdefault((task.kind, task.size, each.mode.device, each.mode.clock), []).append(each)
    found = []
    for key, members in groups.items():
        homes = [
            next((mode.energy_j for mode in problem.tasks[each.task].modes if mode.device == reference), None)
            for each in members
        ]
        whys = Counter(reasons[each.task] for each in members if reasons[each.task])
        text = whys.most_common(1)[0][0] if whys else ""
        found.append(
            Moved(
                *key,
                len(members),
                sum(each.mode.time_s for each in members),
                sum(each.mode.energy_j for each in members),
                None if None in homes else sum(home for home in homes if home is not None),
                text if len(whys) < 2 else f"{text} (and {len(whys) - 1} like it)",
            )
        )
    return sorted(found, key=lambda row: -row.busy_s)


def _moved(view: ScheduleView) -> str:
    rows = moved_rows(view.problem, view.schedule.started, view.reasons, view.reference)
    if not rows:
        return f"<p>Nothing: everything runs on {escape(view.reference)} at full clock.</p>"
    body = ""
    for row in rows:
        texts = [
            row.device,
            f"{row.clock:g}",
            str(row.ops),
            format_seconds(row.busy_s),
            format_joules(row.energy_j),
            "–" if row.home_j is None else format_joules(row.home_j),
        ]
        cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        kind = f"{row.kind} {row.size}".rstrip()
        why = f'<td style="text-align:left">{escape(row.why)}</td>'
        body += f'<tr><th scope="row">{escape(kind)}</th>{cells}{why}</tr>'
    head = ("Op", "Device", "Clock", "Ops", "Busy", "Energy", f"On {view.reference}", "Why")
    return _table(head, body)


def _payback(payback: Payback | None) -> str:
    if payback is None:
        return ""
    return f"<section><h2>Payback</h2><p>{escape(payback_sentence(payback))}</p></section>"


def payback_sentence(payback: Payback) -> str:
    """What it would take for the added devices to pay for themselves."""
    given = (
        f"The added devices cost {payback.price_usd:,.0f} USD; at {payback.usd_per_kwh:g} USD/kWh, day and night, "
        f"for the same samples per second they save {payback.saved_w:.1f} W"
    )
    if payback.years is None:
        return f"{given}: they never pay for themselves."
    return f"{given}: they have paid for themselves after {payback.years:.1f} years."


def schedule_trace(problem: Problem, schedule: Schedule, trace: PowerTrace, *, system: str) -> dict[str, Any]:
    """A schedule in Google's Trace Event Format: a track for each device, and counters of power."""
    lanes = {(pool.name, unit): 0 for pool in problem.pools for unit in range(pool.units)}
    lanes = {lane: number for number, lane in enumerate(lanes, start=1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": f"{system}: {problem.name}"}}
    ]
    for (device, unit), number in lanes.items():
        named = {"name": f"{device} {unit}"}
        events.append({"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": named})
    for each in schedule.started:
        task = problem.tasks[each.task]
        for unit in each.units:
            begin, end = _micros(each.start_s), _micros(each.end_s)
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": lanes[each.mode.device, unit],
                    "name": f"{task.kind} {task.size}".rstrip(),
                    "cat": "scheduled",
                    "ts": begin,
                    "dur": round(end - begin, 3),
                    "args": {
                        "op": task.name,
                        "clock": each.mode.clock,
                        "average_w": each.mode.average_w,
                        "peak_w": each.mode.peak_w,
                        "source": each.mode.source,
                    },
                }
            )
    for time, average, peak in zip(trace.times_s, (*trace.average_w, 0.0), (*trace.peak_w, 0.0), strict=True):
        values = {"average": average, "peak": peak}
        events.append({"ph": "C", "pid": 1, "name": "power (W)", "ts": _micros(time), "args": values})
    events.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0.0)))
    other = {"schema": 1, "generator": "presilicon", "system": system, "workload": problem.name}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def _micros(time_s: float) -> float:
    return round(time_s * 1e9) / 1e3


def check_folder(folder: Path) -> None:
    """Make a folder, and refuse one in which nothing can be written: before the work, not after it.

    Raises:
        ConfigError: it cannot be made, or holds no new file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror or error}") from None


def save_schedule(folder: Path, view: ScheduleView, document: str, *, system: str) -> list[Path]:
    """Write `schedule.html`, `trace.json`, `power.csv` and `schedule.json` into a folder, and give their paths."""
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


def render_summary(view: ScheduleView, gap: str) -> str:
    """The schedule for a terminal."""
    rows = [("", "time", "samples/s", "energy", "average", "peak", "violations")]
    for name, cost, _ in [("this schedule", view.cost, ""), *view.compared]:
        rows.append(
            (
                name,
                format_seconds(cost.makespan_s),
                f"{cost.throughput_samples_per_s:.4g}",
                format_joules(cost.energy_per_step_j),
                f"{cost.average_power_w:.1f} W",
                f"{cost.peak_power_w:.1f} W",
                "-" if cost.violations is None else str(cost.violations),
            )
        )
    lines = [view.title, view.subline, "", *_columns(rows)]
    used = ", ".join(f"{name} {format_percent(share)}" for name, share in view.cost.utilization.items())
    lines += ["", f"busy: {used}", gap]
    found = moved_rows(view.problem, view.schedule.started, view.reasons, view.reference)
    if found:
        table = [("what moved", "device", "clock", "ops", "busy", "why")]
        for row in found[:12]:
            kind = f"{row.kind} {row.size}".rstrip()
            table.append((kind, row.device, f"{row.clock:g}", str(row.ops), format_seconds(row.busy_s), row.why))
        lines += ["", *_columns(table, left=(0, 1, 5))]
        if len(found) > 12:
            lines.append(f"({len(found) - 12} more)")
    if view.payback is not None:
        lines += ["", payback_sentence(view.payback)]
    lines += ["", *(f"note: {note}" for note in view.notes)]
    return "\n".join(lines) + "\n"


def _columns(rows: Sequence[tuple[str, ...]], left: Sequence[int] = (0,)) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
