"""The update of an emulated optimizer over torch's own, on the GPU at hand.

    PYTHONPATH=src:benchmarks python benchmarks/gpu_optimizers.py

Adam on a GPT of 6 layers of 512: torch's in float32, and weights and state in bfloat16, rounded after each update.
Prints the time of an eager step (host and GPU), the time of the GPU alone, and the number of kernels and copies.
"""

import statistics
import time

import torch
from emulation_models import Gpt
from torch.optim import Adam, Optimizer
from torch.profiler import ProfilerActivity, profile

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_optimizer_
from presilicon.formats import parse


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        weights = list(Gpt(6, 512, 8, 65, 256).parameters())
        for weight in weights:
            weight.grad = torch.randn_like(weight) * 1e-3
    return weights


def rounded(rounding: str, **options) -> Optimizer:
    fmt = RoleFormat(parse("bfloat16"), rounding)
    return emulate_optimizer_(Adam(parameters(), **options), Numerics(master=fmt, state=fmt))


def milliseconds(optimizer: Optimizer, repeats: int = 20) -> float:
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def busy(optimizer: Optimizer) -> tuple[float, int]:
    """Milliseconds of the GPU in one step, and its kernels and copies."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        optimizer.step()
        torch.cuda.synchronize()
    work = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(event.device_time for event in work) / 1e3, len(work)


def main() -> None:
    rows = {
        "torch, float32, fused": Adam(parameters(), fused=True),
        "torch, float32, foreach": Adam(parameters(), foreach=True),
        "bfloat16, nearest-even": rounded("nearest-even"),
        "bfloat16, stochastic": rounded("stochastic"),
        "bfloat16, stochastic, one parameter at a time": rounded("stochastic", foreach=False),
    }
    print(f"{torch.cuda.get_device_name()}, {sum(p.numel() for p in parameters()):,} parameters in {len(parameters())}")
    print(f"{'Adam':48} {'step, ms':>9} {'GPU, ms':>9} {'launches':>9}")
    for name, optimizer in rows.items():
        for _ in range(5):
            optimizer.step()
        step = milliseconds(optimizer)
        gpu, launches = busy(optimizer)
        print(f"{name:48} {step:9.3f} {gpu:9.3f} {launches:9d}", flush=True)


if __name__ == "__main__":
    main()
