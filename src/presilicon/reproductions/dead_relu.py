"""A deep network that learns and then collapses: a layer of ReLUs has died, and the instrument shows which."""

from collections.abc import Sequence
from functools import partial
from statistics import median

from presilicon.designs import Tap
from presilicon.records import Curve, Panel, Reproduced, Reproduction
from presilicon.reproductions.watched import (
    SOURCE,
    OnEvent,
    Watched,
    best_accuracy,
    deep_network,
    last_accuracy,
    watch,
    watched_design,
    watched_workload,
)
from presilicon.workloads import Workload

DEPTH, WIDTH = 10, 24
STEPS = 1600
LEARNING_RATE = 0.05
SEEDS = range(8)
"""Tried in turn until one learns and then collapses. Results of a run that is about to fail depend on the order of
additions, which differs between processors."""
LEARNT, LOST, DEAD = 0.9, 0.5, 0.99


def workload(leak: float = 0.0) -> Workload:
    """Four arms of a spiral, classified by ten dense layers."""
    return watched_workload("spirals-deep", partial(deep_network, DEPTH, WIDTH, leak=leak), LEARNING_RATE, STEPS)


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """The collapse, the layer that the taps name, and the same network with leaky ReLUs."""
    taps = (
        Tap(name="into", layers="layer*", aggregation="summary", vectors="all"),
        Tap(name="slope", layers="layer*", role="gradient", aggregation="gradient_norm", vectors="all"),
    )
    design = watched_design("dead-relu", taps, 2 * DEPTH)
    seed, seen = -1, None
    for seed in SEEDS:
        seen = watch(workload(), design, seed=seed, on_event=on_event)
        if best_accuracy(seen.trace) >= LEARNT and last_accuracy(seen.trace) <= LOST and died(seen) is not None:
            break
    assert seen is not None
    leaky = watch(workload(leak=0.01), watched_design("leaky-relu", taps, 2 * DEPTH), seed=seed, on_event=on_event)
    return _tell(seen, leaky, seed)


def died(seen: Watched) -> tuple[int, int] | None:
    """The first layer whose ReLUs output only zeros until the end, and the step from which on; None if there is
    none."""
    deaths = []
    for number in range(1, DEPTH):
        curve = seen.curve(f"into.layer{number + 1}", "sparsity")
        alive = [index for index, value in enumerate(curve.y) if value is None or value < DEAD]
        since = alive[-1] + 1 if alive else 0
        if since < len(curve.x):
            deaths.append((int(curve.x[since]), number))
    return None if not deaths else (min(deaths)[1], min(deaths)[0])


