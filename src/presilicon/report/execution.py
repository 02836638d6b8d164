"""Reports of an executed schedule: a summary for a terminal, and a page with both Gantt charts."""

from html import escape

from presilicon.base import format_seconds
from presilicon.records import Execution, Mode, Schedule, Started
from presilicon.report.page.page import plain_page
from presilicon.report.page.schedule import GANTT_STYLE, render_gantt
from presilicon.report.schedule import ScheduleView


def executed_schedule(execution: Execution) -> Schedule:
    """The captured ops of the shown step as a schedule with the times that they took."""
    started = []
    for op in execution.executed:
        if op.kind == "op" and op.task >= 0:
            pool, _, unit = op.device.rpartition(" ")
            mode = Mode(device=pool, time_s=op.end_s - op.start_s, average_w=0.0, peak_w=0.0, source="executed")
            started.append(Started(op.task, mode, (int(unit),), op.start_s))
    return Schedule(solver="executed", started=tuple(started))


def render_execution(title: str, execution: Execution) -> str:
    """An executed schedule as plain text."""
    return "\n".join([f"{title}: {execution.steps} steps executed", *_sentences(execution)]) + "\n"


def render_execution_page(view: ScheduleView, execution: Execution) -> str:
    """The predicted and the executed Gantt chart on one scale, and what happened, as an HTML page."""
    executed = executed_schedule(execution)
    span_s = max(view.schedule.makespan_s, executed.makespan_s)
    charts = ""
    for name, plan in (("Predicted", view.schedule), (f"Executed, step {execution.shown_step}", executed)):
        chart = render_gantt(view.problem, plan, span_s)
        charts += f'<section class="gantt"><h2>{name}: {format_seconds(plan.makespan_s)}</h2>{chart}</section>'
    facts = "".join(f"<li>{escape(sentence)}</li>" for sentence in _sentences(execution))
    return plain_page(
        title=view.title,
        eyebrow="a training step over several devices, executed",
        subline=f"{execution.steps} steps; {_makespan(execution)}",
        body=f"{charts}<section><h2>What happened</h2><ul>{facts}</ul></section>",
        style=GANTT_STYLE,
    )


def _makespan(execution: Execution) -> str:
    return (
        f"a step took {format_seconds(execution.makespan_s)} (median), predicted "
        f"{format_seconds(execution.predicted_makespan_s)}: {execution.makespan_error:+.1%}"
    )


def _sentences(execution: Execution) -> list[str]:
    calls = ", ".join(f"{name} ({execution.devices[name]}) {count}" for name, count in execution.ops_by_device.items())
    lines = [
        _makespan(execution),
        f"{execution.offloaded:.0%} of {execution.ops} ops per step ran elsewhere than on {execution.reference}",
        f"calls: {calls}",
        f"{execution.takeovers} ops were taken from a busy device by {execution.reference}, or moved under the cap",
    ]
    if execution.losses:
        lines.append(f"loss {execution.losses[0]:.6g} at the first step, {execution.losses[-1]:.6g} at the last")
    if execution.largest_loss_difference is not None:
        difference = execution.largest_loss_difference
        lines.append(f"largest relative difference from the losses of plain torch: {difference:.2g}")
    if execution.cap_w is not None:
        source = execution.power_source or "the powers of the table"
        highest = "" if execution.highest_w is None else f", highest at the start of an op {execution.highest_w:.1f} W"
        lines.append(
            f"power cap {execution.cap_w:g} W by {source}{highest}; {execution.forced} ops started above it, because "
            "nothing else ran and no device draws less"
        )
    lines += [f"lost device {name}: {reason}; its ops went on elsewhere" for name, reason in execution.lost.items()]
    lines += [
        f"{op.operator} stayed on {execution.reference}: {op.device} has no kernel for it ({op.calls} calls)"
        for op in execution.uncovered
    ]
    if execution.uncaptured:
        calls = ", ".join(f"{name} ({count})" for name, count in execution.uncaptured.items())
        lines.append(f"not in the schedule, run on {execution.reference}: {calls}")
    return [*lines, *(f"note: {note}" for note in execution.notes)]
