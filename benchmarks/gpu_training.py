"""Milliseconds that `train` takes for a step over those of the bare step, on the GPU at hand.

    PYTHONPATH=src:benchmarks:evidence/cards python benchmarks/gpu_training.py [--recipes bf16,fp8-hybrid]

The bare step is forward, backward and update on one batch: as a CUDA graph where `train` captures its steps too, and
eager. `train` also fetches batches, keeps the losses, diagnoses every 50th step and ends runs that diverge. Its time is
that of a long run less that of a short one, so that loading, recording graphs and the first evaluation do not count.
"""

import argparse
import time
from dataclasses import replace
from functools import partial

import torch
from emulation_models import Gpt
from gpu_steps import as_graph
from gpu_steps_emulated import best, numerics_of

from presilicon.emulation import emulate_, train
from presilicon.workloads import Splits, Workload, load_workload, sgd

STEPS, LEAST_S = 150, 2.0
"""Steps of the short run, and how much longer the other one takes."""


def words(count: int = 4096) -> Splits:
    tokens = torch.randint(65, (count, 257))
    pair = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    small = pair[0][:64], pair[1][:64]
    return Splits(pair, small, small)


def token_loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(output, targets.flatten())


def never(output: torch.Tensor, targets: torch.Tensor) -> float:
    return 0.0


def workloads() -> dict[str, Workload]:
    gpt = Workload(
        name="gpt", model=partial(Gpt, 6, 512, 8, 65, 256), data=words, target=1.0, loss=token_loss, accuracy=never,
        optimizer=partial(sgd, learning_rate=1e-3), batch_size=64,
    )  # fmt: skip
    found = {"gpt": gpt, "digits-cnn": replace(load_workload("digits-cnn"), batch_size=32)}
    return {name: replace(workload, target=1.0, sustain=10**6) for name, workload in found.items()}


def trained(workload: Workload, numerics, steps: int, splits: Splits) -> float:
    workload = replace(workload, max_steps=steps, evaluate_every=steps)
    torch.cuda.synchronize()
    start = time.perf_counter()
    train(workload, numerics, device="cuda", splits=splits)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", default="bf16")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for recipe in parser.parse_args().recipes.split(","):
        numerics = numerics_of(recipe, "tensor-core")
        for name, workload in workloads().items():
            splits = workload.data()
            model = workload.model().cuda()
            inputs, targets = (part[: workload.batch_size].cuda() for part in splits.train)

            def stepper(model: torch.nn.Module, workload=workload, inputs=inputs, targets=targets):
                optimizer = workload.optimizer(model.parameters())
                for group in optimizer.param_groups:
                    group["foreach"] = True

                def run() -> None:
                    optimizer.zero_grad()
                    workload.loss(model(inputs), targets).backward()
                    optimizer.step()

                return run

            native = stepper(workload.model().cuda())
            step = stepper(emulate_(model, numerics))
            bare = best({"native": native, "eager": step})
            graph = best({"graph": as_graph(step)})["graph"]
            more = max(200, int(LEAST_S / graph))
            few, many = (min(trained(workload, numerics, STEPS + n, splits) for _ in range(2)) for n in (0, more))
            each = (many - few) / more
            print(
                f"{name}, {recipe}: native eager {bare['native'] * 1e3:.3f} ms, eager {bare['eager'] * 1e3:.3f}, "
                f"graph {graph * 1e3:.3f} ({graph / bare['native']:.2f} x native eager), "
                f"train {each * 1e3:.3f} ({each / graph:.2f} x graph)",
                flush=True,
            )


if __name__ == "__main__":
    main()
