"""Predicted against measured training steps of whole networks on an H200; the preset has seen only layers.

    python evidence/cards/judge_gpu.py [--verbose] [--plot FILE] [--host] [--design FILE] [--write]

The sets are those of evidence/cards/data: `steps` (classical networks), `blind`, `modern`, `fresh`, `unseen`, `sealed`.
`--host` fits the times of the host to eager steps, which is where those of the preset come from. `--write` puts the
errors of graphs, by the share of known layers, into the shipped table: `presilicon simulate` states them.
"""

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from gpu_steps import find_workload
from msgspec import structs
from scipy.optimize import nnls
from sealed_models import CLASSICAL

from presilicon.designs import Design, HostTimes, StepFormats, load_design
from presilicon.records import StepChecks, StepFacts, StepGraph
from presilicon.simulation import MeasuredLayers, executed_ops, launched_kernels, simulate
from presilicon.workloads import capture_workload

DATA = Path(__file__).parent / "data"
TABLE = Path(__file__).parents[2] / "src/presilicon/simulation/roofline/cards/h200.json"
SETS = {
    "classical networks": "steps",
    "written after an earlier fit": "blind",
    "modern networks": "modern",
    "fresh networks": "fresh",
    "unseen networks": "unseen",
    "sealed networks of classical kinds": "sealed",
    "sealed networks of other kinds": "sealed",
}


KNOWN = (0.99, 0.5, 0.1, 0.0)
"""Least shares of known layers by which errors of steps are stated."""


class Judged(NamedTuple):
    row: dict[str, Any]
    time_s: float
    energy_j: float
    known: float

    @property
    def errors(self) -> tuple[float, float]:
        return self.time_s / self.row["time_s"] - 1, self.energy_j / self.row["energy_j"] - 1


@cache
def graph_of(model: str, batch: int) -> StepGraph:
    return capture_workload(find_workload(model), batch_size=batch)


def design_of(row: dict[str, Any], base: str = "h200") -> Design:
    design = load_design(base, numerics=row["precision"])
    layout = row.get("layout", "channels-last")
    return structs.replace(design, machine=structs.replace(design.machine, layout=layout, launch=row["mode"]))


def judge(name: str, base: str) -> list[Judged]:
    judged = []
    for row in json.loads((DATA / f"h200_{name}.json").read_text())["rows"]:
        cost = simulate(graph_of(row["model"], row["batch"]), design_of(row, base))
        judged.append(Judged(row, cost.time_s, cost.energy_j, cost.measured.known if cost.measured else 0.0))
    return judged


def report(title: str, judged: list[Judged]) -> None:
    for mode in ("graph", "eager", "compile"):
        errors = np.array([step.errors for step in judged if step.row["mode"] == mode])
        if len(errors):
            sizes = np.abs(errors)
            print(
                f"{title}, {mode}: {len(errors)} steps; "
                + "; ".join(
                    f"{what}: mean error {sizes[:, i].mean():.1%}, bias {errors[:, i].mean():+.1%}, "
                    f"worst {sizes[:, i].max():.0%}, beyond 30%: {(sizes[:, i] > 0.3).sum()}"
                    for i, what in enumerate(("time", "energy"))
                )
            )


def check_by_known(judged: list[Judged]) -> list[StepChecks]:
    """Errors of time in graphs by the share of known layers."""
    checks, above = [], 2.0
    for known in KNOWN:
        errors = [abs(s.errors[0]) for s in judged if s.row["mode"] == "graph" and known <= s.known < above]
        mean, usual = float(np.mean(errors)), float(np.quantile(errors, 0.9))
        checks.append(
            StepChecks(known=known, steps=len(errors), mean_error=round(mean, 4), usual_error=round(usual, 4))
        )
        above = known
    return checks


def show(judged: list[Judged]) -> None:
    for step in judged:
        row, (time, energy) = step.row, step.errors
        print(
            f"  {row['model']:20}{row['batch']:6} {row['precision']:10}{row.get('layout', 'channels-last'):14}"
            f"{row['mode']:6}{row['time_s'] * 1e3:10.3f} ms {time:+7.1%}   {row['energy_j']:9.3f} J {energy:+7.1%}"
        )


