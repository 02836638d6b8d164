"""Seeds trained at once on the GPU at hand, over the same seeds one after another; the bits must be the same.

    PYTHONPATH=src python benchmarks/gpu_seeds.py

`fashion-cnn` with the numerics of bf16-systolic. "eager" starts every kernel from Python, "captured" replays CUDA
graphs, "at once" lets eight captured runs take turns. Rates are steps of all seeds in a second, starting included.
"""

import json
import sys
import time
from dataclasses import replace
from unittest.mock import patch

from presilicon.designs import load_design
from presilicon.emulation import TrainingRecord
from presilicon.emulation.training import step
from presilicon.records import Trace
from presilicon.study.join.seeds import SeedTask
from presilicon.study.pool import LocalPool
from presilicon.study.runner import Runner
from presilicon.workloads import load_workload

SEEDS = 8


def train(steps: int, seeds: int, jobs: int, name: str) -> tuple[float, list[Trace]]:
    """Steps per second, and the traces."""
    workload = replace(load_workload(name), max_steps=steps, evaluate_every=100, sustain=100)
    numerics = load_design("bf16-systolic").numerics
    tasks = [SeedTask("bf16-systolic", TrainingRecord(workload, numerics, seed, "cuda")) for seed in range(seeds)]
    start = time.perf_counter()
    traces = Runner(LocalPool(jobs)).train(tasks, device="cuda")
    return seeds * steps / (time.perf_counter() - start), traces


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    for name in sys.argv[2:] or ["fashion-cnn"]:
        train(20, 1, 1, name)  # kernels are compiled and libraries loaded
        with patch.object(step, "can_capture", lambda *arguments: False):
            eager_s, eager = train(steps, 2, 1, name)
        captured_s, captured = train(steps, SEEDS, 1, name)
        together_s, together = train(steps, SEEDS, SEEDS, name)
        row = {
            "workload": name,
            "eager_steps_s": eager_s,
            "captured_steps_s": captured_s,
            "at_once_steps_s": together_s,
            "captured_over_eager": captured_s / eager_s,
            "at_once_over_eager": together_s / eager_s,
            "at_once_over_captured": together_s / captured_s,
            "same_bits": eager == captured[:2] and captured == together,
        }
        print(json.dumps(row, indent=2), flush=True)


if __name__ == "__main__":
    main()
