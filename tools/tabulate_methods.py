"""The table of docs/methods.md: each training method against the same design without it.

    python tools/tabulate_methods.py [--workload NAME] [--seeds N] [--jobs N]

Every method is evaluated with its defaults on a design whose hardware can use it.
"""

import argparse

from msgspec.structs import replace

import presilicon as ps
from presilicon.designs import METHODS, Design, load_design
from presilicon.records import Comparison, Result

SETTINGS = {
    "fast": ["numerics.mac.slice_bits=2"],
    "magnitude-pruning": ["machine.sparsity.zeros=weights"],
    "procrustes": ["machine.sparsity.zeros=weights"],
    "tensordash": ["machine.sparsity.zeros=pairs"],
}
"""Hardware that a method is for, where the design does not have it."""
OTHER_MODELS = ("camel",)
"""Methods for models of another kind than the workload's."""


def designs() -> list[Design]:
    """The plain design, and one with each method."""
    variants = [load_design("bf16-systolic")]
    for name in sorted(set(METHODS.names()) - set(OTHER_MODELS)):
        design = load_design("bf16-systolic", SETTINGS.get(name, ()), methods=[name])
        variants.append(replace(design, name=name))
    return variants


def mean_step(result: Result) -> tuple[float, float]:
    """Time and energy of a step, over all steps of all seeds."""
    steps = sum(seed.steps for seed in result.seeds)
    return (
        sum(seed.time_s or 0.0 for seed in result.seeds) / steps,
        sum(seed.energy_j or 0.0 for seed in result.seeds) / steps,
    )


def rows(comparison: Comparison) -> list[list[str]]:
    """The cells of the table."""
    plain = comparison.designs[0]
    table = []
    for result in comparison.designs:
        method = METHODS.load(result.name) if result is not plain else None
        time_s, energy_j = mean_step(result)
        reached, updates = result.time_to_accuracy_s.median, result.updates_to_accuracy
        table.append(
            [
                f"`{result.name}`" if method else "none",
                method.in_training if method else "",
                method.in_hardware if method else "",
                f"{100 * (result.value - plain.value):+.1f}" if method else f"{100 * result.value:.1f}%",
                f"{time_s * 1e6:.2f} us",
                f"{energy_j * 1e6:.0f} uJ",
                f"{updates.median:.0f}" if updates is not None and updates.median is not None else "never",
                "never" if reached is None else f"{reached * 1e3:.2f} ms",
                result.reached,
            ]
        )
    return table


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="digits-mlp")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    comparison = ps.compare(designs(), options.workload, seeds=options.seeds, jobs=options.jobs)
    header = ["method", "in training", "in hardware", "test accuracy", "time/step", "energy/step", "updates to target",
              "time to target", "reached"]  # fmt: skip
    for row in [header, ["---"] * len(header), *rows(comparison)]:
        print(f"| {' | '.join(row)} |")
    for result in comparison.designs:
        for remark in result.remarks:
            print(f"\n{result.name}: {remark}.")


if __name__ == "__main__":
    main()
