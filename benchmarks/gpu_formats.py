"""Rounding on a GPU against the device's own copy: bits first, then bandwidth.

    PYTHONPATH=src python benchmarks/gpu_formats.py            # 2^28 elements
    PYTHONPATH=src python benchmarks/gpu_formats.py --power 26

Prints a table of time, bandwidth (bytes of one reading and one writing) and the fraction of `out.copy_(x)`, timed right
before each row. Rows with one scale for the tensor read it twice: first for the largest magnitude. "^T": the tensor is
the transpose of a row-major one. Before anything is timed, each format's bits are compared with the CPU's, on random
float32 patterns and normal numbers.
"""

import argparse
import statistics
import sys

import torch

from presilicon.formats import Key, Stochastic, parse, quantize

NEAREST, CUT, RANDOM = "nearest-even", "toward-zero", "stochastic"
GROUPED = ["bfp(mantissa=4)", "mxfp8_e4m3", "nvfp(tensor_scale=false)", "scaled(e4m3fn, per=block)"]
ROWS = [
    *((name, NEAREST) for name in ("e5m2", "e4m3fn", "bfloat16", "float(6, 9)", "fixed(8, 4)", "int8")),
    *((name, CUT) for name in ("e5m2", "bfloat16")),
    *((name, RANDOM) for name in ("e5m2", "bfloat16")),
    ("e5m2", Stochastic(source="lfsr")),
    *((name, mode) for name in GROUPED for mode in (NEAREST, CUT, RANDOM)),
    *((str(parse(name).along(0)), mode) for name in GROUPED for mode in (NEAREST, CUT, RANDOM)),
    *((name + "^T", mode) for name in GROUPED for mode in (NEAREST, RANDOM)),
    ("mxfp4", NEAREST),
    ("mxint8", NEAREST),
    ("nvfp(square=true, tensor_scale=false)", NEAREST),
    ("scaled(e4m3fn, per=row)", NEAREST),
    ("scaled(e4m3fn, per=tile)", NEAREST),
    ("scaled(e4m3fn, per=tile)", RANDOM),
    ("nvfp(tensor_scale=false)", Stochastic(source="lfsr")),
    ("scaled(e4m3fn, per=tile, scale=e8m0, apply=divide)", NEAREST),
    # two passes
    *(("nvfp4", mode) for mode in (NEAREST, CUT, RANDOM)),
    *((f"nvfp4(apply={apply})", NEAREST) for apply in ("reciprocal", "multiply")),
    ("nvfp4(axis=0)", NEAREST),
    ("nvfp4^T", NEAREST),
    ("scaled(e4m3fn)", NEAREST),
    ("scaled(e4m3fn, per=row, axis=0)", NEAREST),
    ("bfp(mantissa=4, exponent=5)", NEAREST),
    ("int(8, scale=tensor)", NEAREST),
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
    parser.add_argument("--only", default="", help="only formats whose name begins so")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device is seen", file=sys.stderr)
        return 3
    key, wrong = Key(seed=3, step=5, tensor="w"), 0
    x = torch.randn(1 << options.power, device="cuda").view(-1, 1024)
    out = torch.empty_like(x)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, 2^{options.power} float32 elements")
    size = 2 * x.numel() * 4
    print(f"{'format':52} {'rounding':24} {'ms':>8} {'GB/s':>7} {'of copy':>8}  bits")
    native = milliseconds(lambda: x.to(torch.float8_e5m2).to(torch.float32), options.repeats)
    copy = milliseconds(lambda: out.copy_(x), options.repeats)
    print(f"{'out.copy_(x)':52} {'':24} {copy:8.3f} {size / copy / 1e6:7.0f} {1:8.1%}")
    print(f"{'torch .to(e5m2).to(float32)':52} {'':24} {native:8.3f} {size / native / 1e6:7.0f} {copy / native:8.1%}")
    for name, rounding in (row for row in ROWS if row[0].startswith(options.only)):
        fmt, is_turned = parse(name.removesuffix("^T")), name.endswith("^T")
        sample = torch.cat([patterns(1 << 18), torch.randn(1 << 18, device="cuda")]).view(-1, 1024)
        sample = sample.t() if is_turned else sample
        fast = quantize(sample, fmt, rounding=rounding, key=key).cpu()
        other = quantize(sample.cpu(), fmt, rounding=rounding, key=key)
        equal = bool(((fast == other) & (fast.signbit() == other.signbit()) | fast.isnan() & other.isnan()).all())
        wrong += not equal
        source, target = (x.t(), out.t()) if is_turned else (x, out)
        copy = milliseconds(lambda: out.copy_(x), options.repeats)
        time = milliseconds(lambda: quantize(source, fmt, rounding=rounding, key=key, out=target), options.repeats)  # noqa: B023
        verdict = "equal" if equal else "DIFFERENT"
        print(f"{name:52} {rounding!s:24} {time:8.3f} {size / time / 1e6:7.0f} {copy / time:8.1%}  {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
