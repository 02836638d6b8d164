"""Time of operators beside torch's own functions, forward and with the backward pass, in one run.

    python benchmarks/bench_operators.py                       # one thread of the CPU, 4 million numbers
    python benchmarks/bench_operators.py --device cuda         # 256 million numbers

Every ratio is the best time of several rounds of the operator over the best of torch's, taken in turns: CPU time on the
CPU, wall time on a GPU.
"""

import argparse
import time
from collections.abc import Callable
from math import erf, exp, sqrt
from statistics import mean

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.ops import operator

QUEUED = 8
"""Calls that a GPU is given before their time is read, as in training."""


@operator
def relu(x):
    return x if x > 0 else 0.0


@operator
def gelu(x):
    return 0.5 * x * (1 + erf(x / sqrt(2)))


@operator
def add(a, b):
    return a + b


@operator
def hard_swish(x):
    return x * min(max(x + 3, 0), 6) / 6


@operator
def silu(x):
    return x / (1 + exp(-x))


@operator
def softmax(x: "r n") -> "r n":
    top = max(x[r, j] for j in range(N))
    total = sum(exp(x[r, j] - top) for j in range(N))
    return exp(x[r, n] - top) / total


@operator
def layer_norm(x: "r n", weight: "n", bias: "n") -> "r n":
    centre = mean(x[r, j] for j in range(N))
    spread = mean((x[r, j] - centre) ** 2 for j in range(N))
    return (x[r, n] - centre) / sqrt(spread + 1e-5) * weight[n] + bias[n]


@operator
def conv2d(x: "b c h w", f: "o c r s") -> "b o y=H y2=W":
    return sum(
        x[b, i, y + u - 1, y2 + v - 1] * f[o, i, u, v]
        for i in range(C)
        for u in range(R)
        for v in range(S)
        if 0 <= y + u - 1 < H and 0 <= y2 + v - 1 < W
    )


def timed(call: Callable[[], object], device: str) -> float:
    """Seconds of a call: CPU time, or on a GPU the mean of several that are launched one after another."""
    if device != "cuda":
        start = time.process_time()
        call()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(QUEUED):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / QUEUED


def ratio(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], inputs: list[Tensor], rounds: int) -> list[float]:
    """Ours over torch's: forward, and forward with backward; and the milliseconds of torch's."""
    figures = []
    error = torch.ones_like(theirs(*inputs))
    device = inputs[0].device.type

    def forward(function: Callable[..., Tensor]) -> Tensor:
        with torch.no_grad():
            return function(*inputs)

    def both(function: Callable[..., Tensor]) -> object:
        return torch.autograd.grad(function(*inputs), inputs, error)

    for run in (forward, both):
        best = [float("inf")] * 2
        for _ in range(rounds):
            for place, function in enumerate((ours, theirs)):
                best[place] = min(best[place], timed(lambda run=run, function=function: run(function), device))
        figures += [best[0] / best[1], best[1] * 1e3]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = (1 << 28) if options.device == "cuda" else (1 << 22)
    rows = size // 1024

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, device=options.device, requires_grad=True)

    image = (32, 64, 56, 56) if options.device == "cuda" else (4, 16, 32, 32)
    cases: list[tuple[str, Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...]]]] = [
        ("relu", relu, torch.relu, [(size,)]),
        ("add", add, torch.add, [(size,), (size,)]),
        ("gelu", gelu, functional.gelu, [(size,)]),
        ("silu", silu, functional.silu, [(size,)]),
        ("hardswish", hard_swish, functional.hardswish, [(size,)]),
        ("softmax", softmax, lambda x: functional.softmax(x, -1), [(rows, 1024)]),
        (
            "layer norm",
            layer_norm,
            lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
            [(rows, 1024), (1024,), (1024,)],
        ),
        ("conv2d 3x3", conv2d, lambda x, f: functional.conv2d(x, f, padding=1), [image, (32, image[1], 3, 3)]),
    ]
    name = torch.cuda.get_device_name() if options.device == "cuda" else "one thread of the CPU"
    print(f"operators over torch's own functions on {name}, float32")
    print(f"{'':12} {'shape':>20} {'forward':>9} {'torch ms':>9} {'and back':>9} {'torch ms':>9}")
    for label, ours, theirs, shapes in cases:
        figures = ratio(ours, theirs, [made(*shape) for shape in shapes], options.rounds)
        shape = "x".join(map(str, shapes[0]))
        print(
            f"{label:12} {shape:>20} {figures[0]:9.2f} {figures[1]:9.2f} {figures[2]:9.2f} {figures[3]:9.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
