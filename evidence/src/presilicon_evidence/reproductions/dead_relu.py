"""A deep network that learns and then collapses: a layer of ReLUs has died, and the instrument shows which."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from presilicon.designs import Tap
from presilicon.records import Curve, Panel, Reproduced, Reproduction
from presilicon.workloads import Workload
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, shown
from presilicon_evidence.reproductions.watched import (
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

DEPTH, WIDTH = 10, 24
STEPS = 1600
LEARNING_RATE = 0.05
SEEDS = range(8)
"""Tried in turn until one learns and then collapses. Results of a run that is about to fail depend on the order of
additions, which differs between processors."""
LEARNT, LOST, DEAD = 0.9, 0.5, 0.99
EARLIER = 800
"""Steps before its end at which the layer that dies is looked at too."""
SOON = 0.5
"""Share of zeros from which a layer is on its way to dying."""


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
    before, at_end = _way(seen, dead)
    rows = (
        Reproduced(
            "seeds tried until one learns and then collapses",
            ours=seed - SEEDS.start + 1,
            note=f"of {len(SEEDS)} at most; {seed} is shown",
        ),
        Reproduced("best accuracy while it learns", "%", ours=100 * best_accuracy(seen.trace)),
        Reproduced(
            "accuracy at the end", "%", ours=100 * last_accuracy(seen.trace), note="a quarter of the points by guessing"
        ),
        Reproduced("lowest accuracy after the best", "%", ours=100 * _lowest_after_best(seen)),
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
        Reproduced(f"its share of zeros {EARLIER} steps before", "%", ours=before),
        Reproduced("its share of zeros at the look before", "%", ours=at_end),
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
        verdict=conclude(statements, rows),
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


def _way(seen: Watched, dead: tuple[int, int] | None) -> tuple[float | None, float | None]:
    """Percent of zeros in the output of the layer that dies: long before, and at the look before its end."""
    if dead is None:
        return None, None
    number, since = dead
    curve = seen.curve(f"into.layer{number + 1}", "sparsity")
    looks = [value for step, value in zip(curve.x, curve.y, strict=True) if since - EARLIER <= step < since and value]
    return (100 * looks[0], 100 * looks[-1]) if looks else (None, None)


def _lowest_after_best(seen: Watched) -> float:
    accuracies = [point.value for point in seen.trace.evaluations]
    return min(accuracies[accuracies.index(max(accuracies)) :])


def _collapse(seen: Watched) -> float | None:
    """Step of the last evaluation above `LOST`; None if accuracy was never lost."""
    points = seen.trace.evaluations
    good = [point.step for point in points if point.value > LOST]
    return None if not good or good[-1] == points[-1].step else float(good[-1])


def statements(rows: Rows) -> Iterator[Statement]:
    """The figure's story: accuracy that is lost, the layer that died, its gradients, and whether it recovers."""
    best, lowest, end = (
        rows[name].ours or 0.0
        for name in ("best accuracy while it learns", "lowest accuracy after the best", "accuracy at the end")
    )
    tried = rows["seeds tried until one learns and then collapses"]
    is_lost = best >= 100 * LEARNT and lowest <= 100 * LOST
    yield Statement(
        is_lost,
        "a network learns and then loses its accuracy",
        f"{best:.0f}%, then {lowest:.0f}%; seeds tried: {tried.ours or 0.0:g}, {tried.note}",
    )
    dead = rows["layer whose outputs are all zero"]
    yield Statement(
        is_lost and dead.ours is not None,
        "the instrument names one layer whose outputs become all zero",
        "none" if dead.ours is None else f"layer {dead.ours:g} of {DEPTH}, {dead.note}",
    )
    early, late = (
        rows[f"its share of zeros {EARLIER} steps before"].ours,
        rows["its share of zeros at the look before"].ours,
    )
    yield Statement(
        early is not None and late is not None and 100 * SOON <= early <= late,
        f"that layer was on its way for long, with {SOON:.0%} zeros and more {EARLIER} steps before",
        "no layer died"
        if early is None or late is None
        else f"{early:.0f}%, and {late:.0f}% at the look before its end",
    )
    silent = rows["layers whose weight gradient is zero at the end"].ours or 0.0
    yield Statement(silent > DEPTH / 2, "most weight gradients are zero from then on", f"{silent:g} of {DEPTH}")
    yield Statement(is_lost and end >= 100 * LEARNT, "accuracy recovers later", f"{end:.0f}% at the end")
    leaky = rows["accuracy at the end with leaky ReLUs"]
    yield Statement(
        (leaky.ours or 0.0) >= 100 * LEARNT, "the same network with leaky ReLUs learns on", shown(leaky), OUR_OWN
    )
