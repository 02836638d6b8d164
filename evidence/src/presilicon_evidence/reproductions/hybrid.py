"""Shared by the reproductions of the GPU-FPGA publication: its figures, six models, and sets of assumptions."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from msgspec.structs import replace

from presilicon.designs import System, load_system
from presilicon.records import Problem, Reproduced, Schedule, ScheduleCost, StepGraph
from presilicon.scheduling import Graph, Rules, alone, build_problem, check, cost, execute, parse_graph, reference_only
from presilicon.study import MODELS, Sizing, capture_steps, join_steps
from presilicon_evidence.reproductions.verdicts import Statement, is_near

SOURCE = "Enabling Energy-Efficient DNN Training on Hybrid GPU-FPGA Accelerators, He et al., ICS 2021"
NAMES = {
    "alexnet": "Alexnet",
    "resnet50": "Resnet50",
    "vgg16": "Vgg16",
    "inception-v3": "Inception3",
    "dcgan": "DCGAN",
    "bert-large": "BERT-Large",
}
MADE_UP = "step-432-M"
RELIEF = 1.178
"""Speedup of ops on the GPU when others have left it, as measured by the source."""
NO_POWER = ("devices.fpga.idle_w=0",)
FULL_CLOCK = ("devices.gpu.clocks=[1.0]",)
SLOW_LINKS = ("devices.gpu.bytes_per_s=437.6e6", "devices.fpga.bytes_per_s=958.5e6")
"""Bandwidths that the source measured with 512 KB."""


class Assumptions(NamedTuple):
    """A set of assumptions under which a step is scheduled."""

    name: str
    sizing: Sizing = "tensor"
    like_rows: bool = False
    """Ops that are not in the table take as long as a similar op in it; otherwise their bytes over memory bandwidth."""
    settings: tuple[str, ...] = NO_POWER
    transfers: bool = False
    relief: float = 1.0
    rules: Rules = Rules()


SETS = (
    Assumptions("A: S/M classes, free moves, idle boards draw nothing", like_rows=True),
    Assumptions("B: A, and GPU ops 17.8% faster", like_rows=True, relief=RELIEF),
    Assumptions("C: B, classes by im2col", sizing="im2col", like_rows=True, relief=RELIEF),
    Assumptions("D: B, missing ops by memory bandwidth", relief=RELIEF),
    Assumptions("E: B, 13 W per idle board", like_rows=True, relief=RELIEF, settings=()),
    Assumptions("F: B, 57 W per idle board", like_rows=True, relief=RELIEF, settings=("devices.fpga.idle_w=57",)),
    Assumptions("J: B, an idle GPU takes all", like_rows=True, relief=RELIEF, rules=Rules(takes_all=True)),
    Assumptions("K: A, real tensors over 12 GB/s", like_rows=True, transfers=True),
    Assumptions(
        "L: A, real tensors at published rates", like_rows=True, transfers=True, settings=NO_POWER + SLOW_LINKS
    ),
    Assumptions("W: times by FLOPs and bytes, 12 GB/s, 13 W", sizing="work", transfers=True, settings=()),
)


@cache
def facts() -> dict[str, Any]:
    """Every figure of the publication."""
    text = (files(__package__) / "data" / "hybrid.json").read_text(encoding="utf-8")
    figures: dict[str, Any] = json.loads(text)
    return figures


@cache
def steps(model: str) -> tuple[StepGraph, ...]:
    """The captured training step of one of the six models, at the published batch size."""
    return capture_steps(model)


def graph_under(model: str, system: System, assumptions: Assumptions) -> Graph:
    """A model's step with the sizes that a set of assumptions gives its ops."""
    if not assumptions.like_rows:
        return join_steps(model, steps(model), assumptions.sizing, system.kinds)
    graph = join_steps(model, steps(model), assumptions.sizing, None)
    return replace(graph, ops=tuple(replace(op, bytes_moved=None) for op in graph.ops))


def made_up() -> Graph:
    """A synthetic step of 432 ops like ResNet-50's, with every convolution of size M."""
    text = (files(__package__) / "data" / "step-432-M.json").read_text(encoding="utf-8")
    return parse_graph(json.loads(text), MADE_UP)


class Run(NamedTuple):
    """A step scheduled by the published rules, and on the GPU alone."""

    problem: Problem
    schedule: Schedule
    hybrid: ScheduleCost
    gpu: ScheduleCost
    gpu_time_s: tuple[float, ...]
    """Time of each op on the GPU."""

    @property
    def throughput(self) -> float:
        """Change in percent."""
        return 100 * (self.hybrid.throughput_samples_per_s / self.gpu.throughput_samples_per_s - 1)

    @property
    def power(self) -> float:
        """Change in percent."""
        return 100 * (self.hybrid.average_power_w / self.gpu.average_power_w - 1)

    @property
    def efficiency(self) -> float:
        """Change of samples per joule, in percent."""
        return 100 * (self.hybrid.samples_per_j / self.gpu.samples_per_j - 1)

    @property
    def moved(self) -> list[int]:
        """Ops that run on FPGAs."""
        return [slot.task for slot in self.schedule.started if slot.mode.device == "fpga"]


def _at_least_idle(system: System) -> System:
    """The system with rows raised to idle power: the source's 57 W per board contradict its own table."""
    idle = [row.units * system.devices[row.device].idle_w for row in system.rows]
    rows = (
        replace(row, average_w=max(row.average_w, least), peak_w=max(row.peak_w, least))
        for row, least in zip(system.rows, idle, strict=True)
    )
    return replace(system, rows=tuple(rows))


def run(
    model: str, assumptions: Assumptions, system: str = "v100-3xs10", change: Callable[[System], System] | None = None
) -> Run:
    """One model under one set of assumptions, compared with GPUs without boards; `change` reads the table otherwise."""
    loaded = load_system(system, [*assumptions.settings, *FULL_CLOCK])
    loaded = _at_least_idle(loaded if change is None else change(loaded))
    graph = made_up() if model == MADE_UP else graph_under(model, loaded, assumptions)
    plain = build_problem(loaded, graph, transfers=assumptions.transfers)
    problem = plain
    if assumptions.relief != 1.0:
        problem = build_problem(loaded, graph, transfers=assumptions.transfers, relief=assumptions.relief)
    schedule = execute(problem, assumptions.rules, judged_by=plain).schedule
    claimed = cost(problem, schedule)
    check(problem, schedule, claimed=claimed)
    by_itself = alone(plain, "gpu")
    times = tuple(task.modes[0].time_s for task in by_itself.tasks)
    return Run(problem, schedule, claimed, cost(by_itself, reference_only(by_itself, "gpu")), times)


def under_some(claim: str, rows: Mapping[str, Reproduced], within: float) -> Statement:
    """The statement that a published figure appears under some set of assumptions; each by its letter."""
    near = [letter for letter, row in rows.items() if is_near(row, within)]
    ours = ", ".join(f"{letter} {row.ours or 0.0:+.1f}" for letter, row in rows.items())
    published = next(iter(rows.values())).published
    figures = f"published {published or 0.0:+.1f}; {ours}; so near under {', '.join(near) or 'none'}"
    return Statement(bool(near), f"{claim} under some set of assumptions, within {within:.0%}", figures)


__all__ = ["MADE_UP", "MODELS", "NAMES", "SETS", "SOURCE", "Assumptions", "Run", "facts", "run", "under_some"]
