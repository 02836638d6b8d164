"""Emulated matrix products on a GPU against the float32 library product: bits first, then time.

    PYTHONPATH=src python benchmarks/gpu_matmul.py                 # 4096 x 4096 x 4096
    PYTHONPATH=src python benchmarks/gpu_matmul.py --size 2048 --check 300 --sweep

First each unit's bits are compared with the plain torch implementation on troublesome operands of moderate size. Then
each is timed (medians, by events) with TF32 off, as a ratio to `torch.matmul` in the same run.
"""

import argparse
import statistics
import sys
from collections.abc import Callable

import torch

from presilicon.formats import Float, Key, MacUnit, matmul, parse, quantize
from presilicon.formats.mac import gpu, plain
from presilicon.formats.mac.plan import plan_of

IBM = Float(6, 9)
FLOAT32 = parse("float32")
ROWS: list[tuple[str, str, MacUnit]] = [
    ("every multiply-add rounded", "e5m2", MacUnit(accumulate=IBM, order="chunked", chunk=64)),
    ("rounded at chunk boundaries only", "e5m2", MacUnit(accumulate=IBM, partial=FLOAT32, order="chunked", chunk=64)),
    ("every multiply-add rounded, float16", "e4m3", MacUnit(accumulate=parse("float16"))),
    ("float32 sums in the stated order", "float16", MacUnit(order="systolic", rows=128)),
    ("exact kernel: float16 operands and sums", "float16", MacUnit(accumulate=parse("float16"), chunk=64)),
    ("exact kernel: stochastic", "e5m2", MacUnit(accumulate=IBM, chunk=64, rounding="stochastic")),
]


def operands(kind: str, rows: int, depth: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices: of a format, of random bit patterns, or of a format with a few special numbers among them."""
    generator = torch.Generator(device="cuda").manual_seed(0)

    def matrix(*shape: int) -> torch.Tensor:
        if kind == "bits":
            words = torch.randint(-(2**31), 2**31, shape, generator=generator, device="cuda", dtype=torch.int64)
            return words.to(torch.int32).view(torch.float32)
        values = quantize(torch.randn(shape, generator=generator, device="cuda"), parse(kind.removesuffix("+specials")))
        if kind.endswith("+specials"):
            special = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 2.0**-149, 3e38], device="cuda")
            places = torch.randint(0, values.numel(), (6,), generator=generator, device="cuda")
            values.view(-1)[places] = special
        return values

    return matrix(rows, depth), matrix(depth, columns)


def differences(mac: MacUnit, kind: str, size: int) -> int:
    """Outputs whose bits differ from those of the plain torch implementation, any NaN being like any other."""
    a, b = operands(kind, size, size // 2 + 3, size + 5)
    plan, key = plan_of(mac), Key(seed=1)
    found = gpu.multiply(a[None], b[None], plan, key)
    expected = plain.multiply(a[None], b[None], plan, key)
    same = (found.view(torch.int32) == expected.view(torch.int32)) | (found.isnan() & expected.isnan())
    return int((~same).sum())


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    for _ in range(2):
        work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def sweep(size: int, library: float, repeats: int) -> None:
    """The two headline units with other tiles; the best belong in `mac.gpu`."""
    a, b = operands("e5m2", size, size, size)
    for rows, columns, warps in ((64, 128, 4), (128, 128, 8), (32, 128, 4), (64, 64, 4), (16, 1024, 8), (32, 256, 4)):
        gpu.LEAN_TILE, gpu.LEAN_WARPS = (rows, columns), warps
        gpu.EXACT_TILE = (min(rows, 32), 32)
        time = milliseconds(lambda: matmul(a, b, ROWS[0][2]), repeats)
        print(f"every multiply-add, tile {rows} x {columns}, {warps} warps: {time:.2f} ms, {time / library:.1f} x")
    for rows, columns, depth, warps in (
        (64, 64, 32, 4), (64, 64, 16, 4), (128, 64, 16, 8), (64, 128, 16, 8), (128, 128, 16, 8), (128, 64, 32, 8),
        (64, 32, 32, 4),
    ):  # fmt: skip
        gpu.NATIVE_TILE, gpu.NATIVE_DEPTH, gpu.NATIVE_WARPS = (rows, columns), depth, warps
        time = milliseconds(lambda: matmul(a, b, ROWS[1][2]), repeats)
        print(
            f"chunk boundaries, tile {rows} x {columns} x {depth}, {warps} warps: {time:.2f} ms, {time / library:.1f} x"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--check", type=int, default=300, help="size of the products whose bits are compared")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sweep", action="store_true", help="time other tile sizes too")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    wrong = 0
    for name, fmt, mac in ROWS:
        for kind in (fmt, f"{fmt}+specials", "bits", "float32"):
            count = differences(mac, kind, options.check)
            wrong += count
            print(f"{'equal' if count == 0 else f'{count} DIFFER':12} {name}, operands {kind}")
    size = options.size
    a, b = operands("e5m2", size, size, size)
    library = milliseconds(lambda: torch.matmul(a, b), 4 * options.repeats)
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {size} x {size} x {size}")
    print(f"{'torch.matmul, float32, TF32 off':55} {library:9.2f} ms")
    for name, fmt, mac in ROWS:
        a, b = operands(fmt, size, size, size)
        time = milliseconds(lambda a=a, b=b, mac=mac: matmul(a, b, mac), options.repeats)  # type: ignore[misc]
        print(f"{name + ' (' + fmt + ')':55} {time:9.2f} ms {time / library:7.1f} x")
    if options.sweep:
        sweep(size, library, options.repeats)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
