"""A design found by a search, within the area and the power of `bf16-systolic`, that trains `fashion-cnn` sooner."""

from collections.abc import Callable, Iterator
from typing import Any

from presilicon.base import cache_directory
from presilicon.designs import load_design
from presilicon.records import (
    Comparison,
    Curve,
    Event,
    Interval,
    Panel,
    Recommendation,
    Reproduced,
    Reproduction,
    Result,
    SweepResult,
)
from presilicon.simulation import area, simulate
from presilicon.study import StepGraphs, sweep
from presilicon.workloads import load_workload
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude

DESIGN, WORKLOAD = "bf16-systolic", "fashion-cnn"
POINTS, SEEDS = 300, 6
AIM = 1.5
"""Times as soon as the preset."""
_GAIN = "time to accuracy, bf16-systolic over recommended"
_LOW = "  low end of its interval"

VARY: dict[str, Any] = {
    "numerics": ["bf16", "bf16-pure", "fp8-hybrid", "mxfp8", "bfp4", "int8"],
    "machine": {
        "rows": [8, 16, 32, 64, 128],
        "cols": [8, 16, 32, 64, 128],
        "cores": {"count": [1, 2, 4, 8, 16]},
        "sram_kib": [256, 512, 1024, 2048],
        "vector_lanes": [32, 64, 128, 256],
        "prefetch": [True, False],
        "fold_overlap": [True, False],
        "dataflow": {
            "forward": ["weight-stationary", "best"],
            "input_grad": ["weight-stationary", "best"],
            "weight_grad": ["output-stationary", "best"],
        },
    },
}
"""The neighbourhood of the presets: arrays, buffers and lanes of the systolic ones, cores of `bf16-mesh`, and recipes.
Clock, DRAM and technology stay those of `bf16-systolic`."""


def study(
    workload: str = WORKLOAD, *, points: int = POINTS, train: dict[str, Any] | None = None, **choose: int
) -> dict[str, Any]:
    """The study, as `presilicon sweep` takes it: limits are the area and the power of the design as it is."""
    design = load_design(DESIGN)
    cost, mm2 = simulate(StepGraphs(load_workload(workload))(), design), area(design).mm2
    return {
        "name": "co-design",
        "designs": DESIGN,
        "workloads": workload,
        "subject_to": [f"area_mm2 <= {mm2!r}", f"power_w <= {cost.energy_j / cost.time_s!r}"],
        "vary": VARY,
        "search": {"sampler": "nsga2", "points": points},
        "train": train or {"seeds": SEEDS},
        "choose": {"promising": 6, "best": 2, "sensitivity": True, **choose},
    }


_ASSUMPTIONS = (
    "Searched: rows, columns and cores of the arrays, buffers, vector lanes, dataflows, prefetching and six recipes; "
    f"NSGA-II proposed {POINTS} of 384,000 designs. Clock (0.5 GHz), DRAM (100 GB/s) and technology (horowitz-45nm) "
    "are those of bf16-systolic; hyperparameters are the workload's own.",
    "Power is the energy of a step over its time. Areas are without pads, clock tree and DRAM interface.",
    f"{SEEDS} paired seeds: all designs start from the same weights and see the same batches. The fastest of the "
    "designs that were trained in full is recommended, which flatters its ratio a little if several are close.",
)


def reproduce(
    on_event: Callable[[Event], None] | None = None, *, jobs: int | None = None, **options: Any
) -> Reproduction:
    """Search, train the promising and the best, and compare the recommended design with the preset.

    The study is kept in the user's cache: one that was interrupted continues when it is started again.
    """
    result = sweep(study(**options), out=cache_directory("co-design"), jobs=jobs, on_event=on_event)
    choice = result.recommendation
    assert choice is not None
    rows = tuple(_rows(result, choice, _ratio(choice)))
    return Reproduction(
        name="co-design",
        title="Co-design under the area and power of bf16-systolic",
        source=f"no publication has this; the aim was {AIM:g} times sooner",
        rows=rows,
        assumptions=_ASSUMPTIONS,
        verdict=conclude(statements, rows),
        panels=(_panel(choice.comparison),),
        study=result,
    )


