"""Searches for the lowest RMSE: Optuna's TPE beside random search, with the same number of points, over several seeds.

    python benchmarks/search_rmse.py [--points 48] [--seeds 5]

The learning rate of `diabetes-mlp` is drawn from six decades, with the batch size. Each line is a seed of the search:
the best RMSE of all points, and the median of the last sixteen, which says where a search looks in the end.
"""

import argparse
import tempfile
from math import isfinite
from statistics import median

import torch

import presilicon as ps

SAMPLERS = ("random", "tpe")
LAST = 16


def found(sampler: str, seed: int, points: int) -> list[float]:
    """RMSE of every point, in the order in which they were proposed; infinite where training diverged."""
    study = {
        "name": f"rmse-{sampler}-{seed}",
        "designs": "edge-bf16",
        "workloads": "diabetes-mlp",
        "objectives": ["accuracy"],
        "vary": {"learning_rate": {"from": 1e-6, "to": 10.0, "log": True}, "batch": [8, 16, 32, 64]},
        "search": {"sampler": sampler, "points": points, "seed": seed},
        "train": {"seeds": 1},
    }
    with tempfile.TemporaryDirectory() as folder:
        records = ps.sweep(study, out=folder, jobs=1).records
    values = [record.metric("accuracy") for record in sorted(records, key=lambda record: record.number)]
    return [value if isfinite(value) else float("inf") for value in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=48)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| seed | random, best | TPE, best | random, median of the last | TPE, median of the last |")
    print("|---|---|---|---|---|")
    best: dict[str, list[float]] = {sampler: [] for sampler in SAMPLERS}
    last: dict[str, list[float]] = {sampler: [] for sampler in SAMPLERS}
    for seed in range(options.seeds):
        for sampler in SAMPLERS:
            values = found(sampler, seed, options.points)
            best[sampler].append(min(values))
            last[sampler].append(median(values[-LAST:]))
        figures = (figures_of[sampler][-1] for figures_of in (best, last) for sampler in SAMPLERS)
        print(f"| {seed} | {' | '.join(f'{figure:.3f}' for figure in figures)} |", flush=True)
    medians = (median(figures_of[sampler]) for figures_of in (best, last) for sampler in SAMPLERS)
    print(f"| median | {' | '.join(f'{figure:.3f}' for figure in medians)} |")


if __name__ == "__main__":
    main()
