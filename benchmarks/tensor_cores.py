"""The tensor cores of a Hopper GPU against their models, bit by bit, and their speed.

python benchmarks/tensor_cores.py judge          10^9 dot products per instruction against an integer model, on the card
python benchmarks/tensor_cores.py hash           hashes of 10^7 dot products per instruction: the same on CPU and card
python benchmarks/tensor_cores.py speed          products against torch's own, on the card or one CPU thread
"""

import argparse
import hashlib
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from presilicon.formats import MacUnit, matmul, parse
from presilicon.formats.mac.tensor_core import INSTRUCTIONS, tensor_core

FORMATS = {"e4m3": "e4m3fn", "e5m2": "e5m2", "bf16": "bfloat16", "fp16": "float16", "tf32": "tf32"}
PAIRS = [
    (one.name, other.name)
    for one in INSTRUCTIONS
    for other in INSTRUCTIONS
    if one.is_fp8 == other.is_fp8 and (one.is_fp8 or one == other)
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def numbers(name: str, rows: int, depth: int, spread: int, seed: int) -> Tensor:
    """Random numbers of an instruction's format: exponents in a window, subnormals, and some zeros."""
    operand = next(entry for entry in INSTRUCTIONS if entry.name == name).operand
    random = np.random.default_rng(seed)
    bits = operand.mantissa
    lowest = 1 - operand.bias
    exponent = np.maximum(random.integers(-spread, spread + 1, (rows, depth)), lowest)
    hidden = np.where((exponent == lowest) & (random.random((rows, depth)) < 0.5), 0, 1 << bits)
    significand = hidden + random.integers(0, 1 << bits, (rows, depth))
    value = np.ldexp(significand.astype(np.float64), exponent - bits) * random.choice([-1, 1], (rows, depth))
    value[random.random((rows, depth)) < 0.03] = 0
    return torch.from_numpy(value.astype(np.float32)).clamp(-operand.max, operand.max).to(DEVICE)


def spread_of(name: str) -> int:
    """Exponents far enough apart that most products lose bits in the alignment."""
    return {"e4m3": 6, "e5m2": 8, "fp16": 7}.get(name, 12)


def bits_of(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.int32)


def judge(count: int) -> None:
    """Compare every instruction with sums in integers."""
    from tensor_core_model import integer_matmul

    for left, right in PAIRS:
        unit = tensor_core(parse(FORMATS[left]), parse(FORMATS[right]), split=None, promotion=None)
        depth, differing, done, size = 2 * unit.width, 0, 0, 16384
        begin = time.perf_counter()
        while done < count:
            seed = done // size**2
            a = numbers(left, size, depth, spread_of(left), 2 * seed)
            b = numbers(right, size, depth, spread_of(right), 2 * seed + 1)
            ours = matmul(a, b.t(), unit)
            differing += int((bits_of(ours) != bits_of(integer_matmul(a, b, unit))).sum())
            if done == 0:
                plain = int((ours != a @ b.t()).sum())
            done += ours.numel()
        print(
            f"{left} x {right}: {done:.3g} dot products of {depth}, {differing} differ from the integer model "
            f"({plain / size**2:.0%} of the first {size**2:.2g} from float32), {time.perf_counter() - begin:.0f} s",
            flush=True,
        )


def hashes(count: int) -> None:
    """A hash of the results of every instruction, chunks and ragged sizes included."""
    side = int(count**0.5)
    for left, right in PAIRS:
        chunk = 128 if left in ("e4m3", "e5m2") else 64
        unit = tensor_core(parse(FORMATS[left]), parse(FORMATS[right]), split=chunk, promotion=chunk)
        a, b = (numbers(name, side, 200, spread_of(name), seed) for seed, name in enumerate((left, right)))
        out = matmul(a, b.t(), unit) + 0.0
        print(f"{left} x {right}: {side**2:.3g} dot products of 200: {digest(out)}", flush=True)


def digest(x: Tensor) -> str:
    return hashlib.sha256(x.cpu().numpy().tobytes()).hexdigest()[:16]


def speed() -> None:
    """Times of products by torch and by the modelled units."""
    if DEVICE == "cpu":
        return speed_on_cpu()
    shapes = [(4096, 4096, 4096), (16384, 2048, 512), (16384, 512, 2048), (512, 2048, 16384), (16384, 1536, 512)]
    for m, n, k in shapes:
        a, b = torch.randn(m, k, device=DEVICE), torch.randn(k, n, device=DEVICE)
        half = a.bfloat16(), b.bfloat16()
        units = {name: tensor_core(parse(FORMATS[name]), parse(FORMATS[name])) for name in FORMATS}
        times = {
            "torch float32": timed(torch.matmul, a, b),
            "torch bf16": timed(torch.matmul, *half),
        }
        times |= {name: timed(from_types, a, b, unit) for name, unit in units.items()}
        line = ", ".join(f"{name} {seconds * 1e6:.0f} us" for name, seconds in times.items())
        print(f"{m} x {n} x {k}: {line}; bf16 unit / torch bf16 {times['bf16'] / times['torch bf16']:.2f}", flush=True)


def speed_on_cpu() -> None:
    """How many times as long as a float32 product a modelled one takes: medians of turns."""
    torch.set_num_threads(1)
    for name in FORMATS:
        a, b = numbers(name, 512, 512, 0, 0), numbers(name, 512, 512, 0, 1)
        unit = tensor_core(parse(FORMATS[name]), parse(FORMATS[name]))
        turns = [(seconds(torch.matmul, a, b), seconds(matmul, a, b, unit)) for _ in range(8)][1:]
        ratio = sorted(modelled / plain for plain, modelled in turns)[len(turns) // 2]
        print(f"512 x 512 x 512 in {name}: {ratio:.0f} times a float32 product", flush=True)


def seconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def from_types(a: Tensor, b: Tensor, unit: MacUnit) -> Tensor:
    """A product of operands that already have the instruction's type."""
    from presilicon.formats.mac import tensor_core_gpu

    instructions = tensor_core_gpu.instructions_of(unit)
    assert instructions is not None
    key = (id(a), id(b), unit)
    if key not in _converted:
        _converted.clear()
        _converted[key] = tuple(
            x.to(tensor_core_gpu.operand_type(entry)) for x, entry in zip((a, b), instructions, strict=True)
        )
    out = tensor_core_gpu.product(*_converted[key], unit, None)
    assert out is not None
    return out


_converted: dict = {}


def timed(work: Callable[..., object], *arguments: object, repeats: int = 20) -> float:
    for _ in range(3):
        work(*arguments)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work(*arguments)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["judge", "hash", "speed"])
    parser.add_argument("--count", type=float, help="dot products per instruction")
    arguments = parser.parse_args()
    if arguments.what == "judge":
        judge(int(arguments.count or 1e9))
    elif arguments.what == "hash":
        hashes(int(arguments.count or 1e7))
    else:
        speed()


if __name__ == "__main__":
    main()
