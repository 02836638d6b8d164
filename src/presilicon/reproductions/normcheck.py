"""Batch normalization in all layers, in one, in none: the distribution of a hidden layer, by NormCheck."""

from collections import OrderedDict
from functools import partial
from typing import Literal

from torch import nn

from presilicon.designs import Tap
from presilicon.records import Panel, Reproduced, Reproduction
from presilicon.reproductions.watched import (
    SOURCE,
    OnEvent,
    Watched,
    last_accuracy,
    mean,
    watch,
    watched_design,
    watched_workload,
)
from presilicon.workloads import Workload, load_digits

Where = Literal["none", "all", "one"]
CASES: dict[Where, str] = {
    "none": "without normalization",
    "all": "normalized in all layers",
    "one": "normalized in one layer",
}
DEPTH, WIDTH, STEPS, LEARNING_RATE = 6, 64, 800, 0.05
NORMALIZED, TAPPED = 4, 6
"""The one layer that is normalized, and the layer whose input is watched."""
_PERCENTILES = ("p15", "p50", "p85")


def network(where: Where) -> nn.Module:
    """Dense layers with leaky ReLUs, so that both ends of a distribution can be seen, for digits of 8 by 8."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(1, DEPTH + 1):
        parts[f"layer{number}"] = nn.Linear(64 if number == 1 else WIDTH, WIDTH)
        if where == "all" or (where == "one" and number == NORMALIZED):
            parts[f"norm{number}"] = nn.BatchNorm1d(WIDTH)
        parts[f"relu{number}"] = nn.LeakyReLU(0.2)
    parts["output"] = nn.Linear(WIDTH, 10)
    return nn.Sequential(parts)


def workload(where: Where) -> Workload:
    """Handwritten digits."""
    data = partial(load_digits, image=False)
    return watched_workload("digits-deep", partial(network, where), LEARNING_RATE, STEPS, data=data, batch_size=32)


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """Three trainings, their accuracies, and the percentiles of the same layer in each."""
    tap = Tap(name="hidden", layers=f"layer{TAPPED}", aggregation="norm_check", every=5, vectors="all")
    seen = {
        where: watch(workload(where), watched_design(f"norm-{where}", [tap], 1), seed=0, on_event=on_event)
        for where in CASES
    }
    widths = {where: _widths(run) for where, run in seen.items()}
    rows: list[Reproduced] = []
    for where, title in CASES.items():
        first, last = widths[where]
        rows += [
            Reproduced(f"{title}: accuracy at the end", "%", ours=100 * last_accuracy(seen[where].trace)),
            Reproduced(
                f"{title}: from the 15th to the 85th percentile",
                ours=last,
                note=f"{last / first:.1f} times what it was in the first looks" if first else "",
            ),
        ]
    panels = [
        Panel(title="(a) Accuracy", curves=tuple(run.accuracy(CASES[where]) for where, run in seen.items()),
              percent=True),
    ]  # fmt: skip
    percentiles = {
        where: tuple(run.curve("hidden", name, _ordinal(name)) for name in _PERCENTILES) for where, run in seen.items()
    }
    values = [value for curves in percentiles.values() for curve in curves for value in curve.y if value is not None]
    limits = (1.05 * min(values), 1.05 * max(values))
    for letter, where in zip("bcd", CASES, strict=True):
        title = f"({letter}) What enters layer {TAPPED}, {CASES[where]}"
        panels.append(Panel(title=title, curves=percentiles[where], limits=limits))
    return Reproduction(
        name="normcheck",
        title="Batch normalization, seen by NormCheck: 15th, 50th and 85th percentiles of a hidden layer",
        source=SOURCE.format(6),
        rows=tuple(rows),
        assumptions=(
            f"The source gives no network. Ours: {DEPTH} dense layers of {WIDTH} with leaky ReLUs (0.2) on handwritten "
            f"digits, batches of 32, SGD at {LEARNING_RATE} with momentum 0.9, bfloat16 emulated, seed 0. The one that "
            f"is normalized is layer {NORMALIZED}; the tap looks at what enters layer {TAPPED}, every fifth step.",
            "NormCheck counts 64 bins on the chip; the host makes percentiles of them and sends uneven ranges back "
            "between two frames until they follow. It begins with even bins from -1 to 1.",
        ),
        verdict=_verdict(seen, widths),
        panels=tuple(panels),
    )


def _widths(seen: Watched) -> tuple[float, float]:
    """Distance of the outer percentiles in the first and in the last readings."""
    low, high = (seen.curve("hidden", name).y for name in ("p15", "p85"))
    apart = [None if a is None or b is None else b - a for a, b in zip(low, high, strict=True)]
    return mean(apart[1:5]), mean(apart[-10:])


def _ordinal(name: str) -> str:
    return f"{name.removeprefix('p')}th percentile"


def _verdict(seen: dict[Where, Watched], widths: dict[Where, tuple[float, float]]) -> str:
    growth = {where: last / first if first else 0.0 for where, (first, last) in widths.items()}
    accuracy = {where: last_accuracy(run.trace) for where, run in seen.items()}
    first = (
        f"Reproduced: without normalization the distribution becomes {growth['none']:.0f} times as wide; with it in "
        f"all layers it stays ({growth['all']:.1f} times), and accuracy is {accuracy['all']:.0%} against "
        f"{accuracy['none']:.0%}."
        if growth["none"] > 3 * growth["all"]
        else f"Not reproduced: widths grow {growth['none']:.1f} times without and {growth['all']:.1f} times with it."
    )
    one = growth["one"]
    second = (
        f" One normalized layer is enough for a stable distribution two layers on ({one:.1f} times)."
        if one < 2 * growth["all"]
        else f" One normalized layer does most of it: two layers on the distribution becomes {one:.1f} times as wide, "
        f"mostly in the first steps, and accuracy is {accuracy['one']:.0%}. The source sees no difference to "
        "normalizing all."
    )
    return first + second
