"""Procrustes: few tracked weights on a machine that skips zeros."""

from presilicon.records import Panel, Reproduced, Reproduction
from presilicon.reproductions.methods import SEEDS, OnEvent, Trial, named, times

WORKLOAD = "fashion-cnn"
_SKIPS = ["machine.sparsity.zeros=weights", "machine.rows=16", "machine.cols=16"]
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
            words = f"{quantity} to 85% of dense training over that of {name}"
            rows.append(trial.row(words, name, _DENSE, published, energy=energy, note="an upper limit, in the source"))
        step_s = trial[name].time_per_step_s
        rows.append(
            Reproduced(
                f"time of a dense step over one of {name}",
                "x",
                ours=trial[_DENSE].time_per_step_s / step_s,
                note=f"reached 85%: {trial[name].reached}",
            )
        )
    gains = {name: trial.gain(name, _DENSE) for name in _TRACKED}
    best = max(gains, key=lambda name: gains[name] or 0.0)
    medians = {name: trial[name].steps_to_accuracy.median for name in (_DENSE, *_TRACKED)}
    counts = "; ".join(f"{name} {'never' if steps is None else f'{steps:.0f}'}" for name, steps in medians.items())
    return Reproduction(
        name="procrustes",
        title="Procrustes: a tenth of the weights, trained from the start",
        source="Yang et al., Procrustes: a Dataflow and Accelerator for Sparse Deep Neural Network Training, MICRO '20",
        rows=tuple(rows),
        assumptions=(
            f"{WORKLOAD} in bfloat16, {SEEDS} paired seeds, on 16 x 16 cells that skip zero weights, in "
            "tiles of 16 outputs whose halves are balanced. The network has no batch normalization.",
            "Initial weights are zero once they have decayed to a thousandth; the source lets them underflow.",
        ),
        verdict=(
            f"The best, {best}, is {times(gains[best])} times as fast to 85% as dense training (published: up to 4). "
            f"Steps are cheaper, but there are more of them (medians: {counts}): the others are gone after 66 steps of "
            "decay by 0.9, before the tracked weights have grown, and no normalization restores the size of "
            "activations. More tracked weights shorten that; a slower decay changes little."
        ),
        panels=(
            Panel(title="(a) Accuracy over steps", percent=True,
                  curves=tuple(trial.curve(name, over_time=False) for name in (_DENSE, *_TRACKED))),
            Panel(title="(b) Accuracy over modelled time", x_label="ms", percent=True,
                  curves=tuple(trial.curve(name) for name in (_DENSE, *_TRACKED))),
        ),
    )  # fmt: skip
