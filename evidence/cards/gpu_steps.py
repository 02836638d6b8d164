"""Time and joules of whole training steps on the GPU at hand, as data to calibrate and judge the roofline machines.

    python evidence/cards/gpu_steps.py --out h200_steps.json [--models resnet18,gpt2] [--profile]

Every case is a model, a batch size, a precision (fp32, tf32, bf16 by autocast, bf16-pure) and a mode: `eager`,
`compile` (forward and loss by torch.compile), or the whole step (forward, loss, backward, optimizer) as one CUDA graph.
The models of blind_models.py, modern_models.py, fresh_models.py, unseen_models.py and sealed_models.py, which no
calibration has seen, are measured when they are named.
Images lie in memory as `--layouts` say: torch's own order (`contiguous`) or `channels-last`.
Seconds are wall-clock over a window of at least `--window` seconds of back-to-back steps, after a warm-up. Joules are
those seconds times the average power between the first and the last change of NVML's energy counter in the window,
which moves some ten times a second.
"""

import argparse
import contextlib
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blind_models
import fresh_models
import modern_models
import sealed_models
import torch
import unseen_models

from presilicon.cards import EnergyMeter
from presilicon.scheduling import Nvml
from presilicon.workloads import Workload, load_workload

CASES = {
    "mlp-medium": (128, 4096),
    "mlp-large": (256, 8192),
    "alexnet": (128, 512),
    "vgg16": (32, 128),
    "resnet18": (64, 256),
    "resnet50": (64, 256),
    "inception-v3": (32, 128),
    "dcgan-generator": (128, 512),
    "dcgan-discriminator": (128, 512),
    "bert-base": (16, 64),
    "bert-large": (8, 32),
    "gpt2": (4, 16),
    "gpt-block": (4, 32),
    "lstm": (20, 128),
}
PRECISIONS = ("fp32", "tf32", "bf16", "bf16-pure")
WARM_S = 0.4
RATE = 1e-9
"""Learning rate: weights stay where they began. One batch over and over leads some networks to NaN, and others to
gradients of 0, which draw up to a fifth less power."""


def find_workload(name: str) -> Workload:
    own = blind_models.BLIND | modern_models.MODERN | fresh_models.FRESH | unseen_models.UNSEEN
    own |= sealed_models.SEALED
    return own.get(name) or load_workload(name)


def fill(tensor: Any) -> Any:
    """A batch like that on the meta device, with numbers in it; words and classes stay in small vocabularies."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.is_floating_point():
        return torch.randn(tensor.shape, dtype=tensor.dtype, device="cuda")
    return torch.randint(0, 10, tensor.shape, device="cuda", dtype=tensor.dtype)


def prepare(workload: Workload, batch: int, precision: str, layout: str, compiled: bool) -> Callable[[], None]:
    """One training step as a function."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    model = workload.model().cuda().train()
    inputs, targets = (fill(part) for part in workload.batch(batch))
    if precision == "bf16-pure":
        model = model.to(torch.bfloat16)
        inputs, targets = (part.to(torch.bfloat16) if part.is_floating_point() else part for part in (inputs, targets))
    if layout == "channels-last":
        order = torch.channels_last if inputs.dim() == 4 else torch.channels_last_3d
        model = model.to(memory_format=order)
        inputs = inputs.contiguous(memory_format=order)
    optimizer = workload.optimizer(model.parameters())
    for group in optimizer.param_groups:
        group["foreach"] = True  # torch's own default on a GPU
        group["lr"] = RATE
        if "capturable" in group:
            group["capturable"] = True

    def loss_of(inputs: Any, targets: Any) -> torch.Tensor:
        return workload.loss(model(inputs), targets)

    forward = torch.compile(loss_of) if compiled else loss_of

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        # A graph must not keep casts of an older step.
        cast = torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
        with cast if precision == "bf16" else contextlib.nullcontext():
            loss = forward(inputs, targets)
        loss.backward()
        optimizer.step()

    return step


