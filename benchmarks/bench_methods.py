"""Time of an emulated training step with each method over that of one without, on one core of the CPU at hand.

    PYTHONPATH=src python benchmarks/bench_methods.py [--workload digits-cnn] [--steps 100] [--turns 5]

Each method has its defaults; times are medians of turns, in which all of them train one after another.
"""

import argparse
import time
from dataclasses import replace
from statistics import median

import torch

from presilicon.designs import METHODS, load_recipe
from presilicon.emulation import train
from presilicon.workloads import load_workload

OTHER_MODELS = {"camel": "digits-revnet"}
"""Workloads of methods that need a model of another kind."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", default="digits-cnn")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    numerics = load_recipe("bf16").numerics

    def seconds(workload: str, methods: list) -> float:
        short = replace(
            load_workload(workload), max_steps=arguments.steps, evaluate_every=arguments.steps, target=1.0, sustain=1
        )
        start = time.perf_counter()
        train(short, numerics, methods=methods)
        return (time.perf_counter() - start) / arguments.steps

    names = sorted(METHODS.names())
    for name in names:  # compile kernels
        seconds(OTHER_MODELS.get(name, arguments.workload), [METHODS.load(name)()])
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(arguments.turns):
        for name in names:
            workload = OTHER_MODELS.get(name, arguments.workload)
            plain, own = seconds(workload, []), seconds(workload, [METHODS.load(name)()])
            ratios[name].append(own / plain)
    for name, values in ratios.items():
        print(f"{name} on {OTHER_MODELS.get(name, arguments.workload)}: {median(values):.2f} x a step without it")


if __name__ == "__main__":
    main()
