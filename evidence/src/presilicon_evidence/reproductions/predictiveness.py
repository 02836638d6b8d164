"""Accuracy that drops, the predictiveness of a layer that drops with it, and a learning rate changed half way."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from statistics import correlation

from presilicon.designs import Tap
from presilicon.instrument import Command
from presilicon.records import Curve, Panel, Reproduced, Reproduction
from presilicon.workloads import Workload
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, listed, shown
from presilicon_evidence.reproductions.watched import (
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

DEPTH, WIDTH, STEPS = 8, 24, 2000
LEARNING_RATE, SLOWER = 0.08, 0.008
SEEDS = range(8)
"""All are trained; the first that is accurate half way and no longer at the end is shown."""
LEARNT, LOST = 0.8, 0.6
WINDOW = 20
AGREES, DROP, SHOWN = 0.5, 0.1, 0.75
"""The least correlation of two curves that fall together, the least drop of accuracy from one evaluation to the next,
and the least share of these that predictiveness shows too."""


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
    return _tell(alone, mended, seed, at, [runs[seed] for seed in losing])


def half_way() -> int:
    """The step at which the learning rate is changed: just before the middle."""
    return STEPS // 2 - 20


def _half_way(seen: Watched) -> float:
    return mean([point.value for point in seen.trace.evaluations if 0 <= half_way() - point.step < 100])


def agreement(seen: Watched) -> float:
    """Correlation of accuracy and predictiveness over evaluations after step 200."""
    curve = seen.curve("last", "predictiveness")
    by_step = dict(zip(curve.x, curve.y, strict=True))
    pairs = [
        (point.value, value)
        for point in seen.trace.evaluations
        if point.step > 200 and (value := by_step.get(float(point.step - 1))) is not None
    ]
    return correlation([a for a, _ in pairs], [b for _, b in pairs]) if len(pairs) > 2 else 0.0


_LOSING = "seeds that lose their accuracy for good"
_MENDED = f"learning rate {SLOWER:g} from the middle on: accuracy at the end"


def _tell(alone: Watched, mended: Watched, seed: int, at: int, losing: list[Watched]) -> Reproduction:
    before, after = _before_and_after(alone)
    falls = sum(_falls_together(run) for run in losing)
    drops = _drops(alone)
    correlated = agreement(alone)
    rows = (
        Reproduced(_LOSING, ours=len(losing), note=f"of {len(SEEDS)}; {seed} is shown"),
        Reproduced("  in which predictiveness falls with it", ours=falls, note=f"of {len(losing)}"),
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
            "short drops of accuracy before the middle that predictiveness shows",
            "%",
            ours=100 * sum(drops) / len(drops) if drops else None,
            note=f"of {len(drops)}, each by {DROP:.0%} and more from one evaluation to the next",
        ),
        Reproduced(
            _MENDED,
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
        verdict=conclude(statements, rows),
        panels=(
            Panel(title="(a) Accuracy", percent=True, marks=marks,
                  curves=(alone.accuracy("left alone"), mended.accuracy("slower half way"))),
            Panel(title="(b) Predictiveness of what enters the last layer", curves=tuple(curves), marks=marks),
        ),
    )  # fmt: skip


def _before_and_after(seen: Watched) -> tuple[float, float]:
    """Mean predictiveness before the middle and at the end."""
    return _mean_between(seen, half_way() - 200, half_way()), _mean_between(seen, STEPS - 400, STEPS)


def _falls_together(seen: Watched) -> bool:
    before, after = _before_and_after(seen)
    return after < before and agreement(seen) >= AGREES


def _drops(seen: Watched) -> list[bool]:
    """For each short drop of accuracy before the middle, whether predictiveness has fallen too."""
    curve = seen.curve("last", "predictiveness")
    by_step = dict(zip(curve.x, curve.y, strict=True))
    shown = []
    for earlier, later in pairwise(seen.trace.evaluations):
        before, after = (by_step.get(float(point.step - 1)) for point in (earlier, later))
        if later.step <= half_way() and earlier.value - later.value >= DROP and before and after is not None:
            shown.append(after < before)
    return shown


def _mean_between(seen: Watched, first: int, last: int) -> float:
    curve = seen.curve("last", "predictiveness")
    return mean([value for step, value in zip(curve.x, curve.y, strict=True) if first <= step < last])


def statements(rows: Rows) -> Iterator[Statement]:
    """Accuracy that is lost, predictiveness that falls with it, short drops of both, and what a slower rate keeps."""
    losing, falls = rows[_LOSING], rows[_LOSING, "in which predictiveness falls with it"]
    count = losing.ours or 0.0
    yield Statement(
        count > len(SEEDS) / 2,
        "a learning rate that is too high loses accuracy for good, on most seeds",
        f"{count:g} {losing.note}",
    )
    figures = rows.like("left alone: predictiveness")
    correlated = rows["correlation of accuracy and predictiveness"]
    yield Statement(
        count > 0 and falls.ours == losing.ours,
        f"where it is lost, predictiveness falls with it, with a correlation of at least {AGREES:g}",
        f"on {falls.ours or 0.0:g} of {count:g} seeds that lose it; on the one that is shown, "
        f"{listed([*figures, correlated])}",
    )
    drops = rows["short drops of accuracy before the middle that predictiveness shows"]
    yield Statement(
        drops.ours is not None and drops.ours >= 100 * SHOWN,
        f"at least {SHOWN:.0%} of short drops of accuracy show as drops of predictiveness",
        f"{shown(drops)} {drops.note}",
    )
    alone, mended = rows["left alone: accuracy at the end"].ours or 0.0, rows[_MENDED].ours or 0.0
    yield Statement(
        alone <= 100 * LOST and mended >= 100 * LEARNT,
        "a learning rate lowered midway keeps accuracy that is lost otherwise",
        f"{mended:.0f}% at the end, {alone:.0f}% if left alone",
    )
