"""Overhead of a study per point, simulated and with a run record, and many machine points of ResNet-50.

    python benchmarks/bench_sweep.py            # overheads, and 500 points of ResNet-50
    python benchmarks/bench_sweep.py --full     # 10,000 points of ResNet-50

Overhead is the time of a whole study in one process less that of the bare calls of `simulate` on the same designs,
which are loaded beforehand. Each figure is the least of several repetitions, because other programs may be running.
"""

import argparse
import os
import tempfile
import time

import presilicon as ps
from presilicon.simulation import area
from presilicon.study import StepGraphs
from presilicon.study.search.file import read_study
from presilicon.study.search.points import study_points

SMALL = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {"machine": {"rows": {"from": 8, "to": 64, "step": 2}, "cols": [8, 12, 16, 24, 32, 48, 64]}},
}
TRAINED = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {"machine": {"rows": {"from": 8, "to": 46, "step": 2}}},
    "train": {"seeds": 1, "max_steps": 30, "target": 0.3},
}


def resnet50(points: int) -> dict[str, object]:
    """Machine points around bf16-systolic."""
    spans = {"rows": {"from": 16, "to": 256, "step": 8}, "cols": {"from": 16, "to": 256, "step": 8}}
    machine = {**spans, "sram_kib": [512, 1024, 2048, 4096], "dram_gb_s": [50.0, 100.0, 200.0]}
    return {
        "designs": "bf16-systolic",
        "workloads": "resnet50",
        "vary": {"machine": machine},
        "search": {"sampler": "random", "points": points},
    }


def seconds_of(study: dict[str, object], jobs: int) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = ps.sweep(study, out=folder, jobs=jobs)
        return time.perf_counter() - began, len(result.records)


def seconds_of_simulations(study: dict[str, object]) -> float:
    graph = StepGraphs(ps.load_workload(str(study["workloads"])))()
    designs = [point.load_design() for point in study_points(read_study(study))]
    began = time.perf_counter()
    for design in designs:
        ps.simulate(graph, design)
        area(design)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="10,000 points of ResNet-50")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print(f"load average of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    pairs = [(seconds_of(SMALL, 1), seconds_of_simulations(SMALL)) for _ in range(arguments.repeat)]
    points = pairs[0][0][1]
    whole, bare = min(pair[0][0] for pair in pairs), min(pair[1] for pair in pairs)
    print(f"simulated: {1e3 * (whole - bare) / points:.2f} ms of overhead per point ({points} points, {whole:.2f} s)")
    whole, points = min(seconds_of(TRAINED, 1) for _ in range(arguments.repeat))
    once = {**TRAINED, "vary": {"machine": {"rows": [8]}}}
    single, _ = min(seconds_of(once, 1) for _ in range(arguments.repeat))
    print(f"with a run record: {1e3 * (whole - single) / (points - 1):.1f} ms per point that trains as another does")
    jobs, count = os.cpu_count() or 1, 10_000 if arguments.full else 500
    whole, points = seconds_of(resnet50(count), jobs)
    print(f"ResNet-50: {points} points in {whole:.0f} s on {jobs} cores, {1e3 * whole / points:.1f} ms each")


if __name__ == "__main__":
    main()
