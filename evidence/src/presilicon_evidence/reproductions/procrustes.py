"""Procrustes: few tracked weights on a machine that skips zeros."""

from collections.abc import Iterator

from presilicon.records import Panel, Reproduced, Reproduction
from presilicon_evidence.reproductions.methods import SEEDS, OnEvent, Trial, beats, gain_of, named
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, is_near, listed, shown

WORKLOAD = "fashion-cnn"
_SKIPS = ["machine.sparsity.zeros=weights", "machine.rows=16", "machine.cols=16"]
NEAR = 0.2
"""Part of a published gain by which ours may differ."""
_GAIN = "{} to 85% of dense training over that of {}"
_STEP = "time of a dense step over one of {}"
_STEPS = "median of steps to 85%, {}"
_DENSE = "dense"
_TRACKED = {
    "10%, decay 0.9": "procrustes",
    "10%, decay 0.98": "procrustes procrustes.decay=0.98",
    "20%, decay 0.9": "procrustes procrustes.density=0.2",
}


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """Time and energy to accuracy of tracked weights over those of all."""
    designs = [named(_DENSE, "edge-bf16", _SKIPS)]
    designs += [named(name, "edge-bf16", _SKIPS, method=method) for name, method in _TRACKED.items()]
    trial = Trial(designs, WORKLOAD, on_event)
    rows = []
    for name in _TRACKED:
        for quantity, energy, published in (("time", False, 4.0), ("energy", True, 3.26)):
            rows.append(
                trial.row(
                    _GAIN.format(quantity, name),
                    name,
                    _DENSE,
                    published,
                    energy=energy,
                    note="an upper limit, in the source",
                )
            )
        step_s = trial[name].time_per_step_s
        rows.append(
            Reproduced(
                _STEP.format(name),
                "x",
                ours=trial[_DENSE].time_per_step_s / step_s,
                note=f"reached 85%: {trial[name].reached}",
            )
        )
    for name in (_DENSE, *_TRACKED):
        rows.append(Reproduced(_STEPS.format(name), ours=trial[name].steps_to_accuracy.median))
    return Reproduction(
        name="procrustes",
        title="Procrustes: a tenth of the weights, trained from the start",
        source="Yang et al., Procrustes: a Dataflow and Accelerator for Sparse Deep Neural Network Training, MICRO '20",
        rows=tuple(rows),
        assumptions=(
            f"{WORKLOAD} in bfloat16, {SEEDS} paired seeds, on 16 x 16 cells that skip zero weights, in "
            "tiles of 16 outputs whose halves are balanced. The network has no batch normalization.",
            "Initial weights are zero once they have decayed to a thousandth; the source lets them underflow. By 0.9 a "
            "step they are gone after 66, before the tracked weights have grown.",
        ),
        verdict=conclude(statements, rows),
        panels=(
            Panel(title="(a) Accuracy over steps", percent=True,
                  curves=tuple(trial.curve(name, over_time=False) for name in (_DENSE, *_TRACKED))),
            Panel(title="(b) Accuracy over modelled time", x_label="ms", percent=True,
                  curves=tuple(trial.curve(name) for name in (_DENSE, *_TRACKED))),
        ),
    )  # fmt: skip


def statements(rows: Rows) -> Iterator[Statement]:
    """The published gains, by the best of the variants, and the steps behind them."""
    for quantity in ("time", "energy"):
        gains = {name: rows[_GAIN.format(quantity, name)] for name in _TRACKED}
        best = max(gains, key=lambda name: gain_of(gains[name]))
        tried = ", ".join(f"{name}: {shown(row)}" for name, row in gains.items())
        yield Statement(
            is_near(gains[best], NEAR),
            f"the published gain in {quantity} by the best of {len(gains)} variants, {best}, within {NEAR:.0%}",
            tried,
        )
    cheaper = [rows[_STEP.format(name)] for name in _TRACKED]
    yield Statement(all(map(beats, cheaper)), "steps are cheaper than dense ones", listed(cheaper), OUR_OWN)
    dense, *others = (rows[_STEPS.format(name)] for name in (_DENSE, *_TRACKED))
    yield Statement(
        dense.ours is not None and all(row.ours is not None and row.ours <= dense.ours for row in others),
        "no more steps are needed than by dense training",
        listed([dense, *others]),
        OUR_OWN,
    )
