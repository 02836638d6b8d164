"""Accuracy that drops, the predictiveness of a layer that drops with it, and a learning rate changed half way."""

from functools import partial
from statistics import correlation

from presilicon.designs import Tap
from presilicon.instrument import Command
from presilicon.records import Curve, Panel, Reproduced, Reproduction
from presilicon.reproductions.watched import (
    SOURCE,
    OnEvent,
    Watched,
    best_accuracy,
    deep_network,
    last_accuracy,
    mean,
    watch,
    watched_design,
    watched_workload,
)
from presilicon.workloads import Workload

DEPTH, WIDTH, STEPS = 8, 24, 2000
LEARNING_RATE, SLOWER = 0.08, 0.008
SEEDS = range(8)
"""All are trained; the first that is accurate half way and no longer at the end is shown."""
LEARNT, LOST = 0.8, 0.6
WINDOW = 20


def workload() -> Workload:
    """Four arms of a spiral, with a learning rate that is much too high."""
    network = partial(deep_network, DEPTH, WIDTH)
    return watched_workload("spirals-fast", network, LEARNING_RATE, STEPS, evaluate_every=10)


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """Train twice: left alone, and with the learning rate lowered by a command half way."""
    tap = Tap(
        name="last", layers=f"layer{DEPTH}", aggregation="predictiveness", options={"window": WINDOW}, every=1,
        vectors="all",
    )  # fmt: skip
    runs = {
        seed: watch(workload(), watched_design("left-alone", [tap], 1), seed=seed, on_event=on_event) for seed in SEEDS
    }
    losing = [seed for seed, run in runs.items() if _half_way(run) >= LEARNT and last_accuracy(run.trace, 20) <= LOST]
    seed = losing[0] if losing else SEEDS[0]
    alone = runs[seed]
    at = half_way()
    slower = Command(id="half-way", streams=(), verb="learning_rate", value=SLOWER)
    mended = watch(
        workload(), watched_design("slower-half-way", [tap], 1), seed=seed, on_event=on_event, commands={at: slower}
    )
    return _tell(alone, mended, seed, at, len(losing))


def half_way() -> int:
    """The step at which the learning rate is changed: just before the middle."""
    return STEPS // 2 - 20


def _half_way(seen: Watched) -> float:
    return mean([point.accuracy for point in seen.trace.evaluations if 0 <= half_way() - point.step < 100])


def agreement(seen: Watched) -> float:
    """Correlation of accuracy and predictiveness over evaluations after step 200."""
    curve = seen.curve("last", "predictiveness")
    by_step = dict(zip(curve.x, curve.y, strict=True))
    pairs = [
        (point.accuracy, value)
        for point in seen.trace.evaluations
        if point.step > 200 and (value := by_step.get(float(point.step - 1))) is not None
    ]
    return correlation([a for a, _ in pairs], [b for _, b in pairs]) if len(pairs) > 2 else 0.0


def _tell(alone: Watched, mended: Watched, seed: int, at: int, losing: int) -> Reproduction:
    before, after = (_mean_between(alone, *ends) for ends in ((at - 200, at), (STEPS - 400, STEPS)))
    correlated = agreement(alone)
    rows = (
        Reproduced(f"seeds of {len(SEEDS)} that lose their accuracy for good", ours=losing, note=f"{seed} is shown"),
        Reproduced("left alone: best accuracy", "%", ours=100 * best_accuracy(alone.trace)),
        Reproduced("left alone: accuracy at the end", "%", ours=100 * last_accuracy(alone.trace, 20)),
        Reproduced("left alone: predictiveness before the middle", ours=before),
        Reproduced("left alone: predictiveness at the end", ours=after),
        Reproduced(
            "correlation of accuracy and predictiveness",
            ours=correlated,
            note="drops that belong together, in the source; no figure is given",
        ),
        Reproduced(
            f"learning rate {SLOWER:g} from step {at} on: accuracy at the end",
            "%",
            ours=100 * last_accuracy(mended.trace, 20),
        ),
    )
    marks = ((float(at), f"learning rate {LEARNING_RATE:g} to {SLOWER:g}"),)
    curves: list[Curve] = [
        seen.curve("last", "predictiveness", name)
        for seen, name in ((alone, "left alone"), (mended, "slower half way"))
    ]
    return Reproduction(
        name="predictiveness",
        title="Drops in accuracy, seen in a layer's predictiveness, and mended while training goes on",
        source=SOURCE.format(7),
        rows=rows,
        assumptions=(
            f"The source gives no network. Ours: {DEPTH} dense layers of {WIDTH} with ReLUs, four arms of a spiral, "
            f"batches of 64, SGD at {LEARNING_RATE}, much too fast, with momentum 0.9, bfloat16 emulated; seed {seed}.",
            f"Predictiveness is the largest mean activation of a node entering the last layer, at every step, averaged "
            f"by the host over the last {WINDOW} steps (the source's sum has one term more than it divides by).",
            "The learning rate was changed by a command to the running training: an image that writes a control "
            "register of the instrument, taken between two frames.",
        ),
        verdict=_verdict(alone, mended, correlated, before, after, losing),
        panels=(
            Panel(title="(a) Accuracy", percent=True, marks=marks,
                  curves=(alone.accuracy("left alone"), mended.accuracy("slower half way"))),
            Panel(title="(b) Predictiveness of what enters the last layer", curves=tuple(curves), marks=marks),
        ),
    )  # fmt: skip


def _mean_between(seen: Watched, first: int, last: int) -> float:
    curve = seen.curve("last", "predictiveness")
    return mean([value for step, value in zip(curve.x, curve.y, strict=True) if first <= step < last])


def _verdict(alone: Watched, mended: Watched, correlated: float, before: float, after: float, losing: int) -> str:
    if last_accuracy(alone.trace, 20) > LOST:
        return "No seed lost its accuracy here, so there was nothing to mend: not reproduced on this machine."
    accuracy = last_accuracy(mended.trace, 20)
    mends = (
        f"Lowering the learning rate half way keeps {accuracy:.0%} where it would have been "
        f"{last_accuracy(alone.trace, 20):.0%}"
        if accuracy > LEARNT
        else "Lowering the learning rate half way did not save it here"
    )
    return (
        f"Reproduced in kind on {losing} of {len(SEEDS)} seeds: when accuracy is lost for good, predictiveness falls "
        f"from {before:.2g} to {after:.2g}, and the two correlate ({correlated:.2f}). {mends}. Not reproduced: short "
        "drops of accuracy do not each show as a drop of predictiveness; before the loss it rises as often as it "
        "falls."
    )
