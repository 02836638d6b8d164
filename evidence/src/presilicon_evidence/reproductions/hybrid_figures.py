"""Figures 5, 7, 8b and 9 of the GPU-FPGA publication: relief, two GPUs against one with a board, and power caps."""

from collections.abc import Collection, Iterator
from statistics import mean

from msgspec.structs import replace

from presilicon.designs import load_system
from presilicon.records import Problem, Reproduced, Reproduction
from presilicon.scheduling import (
    Rules,
    alone,
    build_problem,
    check,
    cost,
    execute,
    power_trace,
    reactive_clock,
    reference_only,
)
from presilicon_evidence.reproductions.hybrid import (
    MODELS,
    NAMES,
    NO_POWER,
    SETS,
    SOURCE,
    Assumptions,
    facts,
    graph_under,
    run,
    under_some,
)
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, listed, shown, stated

_A, _B, _E, _K = SETS[0], SETS[1], SETS[4], SETS[7]
_FOUR = (_B, _A, _E, _K)
_TITLE = "two GPUs against one GPU and one board ({})"
_CAPPED = Assumptions("free moves, idle boards draw nothing", like_rows=True)
_CAP_W = 230.0
_PUBLISHED_MARGINS_W = (50.0, 70.0)
_MARGINS = "{:g} to {:g}".format(*_PUBLISHED_MARGINS_W)
_NEAR = 0.1
_TWO_GPUS = {
    "Fig. 7: throughput of two GPUs": "throughput of a pair of GPUs",
    "Fig. 7: power of two GPUs": "power of a pair of GPUs",
    "Fig. 8b: samples/J of GPU and board": "samples per joule of a GPU and a board",
}
"""Rows, and what they are beside: one GPU with one board, or a pair of GPUs."""
_ITERATIONS = 40
_MEMORY_GB_S = 900.0