def fit_host(judged: list[Judged]) -> HostTimes:
    """The host's times, on eager steps that it holds up."""
    graphs = {tuple(s.row[k] for k in ("model", "batch", "precision")): s for s in judged if s.row["mode"] == "graph"}
    rows, times = [], []
    for step in judged:
        row = step.row
        bare = graphs.get((row["model"], row["batch"], row["precision"]))
        if row["mode"] != "eager" or bare is None or row["time_s"] < 1.15 * bare.row["time_s"]:
            continue
        counts, design = [1, 0, 0, 0, 0], design_of(row)
        formats = StepFormats(design.numerics, StepFacts())
        ops = executed_ops(graph_of(row["model"], row["batch"]), formats, StepFacts())
        for kernel in launched_kernels(ops, design.machine, formats):  # type: ignore[arg-type]
            if kernel.op.operator == "presilicon.round":
                counts[4] += kernel.launches
            elif kernel.launches:
                counts[{"forward": 1, "update": 3}.get(kernel.op.phase, 2)] += 1
                counts[4] += sum(extra.is_cast for extra in kernel.extras)
        rows.append(np.array(counts) / row["time_s"])
        times.append(1.0)
    # Few steps wait for the host, and their counts go together: what they do not decide stays near a plain guess.
    guess = np.array([300.0, 20.0, 20.0, 3.0, 10.0]) * 1e-6
    rows += list(0.1 * np.diag(1 / guess))
    times += [0.1] * len(guess)
    found, _ = nnls(np.array(rows), np.array(times))
    step_us, forward, backward, update, cast = (round(float(value) * 1e6, 2) for value in found)
    return HostTimes(step_us=step_us, forward_us=forward, backward_us=backward, update_us=update, cast_us=cast)


def plot(parts: dict[str, list[Judged]], path: Path) -> None:
    """Predicted against measured, time and energy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 5.2), constrained_layout=True)
    for axis, (unit, field) in zip(axes, (("seconds", "time_s"), ("joules", "energy_j")), strict=True):
        colours = ("#9aa0a6", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
        for (title, judged), colour in zip(parts.items(), colours, strict=True):
            points = [(step.row[field], getattr(step, field)) for step in judged]
            axis.scatter(*zip(*points, strict=True), s=22, color=colour, alpha=0.75, linewidths=0, label=title)
        values = [value for judged in parts.values() for s in judged for value in (s.row[field], getattr(s, field))]
        ends = np.array([min(values) / 1.5, max(values) * 1.5])
        axis.plot(ends, ends, color="#202124", linewidth=1.2)
        axis.fill_between(ends, ends / 1.3, ends * 1.3, color="#202124", alpha=0.07, linewidth=0)
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axis.set_xlabel(f"measured on an H200 ({unit} per step)")
        axis.set_ylabel(f"predicted ({unit} per step)")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e8eaed", linewidth=0.8)
        axis.set_axisbelow(True)
    axes[0].legend(frameon=False, loc="upper left")
    axes[0].set_title("Time of a training step", loc="left", fontweight="bold")
    axes[1].set_title("Energy of a training step; the band is 30%", loc="left", fontweight="bold")
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="draw predicted against measured")
    parser.add_argument("--host", action="store_true", help="fit the times of the host to the eager steps")
    parser.add_argument("--write", action="store_true", help="put errors by known layers into the shipped table")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--design", default="h200", help="a preset or a design of `presilicon characterize-gpu`")
    options = parser.parse_args()
    parts = {title: judge(name, options.design) for title, name in SETS.items()}
    for title in parts:
        if "sealed" in title:
            is_classical = "classical" in title
            parts[title] = [step for step in parts[title] if (step.row["model"] in CLASSICAL) == is_classical]
    for title, judged in parts.items():
        report(title, judged)
        if options.verbose:
            show(judged)
    checks = check_by_known([step for judged in parts.values() for step in judged])
    for alike in checks:
        print(
            f"at least {alike.known:.0%} of the time of products in known layers: {alike.steps} steps, mean error "
            f"{alike.mean_error:.1%}, nine of ten within {alike.usual_error:.1%}"
        )
    if options.write:
        table = msgspec.json.decode(TABLE.read_bytes(), type=MeasuredLayers)
        TABLE.write_bytes(msgspec.json.encode(msgspec.structs.replace(table, checks=tuple(checks))))
    if options.host:
        print(fit_host(parts["classical networks"]))
    if options.plot:
        plot(parts, options.plot)


if __name__ == "__main__":
    main()
