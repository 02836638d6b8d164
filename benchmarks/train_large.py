"""Train the workloads of real size in float32 and print their curves, to choose targets and budgets from.

    python benchmarks/train_large.py --device cuda [--workload NAME ...] [--seeds N] [--max-steps N] [--out FILE]

The whole budget is spent, whatever the target. Full Fashion-MNIST must be installed, or in the folder named by
PRESILICON_FASHION_MNIST.
"""

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import presilicon as ps
from presilicon.designs import Numerics
from presilicon.emulation import train
from presilicon.records import Evaluation

WORKLOADS = ("fashion-resnet18", "fashion-vit", "python-gpt", "diabetes-mlp")


def train_seed(name: str, seed: int, device: str, max_steps: int | None) -> dict[str, Any]:
    """The curve of one seed, with seconds since the first step."""
    own = ps.load_workload(name)
    # Nothing is held for so many evaluations, so training goes on to the end of the budget.
    workload = replace(own, sustain=10**9, max_steps=max_steps or own.max_steps)
    points: list[dict[str, float]] = []
    start = time.perf_counter()

    def note(point: Evaluation) -> None:
        seconds = time.perf_counter() - start
        points.append({"step": point.step, "seconds": seconds, "metric": point.value, "loss": point.loss})
        print(f"{name} seed {seed} step {point.step:5} {seconds:7.1f} s  {own.measure.name} {point.value:.4f}  "
              f"loss {point.loss:.4f}", flush=True)  # fmt: skip

    trace = train(workload, Numerics(), seed=seed, device=device, on_evaluation=note)
    seconds = time.perf_counter() - start
    reached = trace.crossing(own.target or 0.0, own.sustain, own.measure.direction)
    held = "not held" if reached is None else f"held from step {reached.step:.0f} on"
    print(f"{name} seed {seed}: target {own.target} {held}; test {trace.test_value:.4f}; "
          f"{seconds / trace.steps:.4f} s a step with evaluations", flush=True)  # fmt: skip
    return {"workload": name, "seed": seed, "test": trace.test_value, "seconds": seconds, "steps": trace.steps,
            "reached": None if reached is None else reached.step, "points": points}  # fmt: skip


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.processor()
    print(f"torch {torch.__version__}, {options.device} ({name}), {torch.get_num_threads()} threads", flush=True)
    runs = [
        train_seed(workload, seed, options.device, options.max_steps)
        for workload in options.workload or WORKLOADS
        for seed in range(options.seeds)
    ]
    if options.out is not None:
        options.out.write_text(json.dumps(runs) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
