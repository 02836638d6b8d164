"""Output of `presilicon schedule`: summary, JSON document, page, trace and table."""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from presilicon.base import DOCUMENT_SCHEMA, pick, to_plain, write_file
from presilicon.designs import System
from presilicon.records import ScheduleCost
from presilicon.report import (
    Payback,
    ScheduleView,
    check_folder,
    render_execution,
    render_execution_page,
    render_summary,
    save_schedule,
)
from presilicon.scheduling import Solution, critical_path, energy_bound, link_loads, power_trace, sound_bound
from presilicon.study import SIZINGS, ExecuteOptions, Scheduled, ScheduleRequest, carry_out_schedule, execute

_INTERRUPTED = 130


def run_schedule(
    request: ScheduleRequest, options: ExecuteOptions | None, sensitivity: bool, usd_per_kwh: float, out: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Schedule, train by the schedule if `options` are given, print and write; returns the exit code."""
    request.check()
    if out is not None:
        check_folder(out)
    progress, execution = _progress(request.objective), None
    if options is None:
        scheduled = carry_out_schedule(request, progress)
    else:
        scheduled, execution = execute(request, options, progress)
    solution, system = scheduled.solution, scheduled.system
    payback = payback_of(system, solution, usd_per_kwh)
    document, view = document_of(scheduled, payback), _view(system, solution, payback)
    if sensitivity:
        document["sensitivity"] = _sensitivity(request)
    if execution is not None:
        document["execution"] = to_plain(execution) | {"largest_loss_difference": execution.largest_loss_difference}
    text = json.dumps(document, indent=2)
    if as_json:
        click.echo(text)
    elif execution is not None:
        click.echo(render_execution(view.title, execution), nl=False)
        for note in view.notes:
            click.echo(f"note: {note}")
    else:
        click.echo(render_summary(view, _gap_sentence(solution)), nl=False)
        for row in document.get("sensitivity", []):
            click.echo(f"sizes by {row['sizes']}: {_saving_sentence(row)} ({row['moved_ops']} ops moved)")
    if out is not None:
        paths = save_schedule(out, view, text + "\n", system=system.name)
        if execution is not None:
            paths = [*paths, out / "execution.html"]
            write_file(paths[-1], render_execution_page(view, execution))
        click.echo("\n".join(f"wrote {path}" for path in paths), err=as_json)
    return _INTERRUPTED if solution.schedule.interrupted and execution is None else 0


def _progress(objective: str) -> Callable[[float, float], None]:
    """Print a line on stderr every few seconds; on a terminal, overwrite it.

    Executions search several times, and so do boards that hold other kernels: time and share are those of the search.
    """
    began = last_shown = time.perf_counter()
    last_share = math.inf
    terminal = sys.stderr.isatty()
    unit = "J" if objective == "energy" else "s"

    def show(share: float, value: float) -> None:
        nonlocal began, last_share, last_shown
        now = time.perf_counter()
        began, last_share = now if share < last_share else began, share
        if now - last_shown < (0.5 if terminal else 5.0):
            return
        last_shown = now
        text = f"searching: {share:.0%} of the time, {now - began:.0f} s, best so far {value:.6g} {unit}"
        click.echo(f"\r{text}" if terminal else text, err=True, nl=not terminal)

    return show


def _fields(cost: ScheduleCost) -> dict[str, Any]:
    power = ("throughput_samples_per_s", "average_power_w", "peak_power_w", "energy_per_step_j")
    fields = pick(cost, *power, "makespan_s", "samples_per_j", "utilization")
    return fields if cost.violations is None else {**fields, "violations": cost.violations}


def document_of(scheduled: Scheduled, payback: Payback | None) -> dict[str, Any]:
    """The JSON document of a schedule."""
    system, solution, ids = scheduled
    problem, goal = solution.problem, solution.goal
    energy = solution.schedule.bound_j
    if energy is None:
        energy = sound_bound(energy_bound(problem, None, goal.cap_w).bound, solution.cost.energy_per_step_j)
    path = critical_path(problem, [slot.mode.time_s for slot in solution.schedule.started])
    return {
        "schema": DOCUMENT_SCHEMA,
        "system": system.name,
        "workload": problem.name,
        "batch_size": problem.batch_size,
        "ops": len(problem.tasks),
        "objective": goal.objective,
        "power_cap_w": goal.cap_w,
        "makespan_limit_s": goal.limit_s,
        "solver": solution.solver,
        "time_limit_s": solution.time_limit_s,
        "search_s": round(solution.spent_s, 3),
        "interrupted": solution.schedule.interrupted,
        **_fields(solution.cost),
        "baseline": {"name": solution.baseline.name, **_fields(solution.baseline.cost)},
        **_saving(solution),
        "baselines": {
            baseline.name: {
                **_fields(baseline.cost),
                "clock": baseline.clock,
                **({"power_per_iteration_w": list(baseline.iteration_w)} if baseline.iteration_w else {}),
                "note": baseline.note,
            }
            for baseline in solution.others
        },
        "energy_bound_j": energy,
        "makespan_bound_s": solution.schedule.bound_s,
        "gap": solution.gap,
        "critical_path_s": path.length_s,
        "placement": [
            {
                "id": ids[slot.task % len(ids)],
                **({"copy": slot.task // len(ids)} if len(problem.tasks) > len(ids) else {}),
                **pick(task, "name", "kind", "size"),
                "device": slot.mode.device,
                "units": list(slot.units),
                "clock": slot.mode.clock,
                **pick(slot, "start_s", "end_s"),
                **pick(slot.mode, "average_w", "peak_w", "source"),
                "slack_s": path.slack_s[slot.task],
                "why": why,
            }
            for task, slot, why in zip(problem.tasks, solution.schedule.started, solution.reasons, strict=True)
        ],
        "links": {
            load.device: {"bytes": load.bytes, "share": load.share} for load in link_loads(problem, solution.schedule)
        },
        "payback": None if payback is None else payback._asdict(),
        "notes": [*solution.notes, *problem.notes],
    }


def _saving(solution: Solution) -> dict[str, Any]:
    """Changes against the baseline that keeps the cap, and how plausible the baseline is; None where there is none."""
    compared, found = solution.compared, solution.plausibility
    plausibility = None if found is None else to_plain(found) | pick(found, "time_ratio", "is_plausible")
    changes: dict[str, float | None] = {"energy_change": None, "throughput_change": None}
    if compared is not None:
        cost, base = solution.cost, compared.cost
        changes = {
            "energy_change": cost.energy_per_step_j / base.energy_per_step_j - 1,
            "throughput_change": cost.throughput_samples_per_s / base.throughput_samples_per_s - 1,
        }
    name = None if compared is None else compared.name
    return {"compared_with": name, **changes, "baseline_plausibility": plausibility}


def _saving_sentence(saving: dict[str, Any]) -> str:
    if saving["compared_with"] is None:
        return "no baseline keeps the cap: no saving to state"
    change = f"{saving['energy_change']:+.1%} energy and {saving['throughput_change']:+.1%} samples per second"
    against, found = f"{change} against {saving['compared_with']}", saving["baseline_plausibility"]
    if found is None:
        return against
    who = ", which" if found["baseline"] == saving["compared_with"] else f"; {found['baseline']}"
    verdict = "" if found["is_plausible"] else " (implausible)"
    return f"{against}{who} takes {found['time_ratio']:.3g} times as long as the design {found['design']}{verdict}"


def payback_of(system: System, solution: Solution, usd_per_kwh: float) -> Payback | None:
    """Payback time of the devices other than the reference; None if their price is not known."""
    added = [device for name, device in system.devices.items() if name != system.reference]
    prices = [device.price_usd * device.count for device in added if device.price_usd is not None]
    alone = solution.without_the_others
    if not prices or alone is None:
        return None
    saved_j = alone.cost.energy_per_step_j - solution.cost.energy_per_step_j
    saved_w = saved_j / solution.cost.makespan_s if solution.cost.makespan_s else 0.0
    per_year = saved_w / 1e3 * 24 * 365.25 * usd_per_kwh
    return Payback(sum(prices), usd_per_kwh, alone.name, saved_w, sum(prices) / per_year if per_year > 0 else None)


def _gap_sentence(solution: Solution) -> str:
    gap = solution.gap
    quantity = "energy" if solution.goal.objective == "energy" else "time"
    if gap is None:
        return "the distance from the optimum is not known"
    if gap < 1e-4:
        return f"proven: no schedule within the limits takes less {quantity}"
    return f"within {gap:.2%} of the least {quantity} that any schedule within the limits can take"


def _view(system: System, solution: Solution, payback: Payback | None) -> ScheduleView:
    problem, base = solution.problem, solution.baseline.cost
    cap = "" if solution.goal.cap_w is None else f", cap {solution.goal.cap_w:g} W"
    return ScheduleView(
        title=f"{problem.name}, batch {problem.batch_size}, on {system.name}",
        subline=(
            f"{_saving_sentence(_saving(solution))} "
            f"({solution.goal.objective}{cap}; solver {solution.solver}, {len(problem.tasks)} ops)"
        ),
        problem=problem,
        schedule=solution.schedule,
        cost=solution.cost,
        trace=power_trace(problem, solution.schedule),
        compared=[
            (solution.baseline.name, base, "the other devices stay idle"),
            *((baseline.name, baseline.cost, baseline.note) for baseline in solution.others),
        ],
        reasons=solution.reasons,
        reference=system.reference,
        cap_w=solution.goal.cap_w,
        payback=payback,
        notes=[*solution.notes, *problem.notes],
    )


def _sensitivity(request: ScheduleRequest) -> list[dict[str, Any]]:
    """Results of the greedy solver with each way to give captured ops a size."""
    rows = []
    for sizing in SIZINGS:
        system, solution, _ = carry_out_schedule(replace(request, sizing=sizing, solver="greedy"))
        moved = sum(op.mode.device != system.reference for op in solution.schedule.started)
        row = {"sizes": sizing, "solver": "greedy", "baseline_makespan_s": solution.baseline.cost.makespan_s}
        rows.append(row | _saving(solution) | {"moved_ops": moved})
    return rows
