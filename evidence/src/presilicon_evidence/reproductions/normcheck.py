"""Batch normalization in all layers, in one, in none: the distribution of a hidden layer, by NormCheck."""

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Literal

from torch import nn

from presilicon.designs import Tap
from presilicon.records import Panel, Reproduced, Reproduction
from presilicon.workloads import Workload, load_digits
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, listed, shown
from presilicon_evidence.reproductions.watched import (
    SOURCE,
    OnEvent,
    Watched,
    last_accuracy,
    mean,
    watch,
    watched_design,
    watched_workload,
)

Where = Literal["none", "all", "one"]
CASES: dict[Where, str] = {
    "none": "without normalization",
    "all": "normalized in all layers",
    "one": "normalized in one layer",
}
DEPTH, WIDTH, STEPS, LEARNING_RATE = 6, 64, 800, 0.05
SEEDS = range(3)
"""All are trained; figures are medians over them, and the first is drawn."""
WIDER, ALIKE = 3.0, 2.0
"""A distribution widens if it becomes so many times as wide as in the other network, and stays if less than that."""
NORMALIZED, TAPPED = 4, 6
"""The one layer that is normalized, and the layer whose input is watched."""
_PERCENTILES = ("p15", "p50", "p85")
_ACCURACY = "{}: accuracy at the end"
_WIDTH = "{}: from the 15th to the 85th percentile"
_GROWTH = "{}: width over that of the first looks"


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
    runs = {
        where: [
            watch(workload(where), watched_design(f"norm-{where}", [tap], 1), seed=seed, on_event=on_event)
            for seed in SEEDS
        ]
        for where in CASES
    }
    seen = {where: first for where, (first, *_) in runs.items()}
    rows: list[Reproduced] = []
    for where, title in CASES.items():
        widths = [_widths(run) for run in runs[where]]
        accuracies = [last_accuracy(run.trace) for run in runs[where]]
        growths = [last / first if first else 0.0 for first, last in widths]
        rows += [
            Reproduced(
                _ACCURACY.format(title),
                "%",
                ours=100 * median(accuracies),
                note=", ".join(f"{accuracy:.0%}" for accuracy in accuracies),
            ),
            Reproduced(_WIDTH.format(title), ours=median(last for _, last in widths)),
            Reproduced(
                _GROWTH.format(title), "x", ours=median(growths), note=", ".join(f"{growth:.2g}" for growth in growths)
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
            f"digits, batches of 32, SGD at {LEARNING_RATE} with momentum 0.9, bfloat16 emulated; medians of "
            f"{len(SEEDS)} seeds. The one that is normalized is layer {NORMALIZED}; the tap looks at what enters layer "
            f"{TAPPED}, every fifth step.",
            "NormCheck counts 64 bins on the chip; the host makes percentiles of them and sends uneven ranges back "
            "between two frames until they follow. It begins with even bins from -1 to 1.",
        ),
        verdict=conclude(statements, rows),
        panels=tuple(panels),
    )


def _widths(seen: Watched) -> tuple[float, float]:
    """Distance of the outer percentiles in the first and in the last readings."""
    low, high = (seen.curve("hidden", name).y for name in ("p15", "p85"))
    apart = [None if a is None or b is None else b - a for a, b in zip(low, high, strict=True)]
    return mean(apart[1:5]), mean(apart[-10:])


def _ordinal(name: str) -> str:
    return f"{name.removeprefix('p')}th percentile"


def statements(rows: Rows) -> Iterator[Statement]:
    """The figure's three panels: widths that grow or stay, and the accuracies beside them."""
    growth = {where: rows[_GROWTH.format(title)] for where, title in CASES.items()}
    accuracy = {where: rows[_ACCURACY.format(title)] for where, title in CASES.items()}
    none, everywhere, one = ((growth[where].ours or 0.0) for where in ("none", "all", "one"))
    yield Statement(
        none >= WIDER * everywhere > 0,
        f"without normalization the distribution becomes at least {WIDER:g} times as wide as with it in all layers",
        listed([growth["none"], growth["all"]]),
    )
    yield Statement(
        (accuracy["all"].ours or 0.0) > (accuracy["none"].ours or 0.0),
        "accuracy is higher with normalization in all layers",
        listed([accuracy["all"], accuracy["none"]]),
    )
    yield Statement(
        0 < one < ALIKE * everywhere,
        f"one normalized layer does as well: the distribution stays below {ALIKE:g} times that width",
        f"{shown(growth['one'])}, {listed([accuracy['one']])}",
    )