def _ratio(choice: Recommendation) -> Interval:
    """Time of the reference over that of the recommended design, seed by seed."""
    for pair in choice.comparison.pairs:
        ratio = pair.time_ratio
        if ratio is not None and (pair.first, pair.second) == (choice.design, choice.reference):
            return ratio
        if ratio is not None and (pair.first, pair.second) == (choice.reference, choice.design):
            return ratio.inverse
    return Interval(1.0, 1.0, 1.0)  # the reference itself is recommended


def _result(choice: Recommendation, name: str) -> Result:
    return next(result for result in choice.comparison.designs if result.name == name)


def _rows(result: SweepResult, choice: Recommendation, ratio: Interval) -> list[Reproduced]:
    ends = [f"{end:.2f}" if end is not None else "never" for end in (ratio.low, ratio.high)]
    rows = [
        Reproduced(
            _GAIN,
            ours=ratio.median,
            note=f"{ends[0]} to {ends[1]} over {SEEDS} paired seeds; the aim was at least {AIM:g}",
        ),
        Reproduced(_LOW, ours=ratio.low),
    ]
    for name in (choice.reference, choice.design):
        own = _result(choice, name)
        power = own.energy_per_step_j / own.time_per_step_s
        rows += [
            Reproduced(
                f"{name}: time to accuracy",
                "ms",
                ours=None if own.time_to_accuracy_s.median is None else 1e3 * own.time_to_accuracy_s.median,
                note=f"reached {own.reached}, test accuracy {own.value:.1%}",
            ),
            Reproduced(
                f"{name}: energy to accuracy",
                "J",
                ours=own.energy_to_accuracy_j.median,
                note=f"{power:.3g} W, {own.area_mm2:.4g} mm2",
            ),
        ]
    values = next((record.values for record in result.records if record.number == choice.number), {})
    chosen = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in values.items())
    rows.append(Reproduced("point that is recommended", ours=float(choice.number), note=chosen))
    note = f"{len(result.feasible)} within the limits, {len(result.front)} on the front of time, energy and area"
    return [*rows, Reproduced("designs simulated", ours=float(len(result.records)), note=note)]


def statements(rows: Rows) -> Iterator[Statement]:
    """Whether the aim was reached, and whether paired seeds separate the two designs."""
    gain, low = rows[_GAIN].ours, rows[_GAIN, _LOW.strip()].ours
    preset, chosen = (row for row in rows if row.quantity.endswith(": time to accuracy"))
    name = chosen.quantity.partition(":")[0]
    alone = chosen.ours is not None and preset.ours is None
    yield Statement(
        chosen.ours is not None and (alone if gain is None else gain >= AIM),
        f"a design within the area and power of {DESIGN} reaches the target {AIM:g} times sooner",
        f"{name} alone reaches the target" if alone else f"{name} reaches the target {gain or 0.0:.2f} times sooner",
        ("Reached", "Not reached"),
    )
    separates = low is not None and low > 1
    yield Statement(
        separates,
        f"paired seeds separate {name} from {DESIGN}",
        "the interval of the ratio has no low end" if low is None else f"the interval of the ratio begins at {low:.2f}",
        OUR_OWN,
    )


def _panel(comparison: Comparison) -> Panel:
    curves = [
        Curve(
            name=result.name,
            x=tuple(1e3 * point.time_s for point in result.seeds[0].curve),
            y=tuple(point.value for point in result.seeds[0].curve),
        )
        for result in comparison.designs
    ]
    return Panel(
        title="Accuracy over time, within the area and power of bf16-systolic",
        curves=tuple(curves),
        y_label="validation accuracy",
        x_label="milliseconds of training",
        percent=True,
        note="The first seed of each design that was trained in full.",
    )
