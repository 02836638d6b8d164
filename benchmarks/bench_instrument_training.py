"""What the instrument costs a training step: the same steps with and without it, in turns, as ratios of one run.

    python benchmarks/bench_instrument_training.py [--workloads fashion-cnn digits-cnn] [--every 10]

Every layer's activations (summary) and weight gradients (gradient norm) are tapped, with a design file's defaults:
every tenth step, 64 vectors of each tensor. A ratio is the mean CPU time of a step with the instrument over that
without; the median of several pairs is given, with the lowest and the highest. One thread.
"""

import argparse
import time
from dataclasses import replace
from statistics import mean, median

import torch
from msgspec.structs import replace as changed

from presilicon.designs import Hardware, Instrument, Tap, load_design
from presilicon.emulation import train
from presilicon.formats import parse
from presilicon.records import StepFacts
from presilicon.study.instrumented import train_watched
from presilicon.workloads import Workload, load_workload, multiplying_layers

WARM_UP = 20


class Clock:
    """A training hook that notes when steps begin."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def before_step(self, step: int) -> None:
        self.times.append(time.process_time())

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        return facts

    @property
    def step_s(self) -> float:
        begun = self.times[WARM_UP:]
        return (begun[-1] - begun[0]) / (len(begun) - 1)


def measure(workload: Workload, design_name: str, pairs: int, every: int) -> tuple[list[float], float, int]:
    """Ratios of pairs, the plain step in seconds, and the number of taps."""
    layers = multiplying_layers(workload.model())
    hardware = Hardware(
        element=parse("bfloat16"), accumulator_bits=32, taps=2 * len(layers), chains=32, scratchpad_rows=32
    )
    taps = (
        Tap(name="into", layers="*", aggregation="summary", every=every),
        Tap(name="slope", layers="*", role="gradient", aggregation="gradient_norm", every=every),
    )
    plain = load_design(design_name)
    design = changed(plain, instrument=Instrument(hardware=hardware, taps=taps, step_s=1e-3))
    ratios, steps = [], []
    for _ in range(pairs):
        without, with_it = Clock(), Clock()
        train(workload, plain.numerics, hooks=[without])
        train_watched(workload, design, hooks=[with_it])
        ratios.append(with_it.step_s / without.step_s)
        steps.append(without.step_s)
    return ratios, mean(steps), 2 * len(layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=["fashion-cnn", "digits-cnn"])
    parser.add_argument("--designs", nargs="+", default=["bf16-systolic", "fp8-systolic"])
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--every", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'workload':14}  {'design':14}  taps  plain step   with the instrument")
    for name in given.workloads:
        for design in given.designs:
            workload = replace(load_workload(name), max_steps=given.steps, evaluate_every=10**9, sustain=1)
            ratios, step_s, taps = measure(workload, design, given.pairs, given.every)
            low, high = min(ratios), max(ratios)
            step = f"{1e3 * step_s:7.2f} ms"
            print(f"{name:14}  {design:14}  {taps:4}  {step}   x{median(ratios):.3f} [{low:.3f}-{high:.3f}]")


if __name__ == "__main__":
    main()