def reproduce() -> Reproduction:
    """Statements about the four figures, published and ours; the bars themselves cannot be read from the text."""
    rows = tuple(_rows())
    return Reproduction(
        name="hybrid-figures",
        title="Figures 5, 7, 8b and 9 of the GPU-FPGA publication: relief, two GPUs, and 40 steps under a cap",
        source=SOURCE,
        rows=rows,
        assumptions=(
            "Sets A, B, E and K are those of hybrid-headline; means over the six models.",
            "Figure 5b: ops of the GPU alone run side by side as soon as they are ready, and share it. Bandwidth: each "
            "takes what Table 1 says, and all slow down when their sum is above 900 GB/s. Multiprocessors: each op "
            "fills them, as the source says of Conv2D, so that n ops at a time take n times as long each.",
            "Figure 5a: exposed is the part of a step that would vanish if moves were free (K against A).",
            "Figures 7 and 8b: two GPUs train two copies on 256 samples each; under K they exchange gradients.",
            "Figure 9: one reading per ms, 40 steps; the controller reads every 20 ms and changes the clock by one "
            "level. The hybrid system runs by the repaired rules with clocks. The source gives no length of training "
            "for its counts of violations, so ours is the training time after which a controller that reads as often "
            "would have as many.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """The relief, the pair of GPUs, and 40 steps under a cap."""
    relief = "Fig. 5b: GPU ops that stay, faster than before, "
    for shared in ("memory bandwidth shared", "multiprocessors shared"):
        yield stated(
            f"ops that stay on the GPU become faster as published, with {shared}", [rows[relief + shared]], _NEAR
        )
    seen = rows[f"{relief}multiprocessors shared"].ours or 0.0
    busy = rows[f"{relief}multiprocessors shared", "how much less time they take of the GPU"]
    yield Statement(
        (busy.ours or 0.0) > _NEAR * seen > 0,
        f"they take less time of the GPU by more than {_NEAR:.0%} of that relief",
        f"{busy.ours or 0.0:.2f}% less",
        OUR_OWN,
    )
    for name, claim in _TWO_GPUS.items():
        by_set = {assumptions.name[0]: rows[_TITLE.format(assumptions.name), name] for assumptions in _FOUR}
        yield under_some(claim, by_set, _NEAR)
    controlled = rows.like("readings above", "controlled GPU")
    yield Statement(
        all((row.ours or 0.0) > 0 for row in controlled),
        "a GPU with a controlled clock breaks every cap",
        listed(controlled, lambda row: row.quantity.partition(": ")[0].removeprefix("Fig. 9, ")),
    )
    hybrid = rows.like("of the hybrid system")
    above = [row for row in hybrid if row.published is not None]
    yield Statement(
        all(row.ours == row.published for row in above),
        "a planned schedule of the hybrid system has as many readings above the cap as published",
        ", ".join(map(shown, above)),
    )
    margins = [row.ours or 0.0 for row in rows.like("margin of the hybrid system")]
    low, high = _PUBLISHED_MARGINS_W
    yield Statement(
        all(low <= margin <= high for margin in margins),
        f"its average power stays {low:g} to {high:g} W below the cap",
        ", ".join(f"{margin:.0f}" for margin in margins),
    )


def _rows() -> Iterator[Reproduced]:
    yield from _relief()
    yield from _two_gpus()
    yield from _capped()


def _relief() -> Iterator[Reproduced]:
    published = facts()
    runs = {model: run(model, _A) for model in MODELS}
    gains: dict[bool, list[float]] = {False: [], True: []}
    busy = []
    for result in runs.values():
        stays = [slot.task for slot in result.schedule.started if slot.mode.device == "gpu"]
        for sliced, values in gains.items():
            before, _ = shared_times(result.problem, (), sliced=sliced)
            after, busy_s = shared_times(result.problem, result.moved, sliced=sliced)
            values.append(100 * (sum(before[task] for task in stays) / sum(after[task] for task in stays) - 1))
        busy.append(100 * (sum(result.gpu_time_s[task] for task in stays) / busy_s - 1))
    figure = published["headline_1G3F"]["gpu_ops_speedup_%"]
    name = "Fig. 5b: GPU ops that stay, faster than before"
    for sliced, what in ((False, "memory bandwidth shared"), (True, "multiprocessors shared")):
        each = ", ".join(f"{NAMES[model]} {value:.1f}" for model, value in zip(runs, gains[sliced], strict=True))
        yield Reproduced(f"{name}, {what}", "%", figure, mean(gains[sliced]), note=each)
    yield Reproduced("  how much less time they take of the GPU", "%", ours=mean(busy))
    exposed = []
    for model in MODELS:
        over_links = run(model, _K)
        pools = tuple(replace(pool, bytes_per_s=None) for pool in over_links.problem.pools)
        free = execute(replace(over_links.problem, pools=pools), Rules()).schedule.makespan_s
        exposed.append(100 * (over_links.hybrid.makespan_s / free - 1))
    moved = published["data_movement"]["exposed_move_reduction_%"]
    yield Reproduced(
        "Fig. 5a: exposed moves of the hybrid system (K), of a step", "%", ours=mean(exposed),
        note=f"published: {moved:g}% less than the GPU alone, which exposes none here: its batch comes during a step",
    )  # fmt: skip


def shared_times(problem: Problem, moved: Collection[int], *, sliced: bool) -> tuple[list[float], float]:
    """Times of ops that share a GPU, and its busy time: every op runs as soon as it is ready; moved ones elsewhere.

    If sliced, n ops at a time run at a rate of 1/n each; else they slow down when they need more than the memory's
    bandwidth together, with the bandwidths of Table 1.
    """
    system = load_system("v100-3xs10")
    rows = [system.row(task.kind, task.size, "gpu") for task in problem.tasks]
    needs = [0.0 if row is None else row.bandwidth_gb_s or 0.0 for row in rows]
    running, away = set[int](), set(moved)
    left = [task.modes[-1 if task.id in away else 0].time_s for task in problem.tasks]
    missing = [len(task.deps) for task in problem.tasks]
    began, took = [0.0] * len(left), [0.0] * len(left)
    ready = [task.id for task in problem.tasks if not task.deps]
    now = busy = 0.0
    while ready or running:
        for task in ready:
            began[task] = now
        running |= set(ready)
        here = running - away
        rate = min(1.0, _MEMORY_GB_S / max(sum(needs[task] for task in here), 1e-9))
        rate = 1 / max(len(here), 1) if sliced else rate
        step = min(left[task] / (rate if task in here else 1.0) for task in running)
        now, busy, ready = now + step, busy + (step if here else 0.0), []
        for task in sorted(running):
            left[task] -= step * (rate if task in here else 1.0)
            if left[task] <= 1e-15:
                running.remove(task)
                took[task] = now - began[task]
                for follower in problem.followers[task]:
                    missing[follower] -= 1
                    ready += [follower] if missing[follower] == 0 else []
    return took, busy


def _two_gpus() -> Iterator[Reproduced]:
    published = facts()["headline_1G1F_vs_2G"]
    for assumptions in _FOUR:
        ratios = []
        for model in MODELS:
            one, two = run(model, assumptions, "v100-1xs10").hybrid, run(model, assumptions, "2xv100-6xs10").gpu
            ratios.append(
                (
                    two.throughput_samples_per_s / one.throughput_samples_per_s,
                    two.average_power_w / one.average_power_w,
                    one.samples_per_j / two.samples_per_j,
                )
            )
        throughput, power, efficiency = (100 * (mean(column) - 1) for column in zip(*ratios, strict=True))
        yield Reproduced(_TITLE.format(assumptions.name))
        yield Reproduced("  Fig. 7: throughput of two GPUs", "%", published["2G_throughput_%"], throughput)
        yield Reproduced("  Fig. 7: power of two GPUs", "%", published["2G_power_%"], power)
        yield Reproduced("  Fig. 8b: samples/J of GPU and board", "%", published["1G1F_EE_%"], efficiency)


def _capped() -> Iterator[Reproduced]:
    counts = facts()["cap"]["pmm_violations"]
    for model in MODELS:
        system = load_system("v100-3xs10", NO_POWER)
        problem = build_problem(system, graph_under(model, system, _CAPPED), transfers=False)
        by_itself = alone(problem, "gpu")
        steps = reactive_clock(by_itself, "gpu", _CAP_W, iterations=_ITERATIONS)
        readings = steps.trace.times_s[-1] * 1e3
        violations = (steps.cost.violations or 0) * _ITERATIONS
        watts = f"{min(steps.iteration_w):.0f} to {max(steps.iteration_w):.0f} W per step"
        yield Reproduced(
            f"Fig. 9, {NAMES[model]}: readings above 230 W, controlled GPU", "%", ours=100 * violations / readings,
            note=watts,
        )  # fmt: skip
        schedule = execute(problem, Rules(cap_w=_CAP_W, repair="soonest", sensor="peak")).schedule
        claimed = cost(problem, schedule, cap_w=_CAP_W)
        check(problem, schedule, cap_w=_CAP_W, claimed=claimed)
        trace = power_trace(problem, schedule)
        yield Reproduced(
            "  margin of the hybrid system's average power", "W", ours=_CAP_W - claimed.average_power_w,
            note=f"published: {_MARGINS}; {_CAP_W - max(trace.peak_w):.1f} W at its highest peak, "
            f"{claimed.violations or 0} readings above",
        )  # fmt: skip
    for cap, model, key in ((250.0, "vgg16", "250W_Vgg16"), (210.0, "resnet50", "210W_Resnet50")):
        system = load_system("v100-3xs10", NO_POWER)
        problem = build_problem(system, graph_under(model, system, _CAPPED), transfers=False)
        by_itself = alone(problem, "gpu")
        free_s = reference_only(by_itself, "gpu").makespan_s
        found = reactive_clock(by_itself, "gpu", cap, iterations=_ITERATIONS)
        per_s = (found.cost.violations or 0) * _ITERATIONS / found.trace.times_s[-1]
        yield Reproduced(
            f"{NAMES[model]} at {cap:g} W: readings above, controlled GPU, per hour", "", ours=per_s * 3600,
            note=f"published: {counts[key]} in all"
            + (f", after {counts[key] / per_s / 60:.1f} min" if per_s else "")
            + f"; a step takes {found.cost.makespan_s / free_s - 1:.1%} longer than without a cap",
        )  # fmt: skip
        schedule = execute(problem, Rules(cap_w=cap, repair="soonest", sensor="peak")).schedule
        above = cost(problem, schedule, cap_w=cap).violations or 0
        yield Reproduced("  of the hybrid system", "", facts()["cap"]["hype_violations"], ours=above)
