"""Emulated training steps with the sums of tensor cores over native ones, on the GPU at hand.

    PYTHONPATH=src:benchmarks:evidence/cards python benchmarks/gpu_steps_emulated.py [--profile] [--torchao]

A GPT of 6 layers of 512 with 64 x 256 tokens, and ResNet-18 with 256 pictures of 28 x 28. Native bf16 is torch's
autocast; native float32 has TF32 off. Eager steps are compared with eager ones, captured CUDA graphs with graphs; the
times are the best of several, in turns. With `--torchao`, torchao's emulated FP8 (a scale per tensor) in autocast: it
multiplies numbers that are scaled back in bf16, linear layers only.
"""

import argparse
import copy
import time
from collections.abc import Callable

import torch
from emulation_models import Gpt
from gpu_steps import as_graph
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional

from presilicon.designs import Numerics, load_numerics
from presilicon.emulation import emulate_
from presilicon.workloads import load_workload

RECIPES = ("bf16", "fp8-hybrid", "mxfp8", "bfp4")
REPEATS = 8


def models() -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    tokens = torch.randint(65, (64, 256), device="cuda")
    with torch.device("cuda"):
        gpt = Gpt(6, 512, 8, 65, 256)
    resnet = load_workload("fashion-resnet18").model().cuda().to(memory_format=torch.channels_last)
    pictures = torch.randn(256, 1, 28, 28, device="cuda").contiguous(memory_format=torch.channels_last)
    return {
        "gpt": (gpt, tokens, tokens.roll(-1, 1).flatten()),
        "resnet18": (resnet, pictures, torch.randint(10, (256,), device="cuda")),
    }


def numerics_of(recipe: str, sums: str) -> Numerics:
    found = load_numerics(recipe)
    return replace(found, sums=sums, gradient=Numerics().gradient, loss_scale=Numerics().loss_scale)


def stepper(model: nn.Module, inputs: Tensor, targets: Tensor, autocast: bool = False) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = functional.cross_entropy(model(inputs).float(), targets)
        loss.backward()
        optimizer.step()

    return step


def timed(step: Callable[[], object], repeats: int = 5) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def best(steps: dict[str, Callable[[], object]]) -> dict[str, float]:
    for step in steps.values():
        for _ in range(3):
            step()
    rounds = [{name: timed(step) for name, step in steps.items()} for _ in range(REPEATS)]
    return {name: min(times[name] for times in rounds) for name in steps}


def profile(step: Callable[[], object], name: str) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    step()
    with profiled(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        step()
        torch.cuda.synchronize()
    print(name)
    print(found.key_averages().table(sort_by="cuda_time_total", row_limit=22, max_name_column_width=60)[:6000])


def peak(step: Callable[[], object]) -> int:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--torchao", action="store_true")
    parser.add_argument("--models", default="gpt,resnet18")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    for name, (model, inputs, targets) in models().items():
        if name not in arguments.models.split(","):
            continue
        steps = {
            "native bf16": stepper(copy.deepcopy(model), inputs, targets, autocast=True),
            "native float32": stepper(copy.deepcopy(model), inputs, targets),
        }
        for recipe in arguments.recipes.split(","):
            emulated = emulate_(copy.deepcopy(model), numerics_of(recipe, "tensor-core"))
            steps[recipe] = stepper(emulated, inputs, targets)
        if arguments.torchao:
            from torchao.float8 import Float8LinearConfig, convert_to_float8_training

            peer = convert_to_float8_training(copy.deepcopy(model), config=Float8LinearConfig(emulate=True))
            steps["torchao FP8"] = stepper(peer, inputs, targets, autocast=True)
        times = best(steps)
        memory = {key: peak(step) for key, step in steps.items()}
        graphs = {}
        for key, step in steps.items():
            try:
                graphs[key] = as_graph(step)
            except Exception as error:
                print(f"{name}, {key}: no graph ({str(error)[:200]})")
        captured = best(graphs)
        for key in steps:
            graph = captured.get(key, float("nan"))
            print(
                f"{name}, {key}: eager {times[key] * 1e3:.1f} ms ({times[key] / times['native bf16']:.2f} x bf16, "
                f"{times[key] / times['native float32']:.2f} x float32), graph {graph * 1e3:.1f} ms "
                f"({graph / captured['native bf16']:.2f} x bf16, {graph / captured['native float32']:.2f} x float32), "
                f"memory {memory[key] / memory['native float32']:.2f} x float32",
                flush=True,
            )
        if arguments.profile:
            for key in [*steps][2:3]:
                profile(steps[key], f"{name}, {key}")


if __name__ == "__main__":
    main()
