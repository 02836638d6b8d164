"""How fast the V100 of the GPU-FPGA publication is, what a real one leaves to save, and other readings of Table 1."""

from collections.abc import Iterator
from functools import partial
from statistics import mean

from msgspec.structs import replace

from presilicon.designs import System, load_system
from presilicon.records import Reproduced, Reproduction
from presilicon.scheduling import (
    Rules,
    alone,
    check,
    cost,
    energy_bound,
    execute,
    judge,
    reference_only,
    schedule_heft,
)
from presilicon.study import problem_of
from presilicon_evidence.reproductions.hybrid import (
    FULL_CLOCK,
    MODELS,
    NAMES,
    RELIEF,
    SETS,
    SOURCE,
    Assumptions,
    facts,
    run,
)
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, listed, stated

_B = SETS[1]
_READINGS = (
    (_B, 1.0, 1.0, "power and time of three boards together"),
    (Assumptions("G", like_rows=True, relief=RELIEF), 3.0, 1.0, "power of one board"),
    (Assumptions("H", like_rows=True, relief=RELIEF), 1.0, 1 / 3, "time of one board"),
    (Assumptions("I", like_rows=True, relief=RELIEF), 3.0, 1 / 3, "power and time of one board"),
)
_NEAR = 0.2
_STRICT = Assumptions("A", like_rows=True, rules=Rules(small_ops=False))


def reproduce() -> Reproduction:
    """Samples per second first, then energies with the times of a real V100, and readings per board."""
    rows = tuple(_rows())
    return Reproduction(
        name="hybrid-speed",
        title="The GPU-FPGA publication: absolute speed, a real V100 beside the boards, and Table 1 per board",
        source=SOURCE,
        rows=rows,
        assumptions=(
            "Table 3 gives samples per second of a V100 that is held below 230 W; ours are without a cap.",
            "The real V100 is the design v100: a roofline with float16 products (125 TFLOPS), 900 GB/s, and the "
            "efficiency of a measured H200. Boards keep the times of Table 1 by work, 13 W when idle and 12 GB/s.",
            "Savings of the real V100 are those of HEFT or of the published rules, whichever takes less energy, and "
            "the largest that the linear program leaves possible at no loss of throughput; the GPU at full clock.",
            "Table 1 says that big ops ran on three boards, and not whether its watts and milliseconds are of one or "
            "of all. The readings are under B (free moves, idle boards without power, relief of 17.8%).",
            "Section 3.3's last filter keeps only kernels that outperform the GPU's; the same section sends small ops "
            "off the critical path to slower kernels. Strict is the filter without these.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """Speeds of a real card, what boards save beside it, readings of Table 1, and the last filter."""
    speeds = [row for row in rows if row.unit == "samples/s"]
    apart = ", ".join(f"{row.difference or 0.0:+.0%} ({row.quantity.partition(':')[0]})" for row in speeds)
    yield Statement(
        all(abs(row.difference or 0.0) <= _NEAR for row in speeds),
        f"a real V100 has the published speeds, within {_NEAR:.0%}",
        f"ours beside the published: {apart}",
    )
    saved = rows.like("energy saved against the GPU alone")
    most = rows.like("the most that any schedule could save")
    idle = rows.like("energy saved against a GPU with idle boards")
    yield Statement(
        any((row.ours or 0.0) > 0 for row in saved),
        "with a real V100, boards save energy at no loss of throughput",
        ", ".join(
            f"{name} {max(row.ours or 0.0 for row in found):.1f}% at most"
            for name, found in (
                ("against the GPU alone", saved), ("against a GPU with idle boards", idle), ("by any schedule", most)
            )
        ),
    )  # fmt: skip
    for row in rows.like("Table 1 gives"):
        yield stated(f"the published gain in samples per joule, if {row.quantity.partition(':')[0]}", [row], _NEAR)
    admitted = rows["rows of Table 1 that the thresholds admit"]
    kept = rows["rows of Table 1 that the thresholds admit", "and section 3.3's last filter keeps"]
    yield Statement(
        kept.ours == admitted.ours,
        "the thresholds admit only rows that the last filter keeps, those that are faster on a board",
        f"{listed([admitted, kept])}",
        OUR_OWN,
    )


def _rows() -> Iterator[Reproduced]:
    published = facts()["table3_230W_samples_s"]
    for model in MODELS:
        speeds = [run(model, assumptions).gpu.throughput_samples_per_s for assumptions in (SETS[0], SETS[-1])]
        real = _real(model)
        note = f"real V100 {real[0]:.0f}; by size classes (A) {speeds[0]:.0f}; by work (W) {speeds[1]:.0f}"
        yield Reproduced(
            f"{NAMES[model]}: one V100, real roofline", "samples/s", published[NAMES[model]][0], real[0], note=note
        )
        yield Reproduced("  energy saved against a GPU with idle boards", "%", ours=real[1])
        yield Reproduced("  the most that any schedule could save", "%", ours=real[2])
        yield Reproduced("  energy saved against the GPU alone", "%", ours=real[3])
    figures = facts()["headline_1G3F"]
    for assumptions, watts, time, name in _READINGS:
        runs = [run(model, assumptions, change=partial(_read, watts=watts, time=time)) for model in MODELS]
        yield Reproduced(f"Table 1 gives {name}: samples/J (B)", "%", figures["energy_eff_improvement_avg_%"],
                         mean(each.efficiency for each in runs),
                         note=f"throughput {mean(each.throughput for each in runs):+.1f}, "
                         f"power {mean(each.power for each in runs):+.1f}")  # fmt: skip
    judged = judge(load_system("v100-3xs10"), "paper")
    kept = len(judged.admitted) - len(judged.wrongly)
    yield Reproduced("rows of Table 1 that the thresholds admit", "of 21", ours=len(judged.admitted))
    yield Reproduced("  and section 3.3's last filter keeps", "of 21", ours=kept, note=f"missed: {len(judged.missed)}")
    strict, loose = (mean(run(model, each).efficiency for model in MODELS) for each in (_STRICT, SETS[0]))
    yield Reproduced("samples/J by the last filter alone (A, strict)", "%", ours=strict)
    yield Reproduced("  with small ops off the critical path (A)", "%", ours=loose)


def _read(system: System, watts: float, time: float) -> System:
    """The system with the figures of Table 1 for big ops on boards read in another way."""
    rows = (
        replace(row, average_w=row.average_w * watts, peak_w=row.peak_w * watts, time_ms=row.time_ms * time)
        if row.device == "fpga" and row.units > 1
        else row
        for row in system.rows
    )
    return replace(system, rows=tuple(rows))


def _real(model: str) -> tuple[float, float, float, float]:
    """Samples per second of a real V100, and percent of energy saved: ours, at most, and against the GPU alone."""
    system = load_system("v100-3xs10", ["devices.gpu.machine=v100", *FULL_CLOCK])
    problem = problem_of(system, model)
    gpu = reference_only(problem, "gpu")
    by_itself = alone(problem, "gpu")
    energies = [cost(problem, gpu).energy_per_step_j]
    for schedule in (execute(problem, Rules()).schedule, schedule_heft(problem)):
        check(problem, schedule)
        if schedule.makespan_s <= gpu.makespan_s:
            energies.append(cost(problem, schedule).energy_per_step_j)
    idle, best = energies[0], min(energies)
    least = energy_bound(problem, gpu.makespan_s).bound
    own = cost(by_itself, reference_only(by_itself, "gpu"))
    return (
        own.throughput_samples_per_s,
        100 * (1 - best / idle),
        100 * (1 - least / idle),
        100 * (1 - best / own.energy_per_step_j),
    )
