"""What the runtime costs: a training step with every op sent through it to the CPU, against plain torch.

python benchmarks/bench_hybrid.py [--workloads digits-mlp digits-cnn] [--steps 50]

Prints the medians of both and the difference per op. The runtime's own work runs beside that of the ops, so that on an
idle core it is partly hidden; on a busy machine it is not.
"""

import argparse
import statistics
import time
from collections.abc import Iterable

import torch

from presilicon.records import Pool
from presilicon.study import Hybrid, capture_steps, join_steps
from presilicon.study.execution import PlainTraining, everything_on
from presilicon.workloads import load_workload


def laps(losses: Iterable[float]) -> list[float]:
    """Time of each step, without the first three."""
    times, began = [], time.perf_counter()
    for _ in losses:
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
    return times[3:]


def main() -> None:
    """Print a line for each workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="+", default=["digits-mlp", "digits-cnn"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)  # threads that wait for one another on a busy machine would hide everything else
    for name in options.workloads:
        graph = join_steps(name, capture_steps(name, options.batch), "work", None)
        plain = laps(PlainTraining(load_workload(name), options.batch).run(options.steps))
        training = PlainTraining(load_workload(name), options.batch)
        problem, schedule = everything_on(graph, (Pool(name="cpu", units=1, idle_w=0.0, runtime=("cpu",)),), "cpu")
        with Hybrid(training.model, problem, schedule, "cpu") as run:
            through = laps(training.run(options.steps))
        ops = run.execution.ops
        plain_ms, through_ms = (1e3 * statistics.median(times) for times in (plain, through))
        print(
            f"{name}, batch {options.batch}, {ops} ops: plain {plain_ms:.2f} ms, through the runtime "
            f"{through_ms:.2f} ms, {1e3 * (through_ms - plain_ms) / ops:.0f} us per op"
        )


if __name__ == "__main__":
    main()
