"""The data behind reports of a schedule, and its summary for a terminal."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from presilicon.base import columns, format_joules, format_percent, format_seconds
from presilicon.records import PowerTrace, Problem, Schedule, ScheduleCost, Started


class Payback(NamedTuple):
    """Time until added devices have paid for themselves by saving energy, and its inputs."""

    price_usd: float
    usd_per_kwh: float
    compared_with: str
    """The baseline without these devices that keeps the cap."""
    saved_w: float
    """Mean power saved at the same samples per second."""
    years: float | None
    """None: never."""


class ScheduleView(NamedTuple):
    """Everything that reports show of a schedule."""

    title: str
    subline: str
    problem: Problem
    schedule: Schedule
    cost: ScheduleCost
    trace: PowerTrace
    compared: Sequence[tuple[str, ScheduleCost, str]]
    """Name, cost and note of each baseline."""
    reasons: Sequence[str]
    reference: str
    cap_w: float | None
    payback: Payback | None
    notes: Sequence[str]


class MovedOps(NamedTuple):
    """Ops of one kind and size that run on one device at one clock."""

    kind: str
    size: str
    device: str
    clock: float
    ops: int
    busy_s: float
    energy_j: float
    home_j: float | None
    """Energy on the reference device at full clock."""
    why: str


def moved_rows(problem: Problem, started: Sequence[Started], reasons: Sequence[str], reference: str) -> list[MovedOps]:
    """Ops that run elsewhere or at another clock, grouped by kind, size, device and clock, longest first."""
    groups: dict[tuple[str, str, str, float], list[Started]] = {}
    for slot in started:
        task = problem.tasks[slot.task]
        if slot.mode.device != reference or slot.mode.clock != 1.0:
            groups.setdefault((task.kind, task.size, slot.mode.device, slot.mode.clock), []).append(slot)
    rows = []
    for key, members in groups.items():
        homes = [
            next((mode.energy_j for mode in problem.tasks[slot.task].modes if mode.device == reference), None)
            for slot in members
        ]
        causes = Counter(reasons[slot.task] for slot in members if reasons[slot.task])
        text = causes.most_common(1)[0][0] if causes else ""
        rows.append(
            MovedOps(
                *key,
                len(members),
                sum(slot.mode.time_s for slot in members),
                sum(slot.mode.energy_j for slot in members),
                None if None in homes else sum(home for home in homes if home is not None),
                text if len(causes) < 2 else f"{text} (and {len(causes) - 1} similar)",
            )
        )
    return sorted(rows, key=lambda row: -row.busy_s)


def payback_sentence(payback: Payback) -> str:
    """States when the added devices have paid for themselves."""
    premise = (
        f"The added devices cost {payback.price_usd:,.0f} USD; at {payback.usd_per_kwh:g} USD/kWh, day and night, "
        f"for the same samples per second they save {payback.saved_w:.1f} W against {payback.compared_with}"
    )
    if payback.years is None:
        return f"{premise}: they never pay for themselves."
    return f"{premise}: they have paid for themselves after {payback.years:.1f} years."


def render_summary(view: ScheduleView, gap: str) -> str:
    """The schedule as plain text."""
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
    lines = [view.title, view.subline, "", *columns(rows)]
    used = ", ".join(f"{name} {format_percent(share)}" for name, share in view.cost.utilization.items())
    lines += ["", f"busy: {used}", gap]
    moved = moved_rows(view.problem, view.schedule.started, view.reasons, view.reference)
    if moved:
        table = [("moved op", "device", "clock", "ops", "busy", "why")]
        for row in moved[:12]:
            kind = f"{row.kind} {row.size}".rstrip()
            table.append((kind, row.device, f"{row.clock:g}", str(row.ops), format_seconds(row.busy_s), row.why))
        lines += ["", *columns(table, left=(0, 1, 5))]
        if len(moved) > 12:
            lines.append(f"({len(moved) - 12} more)")
    if view.payback is not None:
        lines += ["", payback_sentence(view.payback)]
    lines += ["", *(f"note: {note}" for note in view.notes)]
    return "\n".join(lines) + "\n"
