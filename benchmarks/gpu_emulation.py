"""An emulated training step over a native float32 one on the GPU at hand, with batches that fill it.

    PYTHONPATH=src:benchmarks python benchmarks/gpu_emulation.py

Weights, activations, errors and gradients of every product in e5m2, float32 sums. TF32 is off in both. Steps of both
kinds take turns; ratios are those of the best times, and of the most memory that torch held.
"""

import copy
import json
import time
from collections.abc import Callable

import torch
from emulation_models import Gpt, stepper

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_
from presilicon.formats import parse
from presilicon.workloads import load_workload

E5M2 = RoleFormat(parse("e5m2"))
NUMERICS = Numerics(weight=E5M2, activation=E5M2, error=E5M2, gradient=E5M2)
REPEATS = 12


def cases() -> dict[str, tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]:
    images = torch.randn(256, 3, 224, 224, device="cuda")
    tokens = torch.randint(65, (64, 512), device="cuda")
    pictures = torch.randn(32768, 1, 28, 28, device="cuda")
    torch.set_default_device("cuda")
    gpt = Gpt(6, 768, 12, 65, 512)
    torch.set_default_device("cpu")
    return {
        "fashion-cnn, batch 32768": (
            load_workload("fashion-cnn").model().cuda(),
            pictures,
            torch.randint(10, (32768,), device="cuda"),
        ),
        "resnet18, batch 256": (
            load_workload("resnet18").model().cuda(),
            images,
            torch.randint(1000, (256,), device="cuda"),
        ),
        "gpt of 6 layers of 768, 64 x 512 tokens": (gpt, tokens, tokens.roll(-1, 1).flatten()),
    }


def timed(step: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def peak(step: Callable[[], object]) -> int:
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    found = {}
    for name, (model, inputs, targets) in cases().items():
        with torch.device("cuda"):
            native = stepper(copy.deepcopy(model), inputs, targets)
            emulated = stepper(emulate_(copy.deepcopy(model), NUMERICS), inputs, targets)
            for _ in range(3):
                native(), emulated()
            times = [(timed(native), timed(emulated)) for _ in range(REPEATS)]
            memory = peak(native), peak(emulated)
        best = min(time for time, _ in times), min(time for _, time in times)
        found[name] = {"native_ms": best[0] * 1e3, "times": best[1] / best[0], "memory": memory[1] / memory[0]}
        print(f"{name}: native {best[0] * 1e3:.2f} ms, emulated {best[1] / best[0]:.2f}x, ", end="")
        print(f"memory {memory[1] / memory[0]:.2f}x", flush=True)
        del native, emulated
        torch.cuda.empty_cache()
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": found}))


if __name__ == "__main__":
    main()
