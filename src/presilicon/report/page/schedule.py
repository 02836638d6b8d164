"""A schedule as one HTML page: a Gantt chart, power over time, and which ops moved and why."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from string import Template

from presilicon.base import format_joules, format_seconds
from presilicon.records import Problem, Schedule
from presilicon.report.charts.palette import LIGHT
from presilicon.report.page.page import plain_page
from presilicon.report.schedule import Payback, ScheduleView, moved_rows, payback_sentence

_WIDTH, _LEFT, _LANE, _POWER_HEIGHT = 1000, 74, 26, 220
_POINTS = 1500

GANTT_STYLE = """
.gantt > svg { display: block; width: 100%; height: auto; margin-top: 16px; }
.gantt text { font: 12px var(--sans); fill: var(--soft); }
.gantt .names { margin-top: 8px; }
.gantt .names span { display: inline-block; margin-right: 1rem; font-size: 13px; }"""

_BODY = Template("""<section><h2>Costs of a step</h2>$costs</section>
<section class="gantt"><h2>Ops by device</h2>$gantt</section>
<section class="gantt"><h2>Power</h2>$power</section>
<section><h2>Moved ops and reasons</h2>$moved</section>
$payback
<section><h2>Assumptions and notes</h2><ul>$notes</ul></section>
<footer>Scheduled, not executed: times and powers come from the table and the models named above.</footer>
""")


def render_schedule(view: ScheduleView) -> str:
    """The page as HTML."""
    body = _BODY.substitute(
        costs=_costs(view),
        gantt=render_gantt(view.problem, view.schedule),
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
        style=GANTT_STYLE,
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


def render_gantt(problem: Problem, schedule: Schedule, span_s: float | None = None) -> str:
    """A Gantt chart of a schedule, over its makespan or another time span."""
    span = span_s or schedule.makespan_s or 1.0
    lanes = [(pool.name, unit) for pool in problem.pools for unit in range(pool.units)]
    top = {lane: index * _LANE + 4 for index, lane in enumerate(lanes)}
    busy: Counter[str] = Counter()
    for task in problem.tasks:
        busy[task.kind] += task.modes[0].time_s  # type: ignore[assignment]
    kinds = [kind for kind, _ in busy.most_common(len(LIGHT) - 1)]
    # The kinds that take longest get their own colours, the same in all schedules of a problem.
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
    for slot in schedule.started:
        task = problem.tasks[slot.task]
        left = _LEFT + slot.start_s / span * (_WIDTH - _LEFT)
        width = max(slot.mode.time_s / span * (_WIDTH - _LEFT), 0.4)
        what = f"{task.name} {task.kind} {task.size}, {format_seconds(slot.mode.time_s)}, {slot.mode.average_w:.4g} W"
        clock = "" if slot.mode.clock == 1.0 else f", clock {slot.mode.clock:g}"
        parts += [
            f'<rect x="{left:.2f}" y="{top[slot.mode.device, unit]}" width="{width:.2f}" height="{_LANE - 8}" '
            f'fill="var(--c{colour[task.kind]})"><title>{escape(what + clock)}</title></rect>'
            for unit in slot.units
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
        # Draw groups of intervals if there are very many.
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
        '<span style="color:var(--c1)">peak power of running ops</span></p>'
    )
    axis = "".join(_axis(span, _POWER_HEIGHT))
    label = "Power over the step"
    svg = f'<svg viewBox="0 0 {_WIDTH} {_POWER_HEIGHT}" role="img" aria-label="{label}">'
    return f"{svg}{''.join(lines)}{cap}{ticks}{axis}</svg>{legend}"


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
