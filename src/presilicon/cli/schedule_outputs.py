"""What `presilicon schedule` prints and writes."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from presilicon.designs import System, load_system
from presilicon.records import Problem, ScheduleCost
from presilicon.report.schedule import Payback, ScheduleView, check_folder, render_summary, save_schedule
from presilicon.scheduling.accounting import power_trace
from presilicon.scheduling.bounds import energy_bound
from presilicon.scheduling.candidates import candidates as candidates_of
from presilicon.scheduling.execution import Rules
from presilicon.scheduling.graphs import read_graph
from presilicon.scheduling.links import link_loads
from presilicon.scheduling.problems import build_problem
from presilicon.scheduling.slack import critical_path
from presilicon.scheduling.solve import Solution, solve

_INTERRUPTED = 130


def run_schedule(system: str, **options: Any) -> int:
    """Schedule, print, write; the exit code."""
    loaded = load_system(system, options["settings"])
    given = _given(loaded, options, options["sizing"])
    if options["out"] is not None:
        check_folder(options["out"])
    solution = _solve(loaded, given, options)
    document = document_of(loaded, solution, options, given.ids)
    if options["sensitivity"]:
        document["sensitivity"] = _sensitivity(loaded, options)
    view = _view(loaded, solution, options)
    text = json.dumps(document, indent=2)
    if options["as_json"]:
        click.echo(text)
    else:
        click.echo(render_summary(view, _gap_sentence(solution)), nl=False)
        for row in document.get("sensitivity", []):
            click.echo(
                f"sizes by {row['sizes']}: {row['energy_change']:+.1%} energy, {row['throughput_change']:+.1%} "
                f"throughput against GPU-only ({row['moved_ops']} ops moved)"
            )
    if options["out"] is not None:
        paths = save_schedule(options["out"], view, text + "\n", system=loaded.name)
        click.echo("\n".join(f"wrote {path}" for path in paths), err=options["as_json"])
    return _INTERRUPTED if any("interrupted" in note for note in solution.notes) else 0


class _Given(NamedTuple):
    """What is to be scheduled."""

    problem: Problem
    plain: Problem
    """Without relief."""
    ids: tuple[int, ...]
    """Of the ops, where they come from; those of one copy of the model."""


def _given(system: System, options: dict[str, Any], sizing: Any) -> _Given:
    costs = None
    if options["graph"] is not None:
        graph = read_graph(Path(options["graph"]), parts=options["allow_parts"])
    else:
        from presilicon.study.hybrid import capture_steps, join_steps, simulated_costs

        steps = capture_steps(options["workload"], options["batch"])
        graph = join_steps(options["workload"], steps, sizing, system.kinds)
        costs = simulated_costs(system, steps)
    transfers = not options["no_transfers"]
    plain = build_problem(system, graph, transfers=transfers, costs=costs)
    problem = plain
    if options["relief"] != 1.0:
        problem = build_problem(system, graph, transfers=transfers, relief=options["relief"], costs=costs)
    return _Given(problem, plain, tuple(op.id for op in graph.ops))


def _solve(system: System, given: _Given, options: dict[str, Any], solver: str | None = None) -> Solution:
    rules = Rules(reference=system.reference, sensor="peak")
    if options["literal"]:
        rules = Rules(
            reference=system.reference, takes_all=True, small_ops=False, moves="in", repair="none", sensor="average"
        )
    rule = options["candidates"]
    others = [name for name in system.devices if name != system.reference]
    chosen = None if rule == "all" or not others else candidates_of(system, given.problem, rule, others[0])
    with_progress = _progress(options["objective"]) if solver is None else None
    return solve(
        given.problem,
        plain=given.plain,
        objective=options["objective"],
        cap_w=options["power_cap"],
        limit_s=options["max_time"],
        solver=solver or options["solver"],  # type: ignore[arg-type]
        time_limit_s=options["time_limit"],
        reference=system.reference,
        candidates=chosen,
        rules=rules,
        progress=with_progress,
        sample_s=options["sample"],
        lag_s=options["lag"],
        seed=options["seed"],
    )


def _progress(objective: str) -> Callable[[float, float], None]:
    """A line on stderr every few seconds; on a terminal, one that is written over."""
    began = said = time.perf_counter()
    terminal = sys.stderr.isatty()
    unit = "J" if objective == "energy" else "s"

    def show(share: float, value: float) -> None:
        nonlocal said
        now = time.perf_counter()
        if now - said < (0.5 if terminal else 5.0):
            return
        said = now
        text = f"searching: {share:.0%} of the time, {now - began:.0f} s, best so far {value:.6g} {unit}"
        click.echo(f"\r{text}" if terminal else text, err=True, nl=not terminal)

    return show


def _fields(cost: ScheduleCost) -> dict[str, Any]:
    found: dict[str, Any] = {
        "throughput_samples_per_s": cost.throughput_samples_per_s,
        "average_power_w": cost.average_power_w,
        "peak_power_w": cost.peak_power_w,
        "energy_per_step_j": cost.energy_per_step_j,
        "makespan_s": cost.makespan_s,
        "samples_per_j": cost.samples_per_j,
        "utilization": cost.utilization,
    }
    return found if cost.violations is None else {**found, "violations": cost.violations}


def document_of(system: System, solution: Solution, options: dict[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """The JSON document of a schedule."""
    problem, goal = solution.problem, solution.goal
    energy = solution.schedule.bound_j
    if energy is None:
        energy = min(
            energy_bound(problem, None, goal.cap_w).bound,
            solution.cost.energy_per_step_j,
        )
    payback = payback_of(system, solution, options["usd_per_kwh"])
    path = critical_path(problem, [each.mode.time_s for each in solution.schedule.started])
    return {
        "schema": 1,
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
        **_fields(solution.cost),
        "baseline": {"name": solution.baseline.name, **_fields(solution.baseline.cost)},
        "baselines": {
            each.name: {
                **_fields(each.cost),
                "clock": each.clock,
                **({"power_per_iteration_w": list(each.iteration_w)} if each.iteration_w else {}),
                "note": each.note,
            }
            for each in solution.others
        },
        "energy_bound_j": energy,
        "makespan_bound_s": solution.schedule.bound_s,
        "gap": solution.gap,
        "critical_path_s": path.length_s,
        "placement": [
            {
                "id": ids[each.task % len(ids)],
                **({"copy": each.task // len(ids)} if len(problem.tasks) > len(ids) else {}),
                "name": task.name,
                "kind": task.kind,
                "size": task.size,
                "device": each.mode.device,
                "units": list(each.units),
                "clock": each.mode.clock,
                "start_s": each.start_s,
                "end_s": each.end_s,
                "average_w": each.mode.average_w,
                "peak_w": each.mode.peak_w,
                "source": each.mode.source,
                "slack_s": path.slack_s[each.task],
                "why": why,
            }
            for task, each, why in zip(problem.tasks, solution.schedule.started, solution.reasons, strict=True)
        ],
        "links": {
            load.device: {"bytes": load.bytes, "share": load.share} for load in link_loads(problem, solution.schedule)
        },
        "payback": None if payback is None else payback._asdict(),
        "notes": [*solution.notes, *problem.notes],
    }


def payback_of(system: System, solution: Solution, usd_per_kwh: float) -> Payback | None:
    """When the devices beside the reference have paid for themselves; None where their price is not known."""
    added = [device for name, device in system.devices.items() if name != system.reference]
    prices = [device.price_usd * device.count for device in added if device.price_usd is not None]
    alone = next((each for each in solution.others if each.name.endswith("-alone")), None)
    if not prices or alone is None:
        return None
    saved_j = alone.cost.energy_per_step_j - solution.cost.energy_per_step_j
    saved_w = saved_j / solution.cost.makespan_s if solution.cost.makespan_s else 0.0
    per_year = saved_w / 1e3 * 24 * 365.25 * usd_per_kwh
    return Payback(sum(prices), usd_per_kwh, saved_w, sum(prices) / per_year if per_year > 0 else None)


def _gap_sentence(solution: Solution) -> str:
    gap = solution.gap
    what = "energy" if solution.goal.objective == "energy" else "time"
    if gap is None:
        return "nothing is proven about how far this is from the best"
    if gap < 1e-4:
        return f"proven: no schedule within the limits takes less {what}"
    return f"within {gap:.2%} of the least {what} that any schedule within the limits can take"


def _view(system: System, solution: Solution, options: dict[str, Any]) -> ScheduleView:
    problem, base = solution.problem, solution.baseline.cost
    change = solution.cost.energy_per_step_j / base.energy_per_step_j - 1
    faster = solution.cost.throughput_samples_per_s / base.throughput_samples_per_s - 1
    cap = "" if solution.goal.cap_w is None else f", cap {solution.goal.cap_w:g} W"
    return ScheduleView(
        title=f"{problem.name}, batch {problem.batch_size}, on {system.name}",
        subline=(
            f"{change:+.1%} energy and {faster:+.1%} samples per second against {solution.baseline.name} "
            f"({solution.goal.objective}{cap}; solver {solution.solver}, {len(problem.tasks)} ops)"
        ),
        problem=problem,
        schedule=solution.schedule,
        cost=solution.cost,
        trace=power_trace(problem, solution.schedule),
        compared=[
            (solution.baseline.name, base, "the other devices stay idle"),
            *((each.name, each.cost, each.note) for each in solution.others),
        ],
        reasons=solution.reasons,
        reference=system.reference,
        cap_w=solution.goal.cap_w,
        payback=payback_of(system, solution, options["usd_per_kwh"]),
        notes=[*solution.notes, *problem.notes],
    )


def _sensitivity(system: System, options: dict[str, Any]) -> list[dict[str, Any]]:
    """What each way to give captured ops a size makes of the same step, by the greedy rules."""
    found = []
    for sizing in ("work", "tensor", "im2col"):
        solution = _solve(system, _given(system, options, sizing), options, solver="greedy")
        base = solution.baseline.cost
        moved = [each for each in solution.schedule.started if each.mode.device != system.reference]
        found.append(
            {
                "sizes": sizing,
                "solver": "greedy",
                "baseline_makespan_s": base.makespan_s,
                "energy_change": solution.cost.energy_per_step_j / base.energy_per_step_j - 1,
                "throughput_change": solution.cost.throughput_samples_per_s / base.throughput_samples_per_s - 1,
                "moved_ops": len(moved),
            }
        )
    return found
