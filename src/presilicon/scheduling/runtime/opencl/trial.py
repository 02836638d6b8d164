"""A process that builds, checks and times kernel configurations: requests and answers are lines of JSON."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from presilicon.scheduling.runtime.devices import open_device
from presilicon.scheduling.runtime.opencl import products
from presilicon.scheduling.runtime.opencl.device import OpenCLDevice
from presilicon.scheduling.runtime.opencl.tuning import Config

Run = Callable[[], Any]


def prepare(
    dev: OpenCLDevice, op: str, config: Config, shape: tuple[int, ...], geometry: tuple[int, ...] = (1, 1, 1)
) -> tuple[Run, Run]:
    """The op on the device and on torch, with random operands; stride, dilation and groups of a convolution."""
    generator = torch.Generator().manual_seed(sum(shape))

    def random(*sides: int) -> torch.Tensor:
        return torch.randn(sides, generator=generator)

    if op == "MatMul":
        m, k, n = shape
        a, b = random(m, k), random(n, k).t() if m % 2 else random(k, n)
        left, right = dev.put(a), dev.put(b.t()).view((k, n), (1, k), 0) if m % 2 else dev.put(b)
        return lambda: products.matmul(dev, left, right, config=config), lambda: a @ b
    stride, dilation, groups = geometry
    images, channels, rows, columns, filters, taps_h, taps_w = shape
    pad = (taps_h // 2 * dilation, taps_w // 2 * dilation)
    x = random(images, channels, rows * stride, columns * stride)
    w = random(filters, channels // groups, taps_h, taps_w)
    args = [stride, stride], list(pad), [dilation, dilation], False, [0, 0], groups
    sides = products.geometry_of(x.shape, w.shape, (stride,), pad, (dilation,), groups)
    if op == "Conv2D":
        on_x, on_w = dev.put(x), dev.put(w)
        return (lambda: products.convolve(dev, on_x, on_w, sides, config)), (
            lambda: torch.ops.aten.convolution(x, w, None, *args)
        )
    dy = random(images, filters, sides.rows, sides.columns)
    on_dy, is_input = dev.put(dy), op == "Conv2DBackpropInput"
    other = dev.put(w if is_input else x)
    function = products.convolve_input if is_input else products.convolve_weight
    mask = [is_input, not is_input, False]
    return (lambda: function(dev, on_dy, other, sides, config)), (
        lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *args, mask)[0 if is_input else 1]
    )


CHECKS: dict[bool, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    True: [((37, 29, 45), (1, 1, 1)), ((8, 70, 33), (1, 1, 1)), ((1, 1, 1), (1, 1, 1))],
    False: [
        ((2, 4, 5, 7, 8, 3, 3), (1, 1, 1)),
        ((2, 8, 5, 4, 16, 3, 2), (2, 2, 2)),
        ((1, 6, 3, 3, 6, 1, 1), (2, 1, 1)),
    ],
}
"""Shapes and geometries for the check, of matrix products (True) and convolutions."""


def wrong(dev: OpenCLDevice, op: str, config: Config) -> str:
    """How the results differ from torch's; empty if they do not."""
    for shape, geometry in CHECKS[op == "MatMul"]:
        ours, theirs = prepare(dev, op, config, shape, geometry)
        expected, found = theirs(), dev.get(ours())
        largest = float((found - expected).abs().max())
        if not torch.allclose(found, expected, rtol=1e-4, atol=1e-4):
            return f"{op} {'x'.join(map(str, shape))} differs from torch by {largest:.3g}"
    return ""


def measure(dev: OpenCLDevice, run: Run, longest_s: float = 0.4, repeats: int = 20) -> float:
    """Seconds of an op, waiting for the device: the fastest of several runs, which other programs disturb least."""
    run()
    dev.synchronize()
    times: list[float] = []
    while len(times) < 3 or (len(times) < repeats and sum(times) < longest_s):
        began = time.perf_counter()
        run()
        dev.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def answer(dev: OpenCLDevice, request: dict[str, Any]) -> dict[str, Any]:
    """Check and time one configuration."""
    config = msgspec.convert(request["config"], Config)
    refused = wrong(dev, request["op"], config)
    if refused:
        return {"refused": refused}
    times = [measure(dev, prepare(dev, request["op"], config, tuple(shape))[0]) for shape in request["shapes"]]
    return {"times_s": times}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers may print; answers have a stream of their own
    dev = open_device(sys.argv[1])
    assert isinstance(dev, OpenCLDevice)
    dev.board.keep = False  # most configurations are never used again
    print(json.dumps({"ready": dev.name}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(dev, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
