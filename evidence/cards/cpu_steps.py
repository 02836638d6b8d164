"""Training steps of whole networks on the processor at hand, predicted by a design of `characterize-cpu` and measured.

    python evidence/cards/cpu_steps.py measure --out steps.json [--threads 8] [--models digits-cnn,resnet18] [--compile]
    python evidence/cards/cpu_steps.py judge my-processor/design.toml steps.json

A step is forward, loss, backward and update in float32; its time is the least of some steps. Freed memory is kept, as
`characterize-cpu` does; `--default-memory` leaves it to the C library. `--compile` measures models after torch.compile,
which is not predicted.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from gpu_steps import find_workload

from presilicon.cards import keep_memory, processor_name
from presilicon.designs import load_design
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload

CASES = {
    "digits-mlp": 128, "digits-cnn": 128, "fashion-cnn": 64, "mlp-medium": 128, "alexnet": 8, "resnet18": 8,
    "resnet50": 4, "dcgan-discriminator": 16, "lstm": 20, "gpt-block": 1, "mobilenet": 8, "encoder": 2, "vit-s": 4,
    "clicks": 256, "speech": 8,
}  # fmt: skip


def measure(name: str, batch: int, seconds: float, *, compiled: bool = False) -> float:
    torch.manual_seed(0)
    workload = find_workload(name)
    model = workload.model().train()
    inputs, targets = (
        torch.randn(part.shape) if part.is_floating_point() else torch.randint(0, 10, part.shape)
        for part in workload.batch(batch)
    )
    optimizer = workload.optimizer(model.parameters())
    if compiled:
        model = torch.compile(model)
        workload.loss(model(inputs), targets).backward()
    times, begin = [], time.perf_counter()
    while len(times) < 4 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        workload.loss(model(inputs), targets).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--threads", type=int)
    measuring.add_argument("--models", default=",".join(CASES))
    measuring.add_argument("--seconds", type=float, default=2.0)
    measuring.add_argument("--default-memory", action="store_true")
    measuring.add_argument("--compile", action="store_true")
    judging = commands.add_parser("judge")
    judging.add_argument("design")
    judging.add_argument("steps", type=Path)
    options = parser.parse_args()
    if options.command == "measure":
        if not options.default_memory:
            keep_memory()
        if options.threads:
            torch.set_num_threads(options.threads)
        rows = []
        for name in options.models.split(","):
            time_s = measure(name, CASES[name], options.seconds, compiled=options.compile)
            rows.append({"model": name, "batch": CASES[name], "time_s": time_s})
            print(f"{name:20}{CASES[name]:6}{time_s * 1e3:10.3f} ms", flush=True)
            document = {"schema": 1, "device": processor_name(), "torch": torch.__version__, "rows": rows}
            options.out.write_text(json.dumps(document, indent=1) + "\n")
        return
    design, errors = load_design(options.design, numerics="fp32"), []
    for row in json.loads(options.steps.read_text())["rows"]:
        cost = simulate(capture_workload(find_workload(row["model"]), batch_size=row["batch"]), design)
        errors.append(cost.time_s / row["time_s"] - 1)
        print(f"{row['model']:20}{row['batch']:6}{row['time_s'] * 1e3:10.3f} ms {errors[-1]:+7.1%}")
    mean, bias = sum(map(abs, errors)) / len(errors), sum(errors) / len(errors)
    print(f"{len(errors)} steps: mean error {mean:.1%}, bias {bias:+.1%}, worst {max(map(abs, errors)):.0%}")


if __name__ == "__main__":
    main()
