"""An emulated training step over a native one, and over qtorch's with the same points rounded.

    python benchmarks/bench_emulation.py             # ours
    python benchmarks/bench_emulation.py --peers     # and qtorch, in build/peers (bench_formats.py --peers makes it)
    python benchmarks/bench_emulation.py --recipes   # a Llama and a ResNet-7 with every recipe without a MAC unit

Weights, activations, errors and gradients of every product in e5m2, float32 sums, one thread. Emulated and native steps
take turns in this process, qtorch's and native ones in another; ratios are those of the best times. Memory is the most
that a step holds, by torch's own account. Recipes are compared by the median ratio of the CPU times
of steps that follow each other.
"""

import argparse
import copy
import json
import subprocess
from pathlib import Path

import torch
from emulation_models import MODELS, peak_bytes, stepper
from msgspec.structs import replace
from recipe_models import MODELS as RECIPE_MODELS
from timing import median_ratios, take_turns

from presilicon.designs import LossScale, Numerics, RoleFormat, load_numerics, recipe_names
from presilicon.emulation import emulate_
from presilicon.formats import parse
from presilicon.records import PHASES

ROOT = Path(__file__).resolve().parent.parent
E5M2 = RoleFormat(parse("e5m2"))
NUMERICS = Numerics(weight=E5M2, activation=E5M2, error=E5M2, gradient=E5M2)
LIMITS = {"digits-cnn": 1.3, "fashion-cnn": 1.3, "shakespeare-gpt": 1.5, "gpt, width 128": 1.5}


def measure_ours(name: str, repeats: int) -> dict[str, float]:
    model, inputs, targets = MODELS[name]()
    steps = {
        "native": stepper(copy.deepcopy(model), inputs, targets),
        "products": stepper(emulate_(copy.deepcopy(model), NUMERICS), inputs, targets),
        "all": stepper(emulate_(copy.deepcopy(model), replace(NUMERICS, vector="round-results")), inputs, targets),
    }
    times = take_turns(steps, repeats)
    return times | {f"{key}_bytes": peak_bytes(step) for key, step in steps.items()}


def measure_recipes(name: str, names: list[str], repeats: int) -> dict[str, float]:
    """The time of a step with each recipe over that of a native one."""
    torch.manual_seed(0)
    model, inputs, targets = RECIPE_MODELS[name]()
    steps = {"native": stepper(copy.deepcopy(model), inputs, targets)}
    for recipe in names:
        numerics = load_numerics(recipe)
        if all(unit.is_float32 for unit in (numerics.mac_of(phase) for phase in PHASES)):
            numerics = replace(numerics, loss_scale=LossScale())  # the loop of the benchmark has none
            steps[recipe] = stepper(emulate_(copy.deepcopy(model), numerics), inputs, targets)
    return median_ratios(steps, "native", repeats)


def measure_peer(repeats: int) -> dict[str, dict[str, float]]:
    python = ROOT / "build" / "peers" / "bin" / "python"
    worker = ROOT / "benchmarks" / "emulation_peer.py"
    done = subprocess.run([str(python), str(worker), str(repeats)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--recipes", nargs="*", help="recipes to compare, all if none is named")
    parser.add_argument("--json", action="store_true", help="data on stdout in place of the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.recipes is not None:
        for name in RECIPE_MODELS:
            ratios = measure_recipes(name, arguments.recipes or recipe_names(), arguments.repeats)
            print(f"{name}: a step over a native one, at most 1.5x wanted")
            for recipe, ratio in ratios.items():
                print(f"  {recipe:18} {ratio:5.2f}x")
        return
    ours = {name: measure_ours(name, arguments.repeats) for name in MODELS}
    peers = measure_peer(arguments.repeats) if arguments.peers else {}
    if arguments.json:
        print(json.dumps({"ours": ours, "peers": peers}, indent=2))
        return
    for name, found in ours.items():
        native = found["native"]
        print(f"{name}: native step {native * 1e3:.2f} ms; at most {LIMITS[name]}x time and 1.5x memory wanted")
        for key, label in (("products", "products rounded"), ("all", "and every result")):
            memory = found[f"{key}_bytes"] / found["native_bytes"]
            print(f"  {label:18} {found[key] / native:5.2f}x time  {memory:5.2f}x memory")
        if name in peers:
            peer = peers[name]
            added = (found["products"] - native) / native / ((peer["qtorch"] - peer["native"]) / peer["native"])
            memory = peer["qtorch_bytes"] / peer["native_bytes"]
            ratio = peer["qtorch"] / peer["native"]
            print(f"  {'qtorch':18} {ratio:5.2f}x time  {memory:5.2f}x memory; we add {added:.0%} of what it adds")


if __name__ == "__main__":
    main()
