"""The instrument's fast model against the published software's rates: vectors per CPU second, one thread.

    python benchmarks/bench_instrument.py            # N = M = 32, fixed(16, 16)
    python benchmarks/bench_instrument.py --element bfloat16 --accumulator 32
    python benchmarks/bench_instrument.py --all      # every aggregation, and the reference

Words go in, blocks come out; making the firmware and compiling the kernels are not counted.
"""

import argparse
import time

import numpy as np

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import FastModel, Firmware, Reference, compile_firmware, to_words
from presilicon.instrument.aggregations import AGGREGATIONS, aggregation
from presilicon.instrument.model.fast import fast_words

PUBLISHED = {"pass-through": 2507, "summary": 790, "distribution, 64 bins": 698}
"""Vectors per CPU second of the published software at N = M = 32, one core."""
FRAME = 128


def pass_through(fw: Firmware) -> None:
    with fw.chain():
        fw.commit("N")


def summary(fw: Firmware) -> None:
    fw.range_row(0, [-1e-9, *[0.0] * 32])
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.total()
        fw.commit(1, "last")
    with fw.chain():
        fw.filter(0)
        fw.reduce("N")
        fw.add(1, "notfirst")
        fw.cache(1)
        fw.total()
        fw.commit(1, "last")


def distribution(fw: Firmware) -> None:
    edges = np.linspace(-4, 4, 65)
    for row in range(2):
        fw.range_row(row, edges[32 * row : 32 * row + 33])
        with fw.chain():
            fw.filter(row)
            fw.reduce("M")
            fw.add(row, "notfirst")
            fw.cache(row)
            fw.commit("M", "last")


def written(write) -> Firmware:
    firmware = Firmware()
    write(firmware)
    return firmware


def rate(hardware: Hardware, firmware: Firmware, vectors: int, repeats: int, kind=FastModel) -> float:
    engine = kind(hardware)
    engine.load(compile_firmware(firmware, hardware))
    values = np.random.default_rng(0).normal(size=(vectors, hardware.lanes))
    words = to_words(hardware, values)
    last = np.zeros((vectors, 2), dtype=bool)
    last[FRAME - 1 :: FRAME] = True
    engine.feed(words, last)
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        engine.feed(words, last)
        best = min(best, time.process_time() - begin)
    return vectors / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--element", default="fixed(16, 16)")
    parser.add_argument("--accumulator", type=int)
    parser.add_argument("--all", action="store_true", help="every aggregation too")
    parser.add_argument("--vectors", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    hardware = Hardware(element=parse(options.element), accumulator_bits=options.accumulator)
    print(f"{options.element}, {hardware.word_bits}-bit words, N = M = 32, {options.vectors} vectors")
    print(f"{'aggregation':24}{'vectors/s':>14}{'published':>12}{'ratio':>10}")
    works = {"pass-through": pass_through, "summary": summary, "distribution, 64 bins": distribution}
    for name, write in works.items():
        ours = rate(hardware, written(write), options.vectors, options.repeats)
        print(f"{name:24}{ours:14,.0f}{PUBLISHED[name]:12,}{ours / PUBLISHED[name]:9,.0f}x")
    if not options.all:
        return
    print(f"\n{'aggregation':24}{'fast, vectors/s':>18}{'reference':>12}")
    for name in AGGREGATIONS.names():
        firmware = aggregation(name, hardware).firmware
        fast = rate(hardware, firmware, options.vectors, options.repeats)
        slow = rate(hardware, firmware, 2 * FRAME, 1, Reference)
        print(f"{name:24}{fast:18,.0f}{slow:12,.0f}")
    values = np.random.default_rng(0).normal(size=(options.vectors, 32)).astype(np.float32)
    for name, work in (("to_words", to_words), ("fast_words", fast_words)):
        work(hardware, values)
        begin = time.process_time()
        work(hardware, values)
        print(f"{name:24}{options.vectors / (time.process_time() - begin):18,.0f}")


if __name__ == "__main__":
    main()
