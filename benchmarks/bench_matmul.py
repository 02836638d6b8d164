"""Emulated matrix products against the float32 library product, on one thread.

    python benchmarks/bench_matmul.py                # 512 x 512 x 512
    python benchmarks/bench_matmul.py --size 1024 --repeats 15

Prints a table of times (medians, each row in turn so that all meet the same load) and ratios to `torch.matmul`.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from presilicon.formats import Float, MacUnit, matmul, parse, quantize

IBM = Float(6, 9)
FLOAT32 = parse("float32")

ROWS: list[tuple[str, str, MacUnit]] = [
    ("every multiply-add rounded, chunks of 64", "e5m2", MacUnit(accumulate=IBM, order="chunked", chunk=64)),
    ("rounded at chunk boundaries only", "e5m2", MacUnit(accumulate=IBM, partial=FLOAT32, order="chunked", chunk=64)),
    ("every multiply-add rounded, float16", "e4m3", MacUnit(accumulate=parse("float16"), order="chunked", chunk=64)),
    ("the same, one chunk", "e4m3", MacUnit(accumulate=parse("float16"))),
    ("float32 sums in the stated order", "float16", MacUnit(order="systolic", rows=128)),
    ("float16 operands, float16 sums", "float16", MacUnit(accumulate=parse("float16"), order="chunked", chunk=64)),
    ("bfloat16 operands, tf32 sums", "bfloat16", MacUnit(accumulate=parse("tf32"), order="chunked", chunk=64)),
    ("stochastic, chunks of 64", "e5m2", MacUnit(accumulate=IBM, order="chunked", chunk=64, rounding="stochastic")),
    ("pairwise tree", "e5m2", MacUnit(accumulate=IBM, order="pairwise", chunk=64)),
    (
        "aligned, 16 products, 25 bits, toward zero",
        "float16",
        MacUnit(order="aligned", width=16, align_bits=25, rounding="toward-zero"),
    ),
]


def measure(works: list[Callable[[], object]], repeats: int) -> list[float]:
    """The median time of each work in milliseconds, taken in turns."""
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, record in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            record.append(time.perf_counter() - begin)
    return [1e3 * statistics.median(record) for record in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = options.size
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(size, size, generator=generator), torch.randn(size, size, generator=generator)

    def product(fmt: str, mac: MacUnit) -> Callable[[], object]:
        a, b = (quantize(x, parse(fmt)) for x in plain)
        return lambda: matmul(a, b, mac)

    out = torch.empty(size, size)
    works = [lambda: torch.matmul(*plain, out=out), *(product(fmt, mac) for _, fmt, mac in ROWS)]
    library, *times = measure(works, options.repeats)
    print(f"{size} x {size} x {size}, one thread, medians of {options.repeats}")
    print(f"{'torch.matmul, float32':50} {library:9.2f} ms")
    for (name, fmt, mac), milliseconds in zip(ROWS, times, strict=True):
        print(f"{name + ' (' + fmt + ')':50} {milliseconds:9.2f} ms {milliseconds / library:7.1f} x   {mac}")


if __name__ == "__main__":
    main()
