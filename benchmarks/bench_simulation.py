"""Speed of the simulator: a ResNet-50 step, a trace of 10,000, growth with the number of ops, and SCALE-Sim's CPU time.

    python benchmarks/bench_simulation.py [--scalesim build/scalesim/bin/python]

The environment of SCALE-Sim is made as tests/cross/simulation/scalesim_golden.py says.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

import presilicon as ps
from presilicon.records import Evaluation, FactsRun, Gemm, LayerFact, Op, StepFacts, StepGraph, TensorRef, Trace
from presilicon.simulation import simulate, simulate_gemm
from presilicon.simulation.mapping.tiles import find_tiles
from presilicon.study import price_trace
from presilicon.workloads.networks.resnet import resnet50

GOLDEN = Path(__file__).parents[1] / "tests/cross/simulation/scalesim_golden.py"
LAYERS = {
    "forward": (256, 512, 256),
    "input_grad": (256, 256, 512),
    "weight_grad": (512, 256, 256),
    "deep": (64, 900, 96),
}
WORKER = """
import importlib.util, json, sys, time
place = importlib.util.spec_from_file_location("golden", sys.argv[1])
golden = importlib.util.module_from_spec(place)
place.loader.exec_module(golden)
layers = {name: (m, n, k) for name, (m, k, n) in json.loads(sys.argv[2]).items()}
golden.run({"warm": (1, 1, 1)}, 32, 32, "ws", is_gemm=True)
begin = time.process_time()
cycles = golden.run(layers, 32, 32, "ws", is_gemm=True)
print(json.dumps({"cpu_s": time.process_time() - begin, "cycles": cycles}))
"""


def best_cpu_s(work: Callable[[], object], repeats: int = 7) -> float:
    """CPU seconds, which other processes disturb less than the clock on the wall."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def chain(length: int) -> StepGraph:
    """`length` linear layers of differing sizes, one after another."""
    ops = []
    for index in range(length):
        k, n = 64 + index % 97, 64 + (index + 1) % 97
        inputs = (TensorRef(index, (32, k), "activation"), TensorRef(-1 - index, (k, n), "weight"))
        ops.append(
            Op(
                index=index,
                name=f"layer{index}",
                kind="gemm",
                operator="aten.mm.default",
                phase="forward",
                layer=f"layer{index}",
                inputs=inputs,
                outputs=(TensorRef(index + 1, (32, n), "activation"),),
                flops=2 * 32 * k * n,
                gemm=Gemm(32, k, n),
            )
        )
    return StepGraph(name="chain", batch_size=32, ops=tuple(ops))


def long_trace(graph: StepGraph, steps: int = 10_000, distinct: int = 8) -> Trace:
    """Steps whose facts name a format and a density for two roles of every product's layer, and differ in turn."""
    layers = sorted({op.layer for op in graph.ops if op.gemm})
    formats = ("float32", "bfloat16", "e5m2")
    facts = [
        StepFacts(
            layers=tuple(
                LayerFact(
                    layer=layer, role=role, format=formats[(turn + place) % 3], density=(turn + 1) / (distinct + 1)
                )
                for place, layer in enumerate(layers)
                for role in ("activation", "error")
            )
        )
        for turn in range(distinct)
    ]
    return Trace(
        seed=0,
        losses=(0.0,) * steps,
        runs=tuple(FactsRun(facts[step % distinct], 1) for step in range(steps)),
        evaluations=(Evaluation(step=steps, samples=256 * steps, updates=steps, value=1.0, loss=0.0),),
        test_value=1.0,
        ending="target",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scalesim", type=Path, help="a Python that has scalesim")
    scalesim = parser.parse_args().scalesim
    design = ps.load_design("bf16-systolic")

    graph = ps.capture(resnet50(), torch.empty(256, 3, 224, 224, device="meta"))
    begin = time.perf_counter()
    simulate(graph, design)
    cold = time.perf_counter() - begin
    warm = best_cpu_s(lambda: simulate(graph, design))
    print(
        f"ResNet-50 step, batch 256, {len(graph.ops)} ops: first {cold:.2f} s (wanted: 2), "
        f"then {warm * 1e3:.1f} ms (wanted: 50)"
    )

    trace = long_trace(graph)
    taken = best_cpu_s(lambda: price_trace(trace, lambda facts: simulate(graph, design, facts), 0.9, 1), repeats=3)
    print(f"{trace.steps:,} such steps, 8 kinds of them: {taken:.2f} s (wanted: seconds)")

    for length in (100, 1_000, 10_000, 100_000):
        long = chain(length)
        taken = best_cpu_s(lambda long=long: simulate(long, design), repeats=3)
        print(f"{length:>7,} ops: {taken * 1e3:8.1f} ms, {taken / length * 1e6:.1f} us per op")

    if scalesim is None:
        return
    command = [str(scalesim), "-W", "ignore", "-c", WORKER, str(GOLDEN), json.dumps(LAYERS)]
    theirs = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    small = msgspec.structs.replace(design, machine=msgspec.structs.replace(design.machine, rows=32, cols=32))
    gemms = [Gemm(*shape) for shape in LAYERS.values()]
    assert [simulate_gemm(gemm, small, convention="scale-sim").cycles for gemm in gemms] == theirs["cycles"]

    def price_anew() -> None:
        find_tiles.cache_clear()
        for gemm in gemms:
            simulate_gemm(gemm, small)

    ours = best_cpu_s(lambda: [price_anew() for _ in range(100)]) / 100
    print(
        f"{len(gemms)} layers on 32 x 32: SCALE-Sim {theirs['cpu_s']:.2f} s of CPU, ours {ours * 1e6:.0f} us, "
        f"{theirs['cpu_s'] / ours:,.0f} times less (wanted: 1,000)"
    )


if __name__ == "__main__":
    main()
