"""A monitored training step over an emulated one that is not monitored.

    python benchmarks/bench_monitor.py               # one thread of the CPU
    python benchmarks/bench_monitor.py --device cuda

Steps take turns in this process; ratios are those of the best times. "asked" reads the scalars after each step, as a
logger does; "between" is a step between two monitored ones.
"""

import argparse
import copy
from collections.abc import Callable

import torch
from emulation_models import MODELS, stepper
from timing import take_turns

from presilicon.designs import load_numerics
from presilicon.emulation import emulate_, monitor


def measure(name: str, recipe: str, device: str, repeats: int) -> dict[str, float]:
    """The best time of a step in seconds: not monitored, between monitored ones, monitored, and asked."""
    model, *batch = MODELS[name]()
    inputs, targets = (part.to(device) for part in batch)
    emulate_(model.to(device), load_numerics(recipe))

    def step(every: int | None, asks: bool = False) -> Callable[[], None]:
        own = copy.deepcopy(model)
        watch = None if every is None else monitor(own, every=every, start=0 if every == 1 else 1)
        run = stepper(own, inputs, targets)

        def work() -> None:
            run()
            if watch is not None and asks:
                watch.scalars()
            if device == "cuda":
                torch.cuda.synchronize()

        return work

    steps = {"plain": step(None), "between": step(1 << 30), "monitored": step(1), "asked": step(1, asks=True)}
    return take_turns(steps, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", choices=list(MODELS), action="append")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.model or MODELS:
        for recipe in ("fp8-hybrid", "mxfp8"):
            times = measure(name, recipe, arguments.device, arguments.repeats)
            ratios = "  ".join(f"{key} {times[key] / times['plain']:.2f}x" for key in ("between", "monitored", "asked"))
            print(f"{name}, {recipe}: step {times['plain'] * 1e3:.2f} ms  {ratios}")


if __name__ == "__main__":
    main()