def _tell(seen: Watched, leaky: Watched, seed: int) -> Reproduction:
    dead = died(seen)
    collapsed = _collapse(seen)
    gradients = [seen.curve(f"slope.layer{number}", "norm", f"layer {number}") for number in range(1, DEPTH + 1)]
    sparsity = [seen.curve(f"into.layer{number + 1}", "sparsity", f"layer {number}") for number in range(1, DEPTH)]
    means = [seen.curve(f"into.layer{number + 1}", "mean", f"layer {number}") for number in range(1, DEPTH)]
    marks = () if dead is None else ((float(dead[1]), f"layer {dead[0]} is dead"),)
    silent = sum(all(value == 0 for value in curve.y[-5:]) for curve in gradients)
    burst, usual = _burst(gradients, dead)
    rows = (
        Reproduced("best accuracy while it learns", "%", ours=100 * best_accuracy(seen.trace)),
        Reproduced(
            "accuracy at the end", "%", ours=100 * last_accuracy(seen.trace), note="a quarter of the points by guessing"
        ),
        Reproduced(
            "step at which accuracy is lost",
            ours=collapsed,
            note="epoch 33 in the source's network" if collapsed is not None else "it never is",
        ),
        Reproduced(
            "layer whose outputs are all zero",
            ours=dead[0] if dead else None,
            note=f"from step {dead[1]} on; layer 9 in the source's network, by chance the same" if dead else "",
        ),
        Reproduced(
            "layers whose weight gradient is zero at the end", ours=silent, note=f"of {DEPTH}; most, in the source"
        ),
        Reproduced(
            "largest weight gradient in the look before",
            ours=burst,
            note=f"{burst / usual:.0f} times the median of all looks" if usual else "",
        ),
        Reproduced(
            "accuracy at the end with leaky ReLUs",
            "%",
            ours=100 * last_accuracy(leaky.trace),
            note="slope 0.01 below zero, the same seed",
        ),
    )
    return Reproduction(
        name="dead-relu",
        title="A network that learns and then forgets: which layer died",
        source=SOURCE.format(3),
        rows=rows,
        assumptions=(
            f"The source gives no network or data. Ours: {DEPTH} dense layers of {WIDTH} with ReLUs, four arms of a "
            f"spiral, batches of 64, SGD at {LEARNING_RATE} with momentum 0.9, bfloat16 emulated; seed {seed}, the "
            f"first of {SEEDS.start} to {SEEDS.stop - 1} that learns and then collapses with a dead layer.",
            "Every tenth step the taps look at what enters each layer (summary) and at each weight gradient "
            "(gradient norm); what enters a layer is the output of the one before it. All of it went through the fast "
            f"model of the circuit, packets and decoder; {seen.dropped} frames were dropped.",
        ),
        verdict=_verdict(seen, leaky, dead, silent, (burst, usual)),
        panels=(
            Panel(title="(a) Accuracy", curves=(seen.accuracy("ReLU"), leaky.accuracy("leaky ReLU")), percent=True,
                  marks=marks, note="All that one would know without an instrument."),
            Panel(title="(b) Norm of each weight gradient", curves=tuple(gradients), marks=marks, log=True,
                  note="A burst, and then every gradient is zero: nothing brings it back"),
            Panel(title="(c) Mean output of each layer", curves=tuple(means), marks=marks, log=True),
            Panel(title="(d) Share of zeros in the output of each layer", curves=tuple(sparsity), percent=True,
                  marks=marks, note="The layer at fault is the one that goes to 100%, and it was on its way for long."),
        ),
    )  # fmt: skip


def _burst(gradients: Sequence[Curve], dead: tuple[int, int] | None) -> tuple[float, float]:
    """The largest norm at the last reading before the layer dies, and the median of all norms."""
    norms = [value for curve in gradients for value in curve.y if value]
    if dead is None or not norms:
        return 0.0, 0.0
    before = [curve.y[index] or 0.0 for curve in gradients for index, step in enumerate(curve.x[1:]) if step == dead[1]]
    return max(before), median(norms)


def _collapse(seen: Watched) -> float | None:
    """Step of the last evaluation above `LOST`; None if accuracy was never lost."""
    points = seen.trace.evaluations
    good = [point.step for point in points if point.accuracy > LOST]
    return None if not good or good[-1] == points[-1].step else float(good[-1])


def _verdict(
    seen: Watched, leaky: Watched, dead: tuple[int, int] | None, silent: int, strongest: tuple[float, float]
) -> str:
    if dead is None or _collapse(seen) is None:
        return "No seed collapsed with a dead layer here, so the figure is not reproduced on this machine."
    number, since = dead
    curve = seen.curve(f"into.layer{number + 1}", "sparsity")
    earlier = [value for step, value in zip(curve.x, curve.y, strict=True) if since - 800 <= step < since and value]
    rise = f"Its share of zeros was {earlier[0]:.0%} 800 steps before and {earlier[-1]:.0%} at the look before its end"
    burst, usual = strongest
    rise += f", where a gradient {burst / usual:.0f} times the usual gave it the rest"
    end = last_accuracy(leaky.trace)
    outcome = (
        "learn on" if end > LEARNT else "stay alive, but unsteady at this learning rate" if end > LOST else "fail too"
    )
    return (
        f"Reproduced in kind: accuracy reaches {best_accuracy(seen.trace):.0%} and falls to "
        f"{last_accuracy(seen.trace):.0%}; of ten layers it is layer {number} whose outputs become all zero, at step "
        f"{since}, and {silent} weight gradients are zero from then on. {rise}; in the source, too, it was on its way "
        "for long. Not reproduced: the source's accuracy recovers after eleven epochs, ours does not, since a layer "
        f"that is wholly dead passes no gradient back. Leaky ReLUs {outcome} ({end:.0%} at the end)."
    )
