"""Quantisation against the time of a copy, and against the peers.

    python benchmarks/bench_formats.py             # ours, one and two threads
    python benchmarks/bench_formats.py --peers     # and the peers, in build/peers (made on first use, minutes)

Each row is timed in turns with `out.copy_(x)` into an existing output, the physical limit; the ratio is that of the
best times. 2^24 float32 numbers by default, output reused.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
from timing import take_turns

from presilicon.formats import Stochastic, parse, quantize

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    # name, format, rounding, limit of the ratio, kind of peers; the first row of a kind is what peers are held against
    ("float e5m2, nearest-even", "e5m2", "nearest-even", 1.2, "float"),
    ("float e4m3fn, nearest-even", "e4m3fn", "nearest-even", 1.2, "float"),
    ("float bfloat16, nearest-even", "bfloat16", "nearest-even", 1.2, "float"),
    ("fixed(8, 4), nearest-even", "fixed(8, 4)", "nearest-even", 1.2, "fixed"),
    ("float e5m2, stochastic", "e5m2", "stochastic", 1.4, "float stochastic"),
    ("float e4m3fn, stochastic", "e4m3fn", "stochastic", 1.4, "float stochastic"),
    ("float bfloat16, stochastic", "bfloat16", "stochastic", 1.4, "float stochastic"),
    ("fixed(8, 4), stochastic", "fixed(8, 4)", "stochastic", 1.4, "fixed stochastic"),
    ("bfp(4), groups of 16", "bfp(4)", "nearest-even", 2.0, "block"),
    ("bfp(4), groups of 16 along the first axis", "bfp(4, axis=0)", "nearest-even", 2.0, "block"),
    ("mxfp8_e4m3", "mxfp8_e4m3", "nearest-even", 2.0, "mx"),
    ("mxfp4", "mxfp4", "nearest-even", 2.0, "mx"),
    ("mxint8", "mxint8", "nearest-even", 2.0, "mx"),
    # no limit was set for these, and no peer is held against them
    ("fixed(8, 4), wrapping", "fixed(8, 4, overflow=wrap)", "nearest-even", None, ""),
    ("int8 scaled to the tensor", "int(8, scale=tensor)", "nearest-even", None, ""),
    ("nvfp4", "nvfp4", "nearest-even", None, ""),
    ("scaled(e4m3fn), one scale", "scaled(e4m3fn)", "nearest-even", None, ""),
    ("scaled(e4m3fn), blocks of 128", "scaled(e4m3fn, per=block)", "nearest-even", None, ""),
    ("scaled(e4m3fn), tiles of 128 x 128", "scaled(e4m3fn, per=tile)", "nearest-even", None, ""),
    ("posit(8, 2)", "posit(8, 2)", "nearest-even", None, ""),
    ("posit(16, 2)", "posit(16, 2)", "nearest-even", None, ""),
    ("lns(5, 3)", "lns(5, 3)", "nearest-even", None, ""),
    ("float e5m2, stochastic, shift register", "e5m2", Stochastic(source="lfsr"), None, ""),
]


def measure_ours(elements: int, threads: int, repeats: int) -> dict[str, float]:
    """Best seconds of each row, and of the copy."""
    torch.set_num_threads(threads)
    x = torch.randn(elements, generator=torch.Generator().manual_seed(0)).view(-1, 4096)
    out = torch.empty_like(x)
    works = {"copy": lambda: out.copy_(x)}
    for name, spelling, rounding, _, _ in ROWS:
        fmt = parse(spelling)
        works[name] = lambda fmt=fmt, rounding=rounding: quantize(x, fmt, rounding=rounding, out=out)
    return take_turns(works, repeats)


def measure_peers(elements: int, threads: int) -> dict[str, dict[str, float]]:
    """Seconds per 2^24 elements of each peer, by kind of row."""
    home = ROOT / "build" / "peers"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        print("installing the peers into build/peers", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        requirements = ROOT / "benchmarks" / "peers.txt"
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)], check=True)
        (home / "ready").touch()
    worker = ROOT / "benchmarks" / "peers_worker.py"
    done = subprocess.run(
        [str(python), str(worker), str(elements), str(threads)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    for threads in options.threads:
        ours = measure_ours(options.elements, threads, options.repeats)
        print(f"\n{threads} thread{'s' * (threads > 1)}, {options.elements} float32 numbers")
        print(f"{'':44}{'ms':>8}{'x copy':>8}{'limit':>7}{'Mel/s':>8}")
        print(f"{'out.copy_(x)':44}{1e3 * ours['copy']:8.2f}{1:8.2f}{'':7}{options.elements / ours['copy'] / 1e6:8.0f}")
        for name, _, _, limit, _ in ROWS:
            ratio = ours[name] / ours["copy"]
            rate = options.elements / ours[name] / 1e6
            shown, over = (f"{limit:7.1f}", "  !" if ratio > limit else "") if limit else (f"{'':7}", "")
            print(f"{name:44}{1e3 * ours[name]:8.2f}{ratio:8.2f}{shown}{rate:8.0f}{over}")
        if not options.peers:
            continue
        print(f"\n{'peer':44}{'Mel/s':>8}{'ours is':>10}")
        for kind, peers in measure_peers(options.elements, threads).items():
            mine = options.elements / ours[next(name for name, *_, of in ROWS if of == kind)]
            for peer, rate in peers.items():
                print(f"{kind + ': ' + peer:44}{rate / 1e6:8.1f}{mine / rate:9.1f}x")


if __name__ == "__main__":
    main()
