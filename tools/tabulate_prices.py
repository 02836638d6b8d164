"""Prices of the packaged workloads on the packaged designs: one record, and what changed since another one.

    python tools/tabulate_prices.py record FILE [--workload NAME ...] [--design NAME ...]
    python tools/tabulate_prices.py compare BEFORE AFTER [--above PERCENT]

A record has the time, the joules and the DRAM bytes of a training step and of its forward pass alone in evaluation.
"""

import argparse
import gc
import json
from collections.abc import Sequence
from pathlib import Path

import torch

import presilicon as ps
from presilicon.designs import design_names
from presilicon.records import StepGraph
from presilicon.simulation import simulate
from presilicon.workloads import Workload, capture, capture_workload, workload_names

FIGURES = ("time_s", "energy_j", "bytes_dram")


def capture_inference(workload: Workload) -> StepGraph:
    """The forward pass of a workload's model in evaluation."""
    inputs, _ = workload.batch(workload.batch_size)
    with torch.device("meta"):
        model = workload.model().eval()
    return capture(model, inputs, name=workload.name, training=False)


def price(graph: StepGraph, design: str) -> list[float] | str:
    """The figures of a step, or why it has none."""
    try:
        cost = simulate(graph, ps.load_design(design))
    except ps.PresiliconError as error:
        return type(error).__name__
    return [cost.time_s, cost.energy_j, sum(op.bytes_dram for op in cost.ops)]


def record(workloads: Sequence[str], designs: Sequence[str]) -> dict[str, list[float] | str]:
    """The prices by workload, mode and design."""
    prices = {}
    for name in workloads:
        workload = ps.load_workload(name)
        for mode, take in (("training", capture_workload), ("inference", capture_inference)):
            graph = take(workload)
            prices |= {f"{name} {mode} {design}": price(graph, design) for design in designs}
            gc.collect()
        print(name, flush=True)
    return prices


def compare(before: dict[str, list[float] | str], after: dict[str, list[float] | str], above: float) -> list[str]:
    """Rows of a table: what changed by more than a share."""
    rows = ["| workload | mode | design | time | joules | DRAM bytes |", "|---|---|---|--:|--:|--:|"]
    for case, new in after.items():
        old = before.get(case)
        if old is None or old == new:
            continue
        if isinstance(old, str) or isinstance(new, str):
            changes = [f"{old} to {new}", "", ""]
        elif all(abs(b - a) <= above * a for a, b in zip(old, new, strict=True)):
            continue
        else:
            changes = [
                f"{a:.4g} to {b:.4g} ({b / a - 1:+.1%})" if a else f"{b:.4g}" for a, b in zip(old, new, strict=True)
            ]
        rows.append("| " + " | ".join([*case.split(), *changes]) + " |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("record")
    own.add_argument("file", type=Path)
    own.add_argument("--workload", action="append")
    own.add_argument("--design", action="append")
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--above", type=float, default=2.0, metavar="PERCENT")
    given = parser.parse_args()
    if given.command == "record":
        prices = record(given.workload or workload_names(), given.design or design_names())
        given.file.write_text(json.dumps(prices, indent=1) + "\n")
    else:
        before, after = (json.loads(path.read_text()) for path in (given.before, given.after))
        print("\n".join(compare(before, after, given.above / 100)))


if __name__ == "__main__":
    main()
