"""Products with a user's own arithmetic against torch's float32 product of the same size, as ratios of one run.

    python benchmarks/bench_user_arithmetic.py                     # 512^3 on the CPU, with torch's number of threads
    python benchmarks/bench_user_arithmetic.py --device cuda       # 4096^3 on the GPU

Operands hold values of the format, as `matmul` expects them. Tables and compiled code are made by a first product,
whose time is printed beside. The float32 product is repeated for as long as a product of the user's takes, in turns
with it, so that other work on the machine slows both.
"""

import argparse
import math
from time import perf_counter

import torch

from presilicon.formats import MacUnit, ProcessingUnit, UserFormat, matmul, quantize

LIMITS = {"cpu": 50, "cuda": 200}


def as_float(code):
    """Sign, 5 bits of exponent, 2 of mantissa; no infinities."""
    sign = -1.0 if code >> 7 else 1.0
    exponent, mantissa = (code >> 2) & 31, code & 3
    if exponent == 0:
        return sign * mantissa * 2.0**-16
    return sign * (4 + mantissa) * 2.0 ** (exponent - 17)


def truncate(value):
    """The code of the largest magnitude that does not exceed that of `value`; saturates."""
    sign = 128 if value < 0 else 0
    magnitude = min(abs(value), 114688.0)
    if magnitude < 2.0**-14:
        return sign | int(magnitude * 2.0**16)
    mantissa, exponent = math.frexp(magnitude)
    return sign | ((exponent + 14) << 2) | (int(mantissa * 8) & 3)


def add(a, b):
    return truncate(as_float(a) + as_float(b))


def mul(a, b):
    return truncate(as_float(a) * as_float(b))


def mad(a, b, c):
    return truncate(as_float(a) * as_float(b) + as_float(c))


def fixed_value(code):
    """16 bits of two's complement with 8 after the point."""
    return (code - ((code & 0x8000) << 1)) / 256.0


def fixed_code(value):
    return int(max(min(value * 256.0, 32767.0), -32768.0)) & 0xFFFF


def fixed_add(a, b):
    total = (a - ((a & 0x8000) << 1)) + (b - ((b & 0x8000) << 1))
    return max(min(total, 32767), -32768) & 0xFFFF


def fixed_mad(a, b, c):
    exact = (a - ((a & 0x8000) << 1)) * (b - ((b & 0x8000) << 1))
    total = (exact >> 8) + (c - ((c & 0x8000) << 1))
    return max(min(total, 32767), -32768) & 0xFFFF


FP8 = UserFormat("bench_fp8", (("s", 1), ("e", 5), ("m", 2)), as_float, truncate, add=add, mul=mul, mad=mad)
FIXED16 = UserFormat("bench_fixed16", (("x", 16),), fixed_value, fixed_code, add=fixed_add, mad=fixed_mad)
UNITS = {
    "mad, 8 bits": MacUnit(accumulate=FP8),
    "mul and add, 8 bits": MacUnit(accumulate=FP8, fused=False),
    "mad, 8 bits, chunks of 64": MacUnit(accumulate=FP8, order="chunked", chunk=64),
    "16-lane tree, 8 bits": MacUnit(unit=ProcessingUnit("tree16", FP8, lanes=16)),
    "mad, 16 bits, compiled": MacUnit(accumulate=FIXED16),
}


def seconds(compute, device: str, count: int = 1) -> float:
    """The time of a computation, as the mean of `count` in a row."""
    start = perf_counter()
    for _ in range(count):
        compute()
    if device == "cuda":
        torch.cuda.synchronize()
    return (perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", type=int)
    options = parser.parse_args()
    device, size = options.device, options.size or (512 if options.device == "cpu" else 4096)
    torch.manual_seed(0)
    left, right = torch.randn(size, size, device=device), torch.randn(size, size, device=device) * size**-0.5
    seconds(lambda: left @ right, device, 3)
    where = f"{torch.get_num_threads()} threads" if device == "cpu" else torch.cuda.get_device_name()
    print(f"{size}^3 on {device}, {where}")
    print(f"{'unit':26} {'first':>9} {'then':>10} {'float32':>10} {'ratio':>8}  (mad: at most {LIMITS[device]}x)")
    for name, mac in UNITS.items():
        a, b = (quantize(x, mac.accumulate) for x in (left, right))
        first, then, own = (seconds(lambda a=a, b=b, mac=mac: matmul(a, b, mac), device), math.inf, math.inf)
        for _ in range(7):
            then = min(then, seconds(lambda a=a, b=b, mac=mac: matmul(a, b, mac), device))
            own = min(own, seconds(lambda: left @ right, device, 40))
        print(f"{name:26} {first:7.2f} s {1e3 * then:7.1f} ms {1e3 * own:7.2f} ms {then / own:7.1f}x")


if __name__ == "__main__":
    main()
