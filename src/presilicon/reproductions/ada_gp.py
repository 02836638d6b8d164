"""ADA-GP: predicted gradients against backpropagation, and against no gradients at all."""

from presilicon.methods import speedup
from presilicon.records import Panel, Reproduced, Reproduction
from presilicon.reproductions.methods import SEEDS, OnEvent, Trial, named, times

WORKLOAD = "digits-cnn"
_PLAIN, _PREDICTED = "backpropagation", "ADA-GP"
_CONTROLS = {"zeros": "zeros", "random": "random gradients"}


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """Time and energy to accuracy of ADA-GP, with controls."""
    designs = [
        named(_PLAIN, "edge-bf16"),
        named(_PREDICTED, "edge-bf16", method="ada-gp"),
        *(named(name, "edge-bf16", method=f"ada-gp ada-gp.source={source}") for source, name in _CONTROLS.items()),
    ]
    trial = Trial(designs, WORKLOAD, on_event)
    gain, control = trial.gain(_PREDICTED, _PLAIN), trial.gain("zeros", _PLAIN)
    rows = (
        trial.row("time to accuracy of backpropagation over ADA-GP's", _PREDICTED, _PLAIN, 1.47),
        trial.row(
            "the same for energy", _PREDICTED, _PLAIN, 1 / 0.66, energy=True, note="34% less energy, in the source"
        ),
        trial.row(
            "time of backpropagation over that of steps with zeros in place of predictions",
            "zeros",
            _PLAIN,
            note="a control: what the usual steps reach alone",
        ),
        trial.row("the same with random gradients", "random gradients", _PLAIN),
        Reproduced(
            "speedup of four predicted steps for each usual one, by counting passes",
            "x",
            ours=speedup(4, 1),
            note="without a predictor's cost and at equal steps",
        ),
        Reproduced("steps to 97% of backpropagation", ours=trial[_PLAIN].steps_to_accuracy.median),
        Reproduced("steps to 97% of ADA-GP", ours=trial[_PREDICTED].steps_to_accuracy.median),
    )
    return Reproduction(
        name="ada-gp",
        title="ADA-GP: most steps without a backward pass",
        source="Janfaza et al., ADA-GP: Accelerating DNN Training By Adaptive Gradient Prediction, MICRO 2023",
        rows=rows,
        assumptions=(
            f"{WORKLOAD} on edge-bf16, {SEEDS} paired seeds; 100 steps of warm-up, then 4, 3, 2 and 1 predicted steps "
            "for each usual one, 100 steps each. The source warms up for 10 epochs of large data sets.",
            f"Seeds that reached 97%: {trial.reached(_PLAIN, _PREDICTED, 'zeros', 'random gradients')}.",
        ),
        verdict=_verdict(gain, control),
        panels=(
            Panel(title="(a) Accuracy over steps", percent=True,
                  curves=tuple(trial.curve(name, over_time=False) for name in (_PLAIN, _PREDICTED, "zeros"))),
            Panel(title="(b) Accuracy over modelled time", x_label="ms", percent=True,
                  curves=tuple(trial.curve(name) for name in (_PLAIN, _PREDICTED, "zeros"))),
        ),
    )  # fmt: skip


def _verdict(gain: float | None, control: float | None) -> str:
    if not gain:
        return "ADA-GP never came to the target here, so nothing is reproduced."
    beats = control is None or gain > control
    return (
        f"{'Faster' if gain > 1 else 'Slower'} than backpropagation here ({times(gain)} times its speed; published "
        f"1.47). The control with zeros in place of predictions has {times(control)} times: predictions "
        f"{'help beyond it' if beats else 'do not help beyond it'}. They do point along true gradients (cosines of "
        "0.05 to 0.15 after the warm-up, above a running mean of gradients: tests/unit/methods/test_ada_gp.py), but a "
        "network of this size trains in a few hundred steps, and its predictor costs more than its forward pass."
    )
