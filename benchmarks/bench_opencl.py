"""Speed of OpenCL devices: launches, products and convolutions beside torch on the same cores and naive kernels.

    python benchmarks/bench_opencl.py                      # about a minute
    python benchmarks/bench_opencl.py --device opencl:0.0/0 --threads 1    # one core each

Each row takes turns with what it is compared with; times are the best of all turns. Processor times, which other
programs disturb little, are medians of ratios.
"""

import argparse
import time
from collections.abc import Callable
from math import prod

import torch
from timing import median_ratios, take_turns

from presilicon.scheduling import TUNED_OPS, open_device
from presilicon.scheduling.runtime.opencl.device import OpenCLDevice
from presilicon.scheduling.runtime.opencl.trial import prepare
from presilicon.scheduling.runtime.opencl.tuning import SHAPES, SIZES

aten = torch.ops.aten


def launches(dev: OpenCLDevice, repeats: int) -> None:
    x = dev.put(torch.randn(64))
    host = torch.randn(64)

    def run() -> None:
        dev.run(aten.add.Tensor, (x, x), {})

    def waited() -> None:
        run()
        dev.synchronize()

    for name, work in (("start", run), ("start and wait", waited), ("torch", lambda: host + host)):
        best = float("inf")
        for _ in range(repeats):
            began = time.perf_counter()
            for _ in range(200):
                work()
            best = min(best, (time.perf_counter() - began) / 200)
            dev.synchronize()
        print(f"add of 64 floats, {name}: {best * 1e6:.1f} us")


def naive(dev: OpenCLDevice, side: int, repeats: int) -> None:
    a, b = dev.put(torch.randn(side, side)), dev.put(torch.randn(side, side))
    c = dev.empty((side, side))
    config = dev.tuned.choose("MatMul", side**3)

    def plain() -> None:
        kernel = dev.board.configure("packing", "matmul_naive")
        dev.board.launch(kernel, (side, side), a._storage, b._storage, c._storage, side, side, side, group=64)
        dev.synchronize()

    from presilicon.scheduling.runtime.opencl.products import matmul

    def tuned() -> None:
        matmul(dev, a, b, c, config=config)
        dev.synchronize()

    times = take_turns({"naive": plain, "tuned": tuned}, min(repeats, 3))
    times["tuned"] = min(times["tuned"], take_turns({"tuned": tuned}, repeats)["tuned"])
    print(
        f"MatMul {side}^3: naive {2 * side**3 / times['naive'] / 1e9:.2f} GFLOP/s, tuned "
        f"{2 * side**3 / times['tuned'] / 1e9:.1f} GFLOP/s, {times['naive'] / times['tuned']:.0f} times as fast"
    )


def beside_torch(dev: OpenCLDevice, repeats: int) -> None:
    cases = [(op, size, SHAPES[op][size]) for op in TUNED_OPS for size in SIZES]
    cases.insert(2, ("MatMul", "medium", (1024, 1024, 1024)))
    for op, size, shape in cases:
        ours, theirs = prepare(dev, op, dev.tuned.kernels[op][size], shape)
        works = {"opencl": _waiting(dev, ours), "torch": theirs}
        times = take_turns(works, repeats)
        rates = {name: 2 * prod(shape) / spent / 1e9 for name, spent in times.items()}
        ratio = median_ratios(works, "torch", repeats)["opencl"]
        print(
            f"{op} {'x'.join(map(str, shape))}: {times['opencl'] * 1e3:.3f} ms, {rates['opencl']:.1f} GFLOP/s; torch "
            f"{rates['torch']:.1f} GFLOP/s; {ratio:.2f} times torch's processor time"
        )


def _waiting(dev: OpenCLDevice, run: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        run()
        dev.synchronize()

    return work


def elementwise(dev: OpenCLDevice, repeats: int) -> None:
    host = torch.randn(1 << 22)
    x = dev.put(host)
    for func in (aten.add.Tensor, aten.relu.default, aten.gelu.default, aten.exp.default):
        count = 2 if func is aten.add.Tensor else 1
        ours = _waiting(dev, lambda func=func, count=count: dev.run(func, (x,) * count, {}))
        times = take_turns({"opencl": ours, "torch": lambda func=func, count=count: func(*(host,) * count)}, repeats)
        print(f"{func} of 2^22: {times['opencl'] * 1e3:.2f} ms; torch {times['torch'] * 1e3:.2f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl:0.0")
    parser.add_argument("--threads", type=int, help="threads of torch; by default the device's compute units")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    opened = open_device(options.device)
    assert isinstance(opened, OpenCLDevice)
    torch.set_num_threads(options.threads or opened.board.units)
    info = opened.board.info
    print(f"{info.device}, {opened.board.units} units of {info.platform} ({info.version}); torch {torch.__version__}")
    launches(opened, options.repeats)
    naive(opened, 1024, options.repeats)
    beside_torch(opened, options.repeats)
    elementwise(opened, options.repeats)