def as_graph(step: Callable[[], None]) -> Callable[[], None]:
    """The step as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(step: Callable[[], None], nvml: Nvml, window_s: float) -> dict[str, float]:
    """Seconds and joules of a step, in a window of steps back to back."""
    meter = EnergyMeter(nvml)

    def run(seconds: float) -> tuple[int, float]:
        torch.cuda.synchronize()
        start, count, ahead = time.perf_counter(), 0, 0.0
        while True:
            for _ in range(group):
                step()
            count += group
            meter.look()  # takes some milliseconds, in which the card works
            torch.cuda.synchronize()
            ahead = time.perf_counter() - start
            if ahead >= seconds:
                return count, ahead

    step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(8):
        step()
    torch.cuda.synchronize()
    # A synchronisation and a look at the counter thirty times a second.
    group = max(2, round(0.03 * 8 / (time.perf_counter() - start)))
    run(WARM_S)
    meter = EnergyMeter(nvml)
    count, taken = run(window_s)
    time_s = taken / count
    return {"time_s": time_s, "energy_j": meter.watts() * time_s, "steps": count, "clock_mhz": nvml.clock_mhz()}


def profile(step: Callable[[], None]) -> list[dict[str, Any]]:
    """Device microseconds of each operator and input shape in one eager step."""
    from torch.profiler import ProfilerActivity, profile

    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
        step()
        torch.cuda.synchronize()
    rows = []
    for event in found.key_averages(group_by_input_shape=True):
        if event.self_device_time_total > 0 and event.device_type.name == "CPU":
            rows.append(
                {
                    "operator": event.key,
                    "shapes": event.input_shapes,
                    "count": event.count,
                    "device_us": event.self_device_time_total,
                }
            )
    kernels = [
        {"kernel": event.key[:120], "count": event.count, "device_us": event.self_device_time_total}
        for event in found.key_averages()
        if event.device_type.name == "CUDA"
    ]
    return [{"operators": rows, "kernels": kernels}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--modes", default="graph,eager")
    parser.add_argument("--layouts", default="channels-last", help="contiguous, channels-last or both")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of each measurement")
    parser.add_argument("--profile", action="store_true", help="write device times by operator instead")
    parser.add_argument("--stop-after", type=float, default=550, help="begin no case after so many seconds")
    options = parser.parse_args()
    nvml = Nvml()
    begin = time.perf_counter()
    rows: list[dict[str, Any]] = []
    time.sleep(1)
    before = nvml.joules()
    time.sleep(2)
    idle_w = (nvml.joules() - before) / 2
    properties = torch.cuda.get_device_properties(0)
    head = {
        "schema": 1,
        "device": properties.name,
        "driver": nvml.driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "command": "python " + " ".join(sys.argv),
        "date": time.strftime("%Y-%m-%d"),
        "idle_w": idle_w,
    }

    def save() -> None:
        options.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")

    cases = CASES | blind_models.CASES | modern_models.CASES | fresh_models.CASES | unseen_models.CASES
    cases |= sealed_models.CASES
    asked = options.models.split(","), options.layouts.split(","), options.precisions.split(",")
    for name, layout, precision in itertools.product(*asked):
        for batch in cases[name]:
            if time.perf_counter() - begin > options.stop_after:
                print("out of time before", name, batch, precision, flush=True)
                save()
                return
            workload = find_workload(name)
            if layout == "channels-last" and workload.batch(1)[0].dim() < 4:
                continue
            case = {"model": name, "batch": batch, "precision": precision, "layout": layout}
            try:
                torch.cuda.empty_cache()
                if options.profile:
                    step = prepare(workload, batch, precision, layout, compiled=False)
                    step()
                    rows.append({**case, **profile(step)[0]})
                    continue
                for mode in options.modes.split(",") if precision != "bf16-pure" else ["graph"]:
                    step = prepare(workload, batch, precision, layout, compiled=mode == "compile")
                    torch.cuda.reset_peak_memory_stats()
                    run = as_graph(step) if mode == "graph" else step
                    found = measure(run, nvml, options.window)
                    peak = torch.cuda.max_memory_allocated()
                    rows.append({**case, "mode": mode, **found, "peak_bytes": peak})
                    print(
                        f"{name:20} {batch:5} {layout:14} {precision:9} {mode:6} {found['time_s'] * 1e3:9.3f} ms "
                        f"{found['energy_j']:8.3f} J {found['energy_j'] / found['time_s']:6.0f} W "
                        f"{found['clock_mhz']} MHz {peak / 2**30:6.2f} GiB {time.perf_counter() - begin:5.0f} s",
                        flush=True,
                    )
                    run = None
            except Exception as error:
                print(name, batch, precision, "failed:", type(error).__name__, str(error)[:200], flush=True)
            finally:
                step = None
        save()
    save()


if __name__ == "__main__":
    main()
