"""Rounding on a GPU against the device's own copy: bits first, then bandwidth.

    PYTHONPATH=src python benchmarks/gpu_formats.py            # 2^28 elements
    PYTHONPATH=src python benchmarks/gpu_formats.py --power 26

Prints a table of time, bandwidth (bytes read plus written) and the fraction of `out.copy_(x)` in the same run. Before
anything is timed, each format's bits are compared with the CPU's, on random float32 patterns and normal numbers.
"""

import argparse
import statistics
import sys

import torch

from presilicon.formats import Key, parse, quantize

ROWS = [
    ("e5m2", "nearest-even"),
    ("e4m3fn", "nearest-even"),
    ("bfloat16", "nearest-even"),
    ("float(exponent=6, mantissa=9)", "nearest-even"),
    ("fixed(8, 4)", "nearest-even"),
    ("int8", "nearest-even"),
    ("e5m2", "stochastic"),
    ("bfloat16", "stochastic"),
    ("bfp(mantissa=4, group=16)", "nearest-even"),
    ("bfp(mantissa=4, group=16)", "stochastic"),
    ("mxfp8_e4m3", "nearest-even"),
    ("mxfp4", "nearest-even"),
    ("mxint8", "nearest-even"),
    ("nvfp4", "nearest-even"),
]


def patterns(count: int) -> torch.Tensor:
    """Random float32 bit patterns: every exponent, infinities and NaN among them."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    words = torch.randint(-(2**31), 2**31, (count,), generator=generator, device="cuda", dtype=torch.int64)
    return words.to(torch.int32).view(torch.float32)


def milliseconds(work, repeats: int, calls: int = 10) -> float:
    """Median time of one call; several are queued at once, so that the host's part is hidden as in a training step."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--power", type=int, default=28, help="log2 of the number of elements")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device is seen", file=sys.stderr)
        return 3
    key, wrong = Key(seed=3, step=5, tensor="w"), 0
    x = torch.randn(1 << options.power, device="cuda").view(-1, 1024)
    out = torch.empty_like(x)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, 2^{options.power} float32 elements")
    copy = milliseconds(lambda: out.copy_(x), options.repeats)
    size = 2 * x.numel() * 4
    print(f"{'format':32} {'rounding':14} {'ms':>8} {'GB/s':>7} {'of copy':>8}  bits")
    print(f"{'out.copy_(x)':32} {'':14} {copy:8.3f} {size / copy / 1e6:7.0f} {1:8.1%}")
    native = milliseconds(lambda: x.to(torch.float8_e5m2).to(torch.float32), options.repeats)
    print(f"{'torch .to(e5m2).to(float32)':32} {'':14} {native:8.3f} {size / native / 1e6:7.0f} {copy / native:8.1%}")
    for name, rounding in ROWS:
        fmt = parse(name)
        sample = torch.cat([patterns(1 << 20), torch.randn(1 << 20, device="cuda")]).view(-1, 1024)
        fast = quantize(sample, fmt, rounding=rounding, key=key)
        other = quantize(sample.cpu(), fmt, rounding=rounding, key=key)
        equal = torch.equal(fast.cpu().view(torch.int32), other.view(torch.int32))
        wrong += not equal
        time = milliseconds(lambda: quantize(x, fmt, rounding=rounding, key=key, out=out), options.repeats)  # noqa: B023
        verdict = "equal" if equal else "DIFFERENT"
        print(f"{name:32} {rounding:14} {time:8.3f} {size / time / 1e6:7.0f} {copy / time:8.1%}  {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
