"""Table 3 of the GPU-FPGA publication: throughput under a cap of 230 W."""

from collections.abc import Iterator
from statistics import mean

from presilicon.base import ConfigError
from presilicon.designs import load_system
from presilicon.records import Problem, Reproduced, Reproduction, Schedule
from presilicon.scheduling import (
    DeadlockError,
    Rules,
    alone,
    build_problem,
    check,
    cost,
    execute,
    reactive_clock,
    schedule_heft,
)
from presilicon_evidence.reproductions.hybrid import MODELS, NAMES, NO_POWER, SOURCE, Assumptions, facts, graph_under
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, shown, stated

_CAPS = (210.0, 230.0, 250.0)
_NEAR = 0.2
"""Part of a published gain by which ours may differ."""
_SET = Assumptions("free moves, idle boards draw nothing", like_rows=True)


def reproduce() -> Reproduction:
    """Gains over a GPU whose clock is controlled, published and ours."""
    rows = tuple(_rows())
    return Reproduction(
        name="hybrid-table3",
        title="Table 3 of the GPU-FPGA publication: throughput under a power cap, against a GPU with clock control",
        source=SOURCE,
        rows=rows,
        assumptions=(
            "Size classes by tensor dimensions, free moves, boards that draw nothing when idle; no relief.",
            "GPU clocks at 1.0, 0.9, 0.8 and 0.7, power above idle with the cube of the clock, time with its inverse: "
            "assumptions. The controller reads the power every 20 ms and changes the clock by one level.",
            "The published rule starts an op when its own peak fits; if nothing fits and nothing runs, it waits "
            "forever. The repair uses another device or a lower clock, whichever ends first. HEFT knows all clocks.",
            "Absolute samples per second are not compared: the table's times by size class are not those of the "
            "models' own ops.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """The rule as it is worded, gains model by model and in the mean, and caps that are kept."""
    finished = rows["models in which the literal rule finishes"]
    yield Statement(
        finished.note == f"of {finished.ours or 0.0:g}",
        "the rule schedules every model as it is worded, without a deadlock",
        f"it finishes in {finished.ours or 0.0:g} {finished.note}",
    )
    for solver in ("repaired", "HEFT"):
        gains = rows.like(f"  {solver}")
        yield stated(f"gains over a controlled GPU model by model, {solver}", gains, _NEAR)
        yield stated(f"their mean, {solver}", [rows[f"mean, {solver}"]], _NEAR)
    above = rows.like("of the hybrid system")
    yield Statement(
        all(row.ours == 0 for row in above),
        "the hybrid system has no reading above a cap",
        f"readings: {', '.join(map(shown, above))}",
    )


def _problem(model: str) -> Problem:
    system = load_system("v100-3xs10", NO_POWER)
    return build_problem(system, graph_under(model, system, _SET), transfers=False)


def _rows() -> Iterator[Reproduced]:
    published = facts()["table3_230W_samples_s"]
    problems = {model: _problem(model) for model in MODELS}
    literal = {model: _literal(problem) for model, problem in problems.items()}
    gains: dict[str, list[float]] = {"greedy": [], "heft": []}
    for model, problem in problems.items():
        by_itself = alone(problem, "gpu")
        controlled = reactive_clock(by_itself, "gpu", 230.0).cost
        figure = published["gain_%_recomputed"][NAMES[model]]
        yield Reproduced(f"{NAMES[model]}, the literal rule", "%", figure, note=literal[model])
        for solver, schedule in (("greedy", _repaired(problem)), ("heft", schedule_heft(problem, cap_w=230.0))):
            claimed = cost(problem, schedule, cap_w=230.0)
            check(problem, schedule, cap_w=230.0, claimed=claimed)
            gain = 100 * (claimed.throughput_samples_per_s / controlled.throughput_samples_per_s - 1)
            gains[solver].append(gain)
            label = "  repaired" if solver == "greedy" else "  HEFT"
            yield Reproduced(label, "%", figure, gain)
    finished = sum(note.startswith(_FINISHES) for note in literal.values())
    yield Reproduced("models in which the literal rule finishes", ours=finished, note=f"of {len(literal)}")
    yield Reproduced("mean, repaired", "%", published["mean_recomputed_%"], mean(gains["greedy"]))
    yield Reproduced("mean, HEFT", "%", published["mean_recomputed_%"], mean(gains["heft"]))
    for cap in _CAPS:
        late = [reactive_clock(alone(problem, "gpu"), "gpu", cap).cost for problem in problems.values()]
        ours = sum(gpu_cost.violations or 0 for gpu_cost in late)
        hybrid = [cost(problem, _repaired(problem, cap), cap_w=cap).violations or 0 for problem in problems.values()]
        yield Reproduced(f"readings above {cap:g} W in a step of each, controlled GPU", ours=ours)
        yield Reproduced("  of the hybrid system", ours=sum(hybrid))


_FINISHES = "finishes"


def _literal(problem: Problem) -> str:
    try:
        schedule = execute(problem, Rules(cap_w=230.0, repair="none", sensor="peak")).schedule
    except (DeadlockError, ConfigError) as error:
        return str(error).split(":")[0]
    return f"{_FINISHES} in {schedule.makespan_s * 1e3:.4g} ms"


def _repaired(problem: Problem, cap_w: float = 230.0) -> Schedule:
    return execute(problem, Rules(cap_w=cap_w, repair="soonest", sensor="peak")).schedule
