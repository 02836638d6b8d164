"""Emulated matrix products on a GPU against the float32 library product: bits first, then time.

    PYTHONPATH=src python benchmarks/gpu_matmul.py                 # 4096 x 4096 x 4096
    PYTHONPATH=src python benchmarks/gpu_matmul.py --size 2048 --check 300 --sweep

First each unit's bits are compared with the plain torch implementation on troublesome operands of moderate size. Then
each is timed (medians, by events) with TF32 off, as a ratio to `torch.matmul` in the same run. `--check 0` only times.
"""

import argparse
import statistics
import sys
from collections.abc import Callable

import torch

from presilicon.formats import Float, Key, MacUnit, matmul, parse, quantize, tensor_core
from presilicon.formats.mac import chunked_gpu, gpu, gpu_levels, plain
from presilicon.formats.mac.plan import plan_of

IBM, FLOAT16, FLOAT32, E5M2 = Float(6, 9), parse("float16"), parse("float32"), parse("e5m2")
CHUNKS = tensor_core(FLOAT16, FLOAT16, split=64, accumulate=IBM)
ROWS: list[tuple[str, str, MacUnit]] = [
    ("chunk boundaries, tensor cores", "e5m2", CHUNKS),
    ("the same at random", "e5m2", tensor_core(FLOAT16, FLOAT16, split=64, accumulate=IBM, rounding="stochastic")),
    ("the same, FP8, chunks of 128", "e5m2", tensor_core(E5M2, E5M2, promotion=128, accumulate=IBM)),
    ("chunk boundaries, float32 in order", "e5m2", MacUnit(accumulate=IBM, partial=FLOAT32, chunk=64)),
    ("float32 sums in the stated order", "float16", MacUnit(order="systolic", rows=128)),
    ("every multiply-add rounded", "e5m2", MacUnit(accumulate=IBM, chunk=64)),
    ("every multiply-add rounded, float16", "e4m3", MacUnit(accumulate=FLOAT16)),
    ("the same, float16 operands", "float16", MacUnit(accumulate=FLOAT16, chunk=64)),
    ("every multiply-add rounded, long operands", "float(exponent=6, mantissa=9)", MacUnit(accumulate=IBM, chunk=64)),
    ("every multiply-add rounded at random", "e5m2", MacUnit(accumulate=IBM, chunk=64, rounding="stochastic")),
    ("exact kernel, rounded up", "e5m2", MacUnit(accumulate=IBM, chunk=64, rounding="up")),
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
    if mac.left is not None and mac.right is not None:
        a, b = quantize(a, mac.left), quantize(b, mac.right)
    key = Key(seed=1)
    found, expected = matmul(a, b, mac, key=key), plain.multiply(a[None], b[None], plan_of(mac), key)[0]
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


def sweep(size: int, library: float) -> None:
    """Units with other tiles; the best belong in `mac.gpu` and `mac.chunked_gpu`."""

    def timed(name: str, kind: str, mac: MacUnit) -> None:
        a, b = operands(kind, size, size, size)
        time = milliseconds(lambda: matmul(a, b, mac), 2)
        print(f"{name}: {time:.2f} ms, {time / library:.2f} x", flush=True)

    for tile in ((128, 64, 4, 4), (64, 128, 4, 4), (128, 128, 8, 4)):
        chunked_gpu.TILES = (tile,)
        timed(f"chunk boundaries, tensor cores, {tile}", "e5m2", CHUNKS)
    for tile in ((64, 32, 4, 3), (64, 128, 8, 2)):
        chunked_gpu.TILES = (tile,)
        timed(f"the same at random, {tile}", "e5m2", ROWS[1][2])
    for rows, columns, depth, warps in ((64, 64, 16, 4), (128, 64, 16, 8), (64, 64, 32, 4)):
        gpu.NATIVE_TILE, gpu.NATIVE_DEPTH, gpu.NATIVE_WARPS = (rows, columns), depth, warps
        timed(f"chunk boundaries, float32 in order, {(rows, columns, depth, warps)}", "e5m2", ROWS[3][2])
    for level, row, tiles in (
        (gpu_levels.HALF, 6, ((16, 256, 2), (64, 128, 4))),
        (gpu_levels.NARROW, 5, ((32, 64, 2), (32, 128, 4))),
        (gpu_levels.ODD, 8, ((32, 64, 4), (16, 64, 2))),
        (gpu_levels.WIDE, 9, ((32, 64, 4), (16, 64, 2))),
    ):
        for tile in tiles:
            gpu.TILES[level] = tile
            timed(f"{ROWS[row][0]}, {tile}", ROWS[row][1], ROWS[row][2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--check", type=int, default=300, help="size of the products whose bits are compared")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sweep", action="store_true", help="time other tile sizes too")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    wrong = 0
    for name, fmt, mac in ROWS if options.check else []:
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
        sweep(size, library)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
